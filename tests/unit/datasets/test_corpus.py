import json
import shutil
import sys
from pathlib import Path

import pytest

from layerdag.codec.unfolding import unfold
from layerdag.datasets.corpus import load_corpus, run_graph
from layerdag.datasets.settings import CorpusConfig
from layerdag.errors import DataError, TraceError
from layerdag.kinds.job import JOB
from layerdag.traces.analysis import match_communication
from layerdag.traces.chakra.corpus import read_index, read_runs


@pytest.fixture
def few(tmp_path, repository):
    """Return a corpus folder with four training runs of MLPs from the embedded corpus."""
    lines = (repository / "data" / "index.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    chosen = [row for row in rows if row["family"] == "mlp" and row["split"] == "train"][:4]
    (tmp_path / "shards").mkdir()
    shutil.copy(repository / "data" / "shards" / "mlp.tar.xz", tmp_path / "shards")

    def write(**changes: object):
        text = "".join(json.dumps({**row, **changes}) + "\n" for row in chosen)
        (tmp_path / "index.jsonl").write_text(text)
        return tmp_path

    return write


def test_runs_become_graphs_with_their_conditions(few):
    data = load_corpus(CorpusConfig(folder=few()))
    assert len(data.graphs["train"]) == 4
    conditions = data.graphs["train"][0].conditions
    assert conditions["family"] == "mlp"
    assert {"label", "strategy", "phase", "world_size", "num_nodes", "num_layers"} <= set(
        conditions
    )
    assert data.schema.kind == JOB


def test_graphs_over_the_limit_are_listed(few):
    data = load_corpus(CorpusConfig(folder=few(), max_nodes=150))
    assert len(data.graphs["train"]) + len(data.left_out) == 4
    assert all("more than 150" in line for line in data.left_out)


def test_nothing_left_is_an_error(few):
    with pytest.raises(DataError, match="no training graph"):
        load_corpus(CorpusConfig(folder=few(), strategies=("pp",), families=("gpt",)))


def test_a_split_that_is_none_is_refused(few):
    with pytest.raises(TraceError, match="is of split 'holdout'"):
        load_corpus(CorpusConfig(folder=few(split="holdout")))


def test_further_runs_are_all_to_train_on(few, tmp_path, repository):
    data = load_corpus(
        CorpusConfig(folder=few(), further=repository / "data" / "twins", families=("mlp",))
    )
    twins = [r for r in read_index(repository / "data" / "twins") if r.family == "mlp"]
    assert {r.split for r in twins} > {"train"}
    assert not data.graphs["val"]
    assert not data.graphs["test"]
    own = {r.graph_hash for r in read_index(tmp_path)}
    expected = {r.graph_hash for r in twins} - own
    assert len(data.graphs["train"]) == 4 + len(expected)


def test_further_runs_are_found_by_their_name_inside_the_corpus(few, tmp_path, repository):
    few()
    (tmp_path / "more").symlink_to(repository / "data" / "twins")
    by_name = load_corpus(CorpusConfig(folder=tmp_path, further=Path("more"), families=("mlp",)))
    by_path = load_corpus(
        CorpusConfig(folder=tmp_path, further=repository / "data" / "twins", families=("mlp",))
    )
    assert by_name.names["train"] == by_path.names["train"]
    assert len(by_name.graphs["train"]) > 4


def test_open_conditions_are_those_of_the_corpus_whatever_is_added(few, repository):
    folder = few()
    data = load_corpus(
        CorpusConfig(folder=folder, further=repository / "data" / "twins", families=("mlp",))
    )
    own = data.schema.with_table([dag.conditions for dag in data.members])
    everything = data.schema.with_table([dag.conditions for dag in data.graphs["train"]])
    assert data.schema.condition_table == own.condition_table
    assert data.schema.condition_table != everything.condition_table


def test_further_runs_are_no_part_of_the_split(few, repository):
    folder = few()
    further = load_corpus(
        CorpusConfig(folder=folder, further=repository / "data" / "twins", families=("mlp",))
    )
    alone = load_corpus(CorpusConfig(folder=folder, families=("mlp",)))
    assert len(further.graphs["train"]) > len(alone.graphs["train"])
    assert further.split == alone.split
    assert len(further.members) == len(alone.graphs["train"])
    own = further.without_extra_train()
    assert own.schema is further.schema
    assert own.names == alone.names
    assert own.split == alone.split


def test_hardly_any_further_run_has_the_graph_of_a_run_of_the_corpus(repository):
    own = {r.graph_hash for r in read_index(repository / "data")}
    further = read_index(repository / "data" / "further")
    assert {r.split for r in further} == {"train"}
    assert {r.world_size for r in further} == {1, 2}
    assert sum(r.graph_hash in own for r in further) < 0.01 * len(further)


def test_further_runs_that_repeat_a_graph_are_left_out(few):
    data = load_corpus(CorpusConfig(folder=few(), further=few()))
    assert len(data.graphs["train"]) == 4


@pytest.mark.slow
def test_every_run_of_the_corpus_unfolds_to_matching_ranks_with_nothing_added(repository):
    folder = repository / "data"
    for run in read_runs(folder, read_index(folder)):
        unfolded = unfold(run_graph(run), run.record.world_size)
        assert not match_communication(unfolded.workload).mismatches
        assert not unfolded.repairs
        assert not unfolded.completions


def test_a_run_that_is_no_graph_is_listed_with_its_reason(few, monkeypatch):
    module = sys.modules[load_corpus.__module__]
    broken = []

    def of_all_but_the_first(run):
        if not broken:
            broken.append(run.record.run)
            raise DataError("rank 1 waits for a send that nobody issues.")
        return run_graph(run)

    monkeypatch.setattr(module, "run_graph", of_all_but_the_first)
    data = load_corpus(CorpusConfig(folder=few()))
    assert len(data.graphs["train"]) == 3
    assert data.left_out == (f"{broken[0]}: rank 1 waits for a send that nobody issues.",)
