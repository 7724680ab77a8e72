"""``ld.workload``: models by name, by shape and by file, recommenders beside transformers."""

import json
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from raw_graphs import chain
from small_recommenders import TWO
from small_studies import TINY
from small_workloads import collective, compute, job
from tiny_checkpoints import chain_checkpoint, job_checkpoint

import layerdag as ld
from layerdag.dag.graph_set import GraphSet
from layerdag.datasets.dataset import GraphDataset
from layerdag.errors import LayerdagError, UsageError
from layerdag.evaluation.graph_findings import graph_findings
from layerdag.evaluation.metrics.base import Goal, GraphMean
from layerdag.evaluation.metrics.neighborhoods import NEIGHBORHOOD_METRICS
from layerdag.evaluation.similarity import DEFAULT_METRICS
from layerdag.sampling.generated import GeneratedGraph
from layerdag.traces.chakra.files import read_trace
from layerdag.traces.trace import NodeType, Workload
from layerdag.validation.rules import has_errors
from layerdag.workloads.dlrm import RECOMMENDERS, recommender_job
from layerdag.workloads.transformer.job import transformer_job
from layerdag.workloads.transformer.shapes import PRESETS


@dataclass(frozen=True)
class Ends(GraphMean):
    """Number of nodes without a child."""

    def values(self, graphs: GraphSet) -> np.ndarray:
        return np.bincount(graphs.graph_N[graphs.out_degree_N == 0], minlength=graphs.num_graphs)


GRAPHS = [chain(f"g{i}", "abcab"[: 2 + i % 4], label=1.0 + i) for i in range(24)]
DATA = ld.GraphDataset.build("chains", "flow", {"train": GRAPHS[:16], "test": GRAPHS[16:]})


def test_data_sets_and_samples_are_taken_as_they_are(tmp_path):
    samples = ld.sample(chain_checkpoint(tmp_path), num=6, max_nodes=6, best_of=1)
    report = ld.compare(DATA, DATA, samples, replicates=3)
    assert (report.train, report.test, report.generated) == (16, 8, 6)
    lists = ld.compare(DATA.graphs["train"], DATA.graphs["test"], samples, replicates=3)
    assert str(lists) == str(report)


def test_a_data_set_and_samples_are_enough(tmp_path):
    samples = ld.sample(chain_checkpoint(tmp_path), num=6, max_nodes=6, best_of=1)
    report = ld.compare(DATA, samples, replicates=3)
    assert report.to_dict() == ld.compare(DATA, DATA, samples, replicates=3).to_dict()
    assert ld.compare(GRAPHS, samples, replicates=3).train == len(GRAPHS) / 2
    with pytest.raises(UsageError, match="at least two, found 1"):
        ld.compare(GRAPHS[:1], samples)


def test_metrics_are_chosen_and_ones_own_are_computed():
    neighborhoods = ld.compare(DATA, DATA, metrics=NEIGHBORHOOD_METRICS)
    assert [row.metric for row in neighborhoods.rows] == list(NEIGHBORHOOD_METRICS)
    assert neighborhoods["neighborhood_novelty:3"].generated.value == 0.0
    ends = Ends("ends", "nodes without a child", Goal.MATCH_REAL, unit="nodes")
    report = ld.compare(DATA, GRAPHS[:4], metrics=[*DEFAULT_METRICS, ends], replicates=2)
    assert len(report.rows) == 1 + len(ld.compare(DATA, GRAPHS[:4], replicates=2).rows)
    assert report["ends"].generated.value == 1.0
    assert "ends" in str(report).splitlines()[-1]


def test_codes_of_another_schema_are_compared_by_their_words():
    zabc = [chain("z", "z"), *GRAPHS]
    other = ld.GraphDataset.build("other", "flow", {"train": zabc, "test": GRAPHS})
    assert other.schema.attributes != DATA.schema.attributes
    report = ld.compare(other, other, DATA, replicates=2)
    assert report["attribute:kind"].generated.value == pytest.approx(
        ld.compare(other, other, GRAPHS[:16], replicates=2)["attribute:kind"].generated.value
    )


def test_codes_of_bare_graphs_are_compared_as_words_of_their_own():
    dags = DATA.graphs["train"]
    assert ld.compare(dags, dags, dags, replicates=2)["x"].generated.value == 0.0


SOUND = job((compute(1), compute(2, 1)))
BROKEN = job((compute(1, 7),))


def rules(thing: object) -> set[str]:
    return {finding.rule.id for finding in ld.validate(thing)}


