"""Several generators beside each other, with metrics and generators of one's own."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from small_programs import language

import layerdag as ld
from layerdag.cli.main import main
from layerdag.dag.graph_set import GraphSet
from layerdag.errors import ConfigError, UsageError
from layerdag.evaluation.metrics.base import METRICS, graph_metric
from layerdag.evaluation.side_by_side import (
    GENERATORS,
    TRAINING,
    fitted_generator,
    register_generator,
    score_generators,
)
from layerdag.graph.formats.graphml import write_graphml


@pytest.fixture(scope="module")
def data() -> ld.GraphDataset:
    return ld.load_dataset("latent_preferential", num_train=12, num_val=4, num_test=8)


class Resampler:
    """Training graphs again."""

    def fit(self, data: ld.GraphDataset) -> None:
        self.graphs = data.graphs["train"]

    def sample(self, num: int, seed: int) -> list[object]:
        order = np.random.default_rng(seed).integers(0, len(self.graphs), num)
        return [self.graphs[i] for i in order]


@pytest.fixture
def plugins() -> Iterator[None]:
    register_generator("again")(Resampler)

    @graph_metric("sources", "nodes without a parent", unit="nodes")
    def sources(graphs: GraphSet) -> np.ndarray:
        return np.bincount(graphs.graph_N[graphs.in_degree_N == 0], minlength=graphs.num_graphs)

    yield
    GENERATORS.unregister("again")
    METRICS.unregister("sources")


def test_training_graphs_have_ratios_of_1_and_nothing_new(data):
    found = score_generators(data, {}, baseline=True, replicates=10)
    (score,) = found.scores
    assert score.name == TRAINING
    assert score.mean_ratio == pytest.approx(1)
    assert score.vun.novel.count == 0
    assert "mean ratio of distances" in str(found)
    assert json.loads(json.dumps(found.to_dict()))["scores"][0]["vun"]["novel"]["count"] == 0


def test_a_registered_metric_and_generator_enter_the_table(data, plugins):
    made = fitted_generator("again", data).sample(6, 0)
    found = score_generators(data, {"again": made, "real": data.graphs["val"]}, replicates=5)
    assert found.scores[0].report["sources"].metric.unit == "nodes"
    assert "sources" in str(found)
    assert ld.compare(data, made, replicates=5)["sources"].generated.value > 0


def test_ratios_of_few_graphs_are_too_few_to_tell(data):
    sets = {"few": data.graphs["train"][:7], "enough": data.graphs["train"][:8]}
    found = score_generators(data, sets, replicates=5)
    means = next(line for line in str(found).splitlines() if line.startswith("mean ratio"))
    assert means.count("too few") == 1
    assert "too few to tell: ratios need 8" in str(found)
    assert [score["too_few"] for score in found.to_dict()["scores"]] == [True, False]


def test_graphs_that_are_none_count_as_invalid(data):
    cycle = nx.DiGraph([(0, 1), (1, 0)])
    found = score_generators(data, {"odd": [cycle, None, data.graphs["val"][0]]}, replicates=5)
    assert found.scores[0].vun.valid.count == 1
    assert len(found.scores[0].reasons) == 2
    alone = score_generators(data, {"odd": [cycle]}, replicates=5)
    assert alone.scores[0].report is None
    assert alone.scores[0].mean_ratio is None


def test_what_is_no_generator_is_refused(data):
    with pytest.raises(UsageError, match=r"needs the methods fit\(data\) and sample"):
        register_generator("odd")(Path)
    with pytest.raises(ConfigError, match="There is no generator 'odd'"):
        fitted_generator("odd", data)


def test_the_command_compares_files_folders_and_generators(data, tmp_path, capsys, monkeypatch):
    real = tmp_path / "real"
    real.mkdir()
    for split in ("train", "val", "test"):
        for i, dag in enumerate(data.graphs[split]):
            write_graphml(real / f"{split}-{i}.graphml", data.schema.decode(dag, f"{split}{i}"))
    rows = [f"{path.stem},{path.stem.partition('-')[0]}\n" for path in sorted(real.iterdir())]
    (real / "labels.csv").write_text("name,split\n" + "".join(rows))
    own = tmp_path / "own"
    own.mkdir()
    for i, dag in enumerate(data.graphs["val"]):
        write_graphml(own / f"{i}.graphml", data.schema.decode(dag, f"own{i}"))
    plugin = tmp_path / "mine.py"
    plugin.write_text(
        "import layerdag as ld\n\n@ld.register_generator('first')\nclass First:\n"
        "    def fit(self, data):\n        self.data = data\n"
        "    def sample(self, num, seed):\n        return self.data.graphs['train'][:num]\n"
    )
    out = tmp_path / "report.json"
    words = ["compare", str(real), str(own), *map(str, sorted(own.iterdir())), "--baseline"]
    words += ["--plugin", str(plugin), "--generator", "first", "--num", "3", "--out", str(out)]
    assert main(words) == 0
    printed = capsys.readouterr().out
    GENERATORS.unregister("first")
    assert [score["name"] for score in json.loads(out.read_text())["scores"]] == [
        "own", "files", "first", TRAINING,
    ]  # fmt: skip
    assert "mean ratio" in printed
    assert main(["compare", str(real), str(own), "--json", "--max-graphs", "3"]) == 0
    assert json.loads(capsys.readouterr().out)["scores"][0]["graphs"] == 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["corpus"], "Nothing to compare"),
        (["corpus", "x", "--max-graphs", "0"], "must be at least 1"),
        (["nosuch", "--baseline"], "is neither a folder nor a data set's name"),
        (["corpus", "--baseline", "--plugin", "no.py"], "there is no such Python file"),
        (["corpus", "--baseline", "--plugin", "bad.py"], "fails when it is run as Python (Syntax"),
    ],
)
def test_wrong_use_is_one_sentence(words, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("bad.py").write_text("name,label\na b,1\n")
    assert main(["compare", *words]) == 2
    assert said in capsys.readouterr().err


def test_jobs_stand_with_the_number_that_keeps_all_rules():
    step = ld.capture_model(*language()).workload()
    graphs = [replace(step, source=f"job {at}") for at in range(6)]
    split = {"train": range(3), "val": [], "test": range(3, 6)}
    data = ld.GraphDataset(graphs, split=split)
    found = score_generators(data, {"made": [step, step]}, baseline=True, replicates=5)
    (line,) = [row for row in str(found).splitlines() if row.startswith("keep all whole-program")]
    assert line.count(" of ") == 3
    assert "3 of 3" in line
    assert "2 of 2" in line