def test_workloads_traces_and_paths_are_checked(tmp_path):
    ld.write(SOUND, tmp_path / "run")
    for fine in (SOUND, SOUND.traces[0], tmp_path / "run"):
        assert ld.validate(fine) == ()
    broken = rules(BROKEN)
    assert broken
    assert rules(BROKEN.traces[0]) == broken
    assert rules([SOUND, BROKEN]) == broken


def test_graphs_are_checked_whether_attributed_or_coded(tmp_path):
    graph = chain("g", "abc")
    assert ld.validate(graph) == ()
    twice = replace(graph, edge_index_2E=graph.edge_index_2E[:, [0, 0]])
    assert "no-double-edge" in rules(twice)
    dag = ld.DAG.build(torch.zeros((2, 1), dtype=torch.int64), torch.tensor([[0, 1], [1, 0]]))
    assert "acyclic" in rules(dag)


def test_samples_are_checked_as_what_they_become(tmp_path):
    jobs = ld.sample(job_checkpoint(tmp_path / "jobs"), num=2, max_nodes=10, best_of=2)
    assert not any(f.rule.severity.value == "error" for f in ld.validate(jobs))
    chains = ld.validate(ld.sample(chain_checkpoint(tmp_path / "chains"), num=2, max_nodes=6))
    assert all(finding.sampled and "sample-0000" in finding.where for finding in chains)


CONFIG = {
    "model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": 100,
    "n_positions": 32,
}  # fmt: skip


def nodes(workload: Workload) -> list[int]:
    return [trace.num_nodes for trace in workload.traces]


def operations(workload: Workload) -> int:
    return sum(int(trace.integers("num_ops")[0].sum()) for trace in workload.traces)


def test_a_shape_makes_the_traces_of_its_room():
    settings = {"tensor": 2, "data": 2, "batch": 4, "sequence": 16}
    ours, theirs = ld.workload(TINY, **settings), transformer_job(TINY, **settings).workload()
    assert ours.num_ranks == 4
    assert nodes(ours) == nodes(theirs)
    assert ours.groups == theirs.groups


def test_a_shape_of_a_recommender_makes_the_traces_of_its_room():
    ours, theirs = ld.workload(TWO, data=2), recommender_job(TWO, data=2).workload()
    assert ours.num_ranks == 2
    assert nodes(ours) == nodes(theirs)


def test_every_recommender_has_a_name_that_no_transformer_has():
    assert RECOMMENDERS
    assert not set(RECOMMENDERS) & set(PRESETS)
    name = next(iter(RECOMMENDERS))
    assert nodes(ld.workload(name, data=2)) == nodes(ld.workload(RECOMMENDERS[name], data=2))


def test_a_config_of_a_model_is_a_model(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG))
    one, two = ld.workload(path, sequence=16), ld.workload(str(path), sequence=16)
    assert nodes(one) == nodes(two)
    assert one.num_ranks == 1


@pytest.mark.parametrize("degree", ["tensor", "data", "pipeline"])
def test_ranks_are_the_product_of_the_degrees(degree):
    assert ld.workload(TINY, **{degree: 2}, sequence=16).num_ranks == 2
    assert ld.workload(TINY, sequence=16).num_ranks == 1


def test_work_grows_with_the_batch_and_one_rank_does_not_communicate():
    one, two = (ld.workload(TINY, batch=batch, sequence=16) for batch in (1, 2))
    assert operations(two) > operations(one) > 0
    assert not (one.traces[0].type_N >= NodeType.COMM_SEND).any()


def test_what_it_makes_is_written_and_read_back_without_an_error(tmp_path):
    made = ld.workload(TINY, tensor=2, sequence=16)
    ld.write_workload(made, tmp_path / "w")
    again = ld.read(tmp_path / "w")
    assert nodes(again) == nodes(made)
    assert again.groups == made.groups
    assert not has_errors(ld.validate(again))


@pytest.mark.parametrize(
    ("name", "settings", "told"),
    [
        ("gpt-2", {}, "gpt2"),
        (TINY, {"tensr": 2}, "tensr"),
        (TINY, {"tensor": 3, "sequence": 16}, "tiny"),
        (TWO, {"tensr": 2}, "tensr"),
        ("absent/config.json", {}, "absent"),
    ],
)
def test_what_cannot_be_made_is_a_sentence_that_names_it(name, settings, told):
    with pytest.raises(LayerdagError, match=told) as caught:
        ld.workload(name, **settings)
    assert str(caught.value).endswith((".", "?"))


ALONE = job((compute(1), collective(2, 1)))
PAIR = job(*[(compute(1), collective(2, 1))] * 2)


@pytest.fixture
def sampled() -> GeneratedGraph:
    data = GraphDataset.build("toy", "flow", {"train": [chain("g", "aba"), chain("h", "ab")]})
    return GeneratedGraph("sample", 3, data.graphs["train"][0], False, data.schema)


@pytest.mark.parametrize("name", ["g.graphml", "g.json", "g.dot", "g.wf.json"])
def test_each_format_of_graphs_is_read_back(tmp_path, name):
    ld.write(chain("g", "abc"), tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    back = ld.read(tmp_path / name)
    assert back.categories["kind"] == ["a", "b", "c"]
    assert back.edge_index_2E.tolist() == [[0, 1], [1, 2]]


@pytest.mark.parametrize("name", ["s.graphml", "s.json", "s.dot", "s.wf.json"])
def test_a_sample_is_written_as_its_graph(tmp_path, name, sampled):
    ld.write(sampled, tmp_path / name)
    ld.write(sampled.graph, tmp_path / f"own-{name}")
    assert (tmp_path / name).read_bytes() == (tmp_path / f"own-{name}").read_bytes()


def test_json_is_our_own_and_wf_json_that_of_workflows(tmp_path):
    ld.write(chain("g", "ab"), tmp_path / "g.json")
    ld.write(chain("g", "ab"), tmp_path / "g.wf.json")
    assert json.loads((tmp_path / "g.json").read_text())["format"] == "layerdag-graph-1"
    assert json.loads((tmp_path / "g.wf.json").read_text())["schemaVersion"] == "1.5"


def test_a_prefix_makes_a_file_for_each_rank(tmp_path):
    ld.write(PAIR, str(tmp_path / "runs" / "job"))
    names = {path.name for path in (tmp_path / "runs").iterdir()}
    assert {"job.0.et", "job.1.et"} <= names
    assert ld.read(tmp_path / "runs" / "job").num_ranks == 2


def test_one_rank_is_one_trace(tmp_path):
    ld.write(ALONE, tmp_path / "one.et")
    assert read_trace(tmp_path / "one.et").id_N.tolist() == [1, 2]
    ld.write(ALONE.traces[0], tmp_path / "trace.et")
    assert (tmp_path / "trace.et").read_bytes() == (tmp_path / "one.et").read_bytes()
    with pytest.raises(UsageError, match=r"a trace is written as \.et"):
        ld.write(ALONE.traces[0], tmp_path / "trace.json")


def test_a_workload_named_as_a_workflow_is_our_own_json(tmp_path):
    """Traces are no workflow; the last suffix counts."""
    ld.write(PAIR, tmp_path / "w.wf.json")
    assert ld.read(tmp_path / "w.wf.json").num_ranks == 2


@pytest.mark.parametrize("name", ["job.et", "job.graphml"])
def test_the_prefix_to_name_is_told(tmp_path, name):
    with pytest.raises(UsageError) as caught:
        ld.write(PAIR, tmp_path / name)
    assert str(caught.value) == (
        f"{tmp_path / name}: 2 ranks need a file each; name the prefix {tmp_path / 'job'}, or a "
        ".json file."
    )


@pytest.mark.parametrize("name", ["g", "g.txt", "g.et", "g.GRAPHML"])
def test_a_graph_needs_a_suffix_that_is_known(tmp_path, name):
    with pytest.raises(
        UsageError, match=r"written as \.graphml, \.dot, \.json, \.wf\.json or \.pro"
    ):
        ld.write(chain("g", "ab"), tmp_path / name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["g.graphml", "g.json", "t.et"])
def test_a_folder_that_is_a_file_is_no_place(tmp_path, name):
    (tmp_path / "file").write_text("mine")
    thing = ALONE if name == "t.et" else chain("g", "ab")
    with pytest.raises(OSError, match="file"):
        ld.write(thing, tmp_path / "file" / name)
    assert (tmp_path / "file").read_text() == "mine"


def test_a_graph_of_others_may_list_its_nodes_in_any_order(tmp_path):
    (tmp_path / "g.dot").write_text("digraph { a; b; c; a -> c -> b }")
    graph = ld.read(tmp_path / "g.dot")
    assert ld.validate(graph) == ()
    assert [found.rule.id for found in graph_findings(graph, in_layer_order=True)] == [
        "layer-consistent"
    ]
