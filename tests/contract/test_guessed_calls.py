"""Calls that people guess from other libraries work, or say which call is meant."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jaxtyping
import networkx as nx
import pytest
import torch
from raw_graphs import chain
from tiny_checkpoints import chain_checkpoint

import layerdag as ld
from layerdag.errors import UsageError

FAST = {"width": 32, "depth": 1}
FEW = {"max_nodes": 6, "best_of": 1}


def numbered(i: int) -> nx.DiGraph:
    """Return a path of networkx whose nodes have a kind."""
    graph = nx.DiGraph(name=f"n{i}")
    for node, letter in enumerate("abcab"[: 2 + i % 4]):
        graph.add_node(node, kind=letter)
    nx.add_path(graph, range(2 + i % 4))
    return graph


@pytest.fixture(scope="module")
def have(tmp_path_factory) -> SimpleNamespace:
    """Return what calls are made on: tiny data, an untrained generator, its samples, a job."""
    folder = tmp_path_factory.mktemp("guesses")
    raws = [chain(f"g{i}", "abcab"[: 2 + i % 4], label=1.0 + i) for i in range(24)]
    data = ld.GraphDataset(raws, split=(0.5, 0.25, 0.25))
    generator = ld.Generator.from_checkpoint(chain_checkpoint(folder))
    samples = generator.sample(4, **FEW)
    labels = [1.0 + graph.num_nodes for graph in raws]
    job = ld.read_workload(Path(__file__).parents[2] / "data/examples/ddp_mlp")
    return SimpleNamespace(
        raws=raws, data=data, g=generator, samples=samples, s=samples[0], w=job, y=labels,
        dags=list(data.train), nx=[numbered(i) for i in range(12)], pyg=[d.to_pyg() for d in data],
        r=ld.simulate(job), report=ld.compare(data, samples, replicates=2),
        surrogate=ld.Surrogate("boosting", trees=20).fit(data),
    )  # fmt: skip


def corpus(**options: Any) -> Any:
    return ld.load_dataset("corpus", max_nodes=60, families=("mlp",), **options)


def without_type_checks(call: Callable[[], object]) -> object:
    """Call as a user's program does, in which annotations are not checked."""
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        return call()
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)


Call = Callable[[SimpleNamespace, Path], object]

WORKING: dict[str, Call] = {
    'load_dataset("corpus", split="train")': lambda h, t: len(corpus(split="train")),
    "len(data)": lambda h, t: len(h.data),
    'data["train"]': lambda h, t: h.data["train"][0],
    "data[0]": lambda h, t: h.data[0].edge_index,
    "data.train": lambda h, t: (len(h.data.train), h.data.val[0], h.data.test),
    "for g in data": lambda h, t: [g.num_nodes for g in h.data],
    "data.train.to_pyg": lambda h, t: h.data.train.to_pyg()[0].x,
    "data.train.to_networkx": lambda h, t: h.data.train.to_networkx(),
    "data.train.to_pandas": lambda h, t: h.data.train.to_pandas(),
    "GraphDataset(list)": lambda h, t: ld.GraphDataset(h.nx),
    "GraphDataset(list of DAG)": lambda h, t: ld.GraphDataset(h.dags, targets=[1.0] * len(h.dags)),
    "GraphDataset(list of PyG)": lambda h, t: ld.GraphDataset(h.pyg),
    "GraphDataset(list of workloads)": lambda h, t: ld.GraphDataset([h.w, h.w]),
    "load_dataset(list)": lambda h, t: ld.load_dataset(h.raws),
    "DAG(x, edge_index)": lambda h, t: ld.DAG(torch.zeros(2, 1, dtype=torch.int64), [[0], [1]]),
    "DAG.from_pyg(d)": lambda h, t: ld.DAG.from_pyg(h.pyg[0]),
    'Generator.from_pretrained("corpus")': lambda h, t: ld.Generator.from_pretrained("corpus"),
    "ld.models.FastLayerDAG": lambda h, t: ld.models.FastLayerDAG,
    'load_checkpoint("pretrained")': lambda h, t: ld.load_checkpoint("pretrained").schema,
    'load_checkpoint("corpus")': lambda h, t: ld.load_checkpoint("corpus").path,
    "train(data, max_steps=2)": lambda h, t: ld.train(h.data, max_steps=2, **FAST),
    "train(data, seed=1, settings=s)": lambda h, t: ld.train(
        h.data, seed=1, settings=ld.TrainSettings(max_steps=1), **FAST
    ),
    "train(list)": lambda h, t: ld.train(h.nx, max_steps=1, **FAST).sample(1, **FEW),
    "train(list of DAG)": lambda h, t: ld.train(h.dags, max_steps=1, **FAST),
    "Generator().fit(data)": lambda h, t: ld.Generator("fast", **FAST).fit(h.data, max_steps=1),
    "g.sample(2)": lambda h, t: h.g.sample(2, **FEW),
    "g.save(path)": lambda h, t: ld.load_checkpoint(h.g.save(t / "saved")),
    "g.generate(2)": lambda h, t: list(h.g.generate(2, **FEW)),
    "sample(g, 2)": lambda h, t: ld.sample(h.g, 2, **FEW),
    "generate(g, 2)": lambda h, t: list(ld.generate(h.g, 2, **FEW)),
    "s.to_networkx()": lambda h, t: h.s.to_networkx().nodes[0]["kind"],
    "s.to_pyg()": lambda h, t: h.s.to_pyg().x,
    "s.edge_index": lambda h, t: h.s.edge_index,
    "s.save(path)": lambda h, t: ld.read(h.s.save(t / "s.graphml")),
    "s.dag.edge_index": lambda h, t: h.s.dag.edge_index,
    "s.graph.edges": lambda h, t: len(h.s.graph.edges),
    "write(list, folder)": lambda h, t: list(ld.iter_samples(ld.write(h.samples, t / "all"))),
    "write(list of networkx, folder)": lambda h, t: ld.load_dataset(ld.write(h.nx, t / "nx")),
    'write(s, "x.graphml")': lambda h, t: ld.write(h.s, t / "x.graphml"),
    "write_samples(list, folder)": lambda h, t: ld.write_samples(h.samples, t / "samples"),
    "write_samples(g, folder)": lambda h, t: ld.write_samples(h.g, t / "drawn", num=2, **FEW),
    'write(networkx, "x.graphml")': lambda h, t: ld.read(ld.write(h.nx[1], t / "x.graphml")),
    'write(dag, "x.graphml")': lambda h, t: ld.write(h.dags[0], t / "x.graphml"),
    "validate(networkx)": lambda h, t: ld.validate(h.nx[0]),
    "validate(pyg)": lambda h, t: ld.validate(h.pyg),
    "compare(list, list, list of DAG)": lambda h, t: ld.compare(
        h.raws, h.samples, h.dags, replicates=2
    ),
    "compare(data, [networkx])": lambda h, t: ld.compare(h.data, h.nx, replicates=2),
    "compare(list, list)": lambda h, t: ld.compare(h.nx, h.raws, replicates=2),
    'compare(data, s)["degree"]': lambda h, t: h.report["degree"].ratio,
    "report.score": lambda h, t: float(h.report.score),
    "report.to_pandas()": lambda h, t: h.report.to_pandas(),
    "report.to_dict()": lambda h, t: h.report.to_dict(),
    "report.save(path)": lambda h, t: h.report.save(t / "report.json"),
    "audit(s, data)": lambda h, t: ld.audit(h.samples, h.data),
    "simulate(w)": lambda h, t: ld.simulate(h.w).makespan_s,
    'simulate(w, "small")': lambda h, t: ld.simulate(h.w, "small"),
    'Cluster("small")': lambda h, t: ld.simulate(h.w, ld.Cluster("small")),
    'Cluster("small", num_ranks=8)': lambda h, t: ld.Cluster("small", num_ranks=8).num_ranks,
    "r.to_pandas()": lambda h, t: h.r.to_pandas(),
    "r.summary()": lambda h, t: h.r.summary(),
    "r.save_timeline(path)": lambda h, t: h.r.save_timeline(t / "timeline.json"),
    "w.to_pandas()": lambda h, t: h.w.to_pandas(),
    "w.traces[0].to_pandas()": lambda h, t: h.w.traces[0].to_pandas(),
    "write(w, prefix)": lambda h, t: ld.read_workload(ld.write(h.w, t / "job")),
    'Surrogate("boosting")': lambda h, t: ld.Surrogate("boosting"),
    'Surrogate(family="boosting")': lambda h, t: ld.Surrogate(family="boosting"),
    "Surrogate().fit(data)": lambda h, t: ld.Surrogate().fit(h.data).predict(h.data.test),
    "fit(graphs, y)": lambda h, t: ld.Surrogate().fit(h.raws, h.y).predict(h.raws[:2]),
    "score is a number": lambda h, t: isinstance(h.surrogate.score(h.data), float),
    "surrogate.save(path)": lambda h, t: ld.Surrogate.load(h.surrogate.save(t / "surrogate")),
}

REFUSED: dict[str, tuple[Call, str]] = {
    "GraphDataset.from_pyg(list)": (
        lambda h, t: ld.GraphDataset.from_pyg(h.pyg),
        r"use GraphDataset\(",
    ),
    "ld.LayerDAG.from_pretrained": (
        lambda h, t: ld.LayerDAG.from_pretrained("corpus"),
        r"Generator\.from_pretrained",
    ),
    "train(data, epochs=1)": (lambda h, t: ld.train(h.data, epochs=1), "max_steps"),
    "g.model.sample(2)": (
        lambda h, t: without_type_checks(lambda: h.g.model.sample(2)),
        r"generator\.sample\(num\)",
    ),
    "sample(g, n=2)": (lambda h, t: ld.sample(h.g, n=2), "use num"),
    "sample(g, num_samples=2)": (lambda h, t: ld.sample(h.g, num_samples=2), "use num"),
    'report["x"]': (lambda h, t: h.report["in_degre"], "Did you mean 'in_degree'"),
    "Cluster(num_gpus=8)": (
        lambda h, t: ld.Cluster(num_gpus=8),
        r'Cluster\("small", num_ranks=8\)',
    ),
    "r.makespan": (lambda h, t: h.r.makespan, "makespan_s"),
    "r.total_time": (lambda h, t: h.r.total_time, "makespan_s"),
    "r.timeline()": (lambda h, t: h.r.timeline(), "save_timeline"),
    "Surrogate.fit(data)": (
        lambda h, t: ld.Surrogate.fit(h.data, "boosting"),
        r'Surrogate\("boosting"\)\.fit\(data\)',
    ),
    "sample of an untrained generator": (lambda h, t: ld.Generator().sample(1), r"fit\(data\)"),
    "GraphDataset(folder)": (lambda h, t: ld.GraphDataset("folder"), "load_dataset"),
    "GraphDataset.from_folder(folder)": (
        lambda h, t: ld.GraphDataset.from_folder("folder"),
        r"use load_dataset\(",
    ),
    "w.save(prefix)": (lambda h, t: h.w.save(t / "job"), r"write\(workload, prefix\)"),
    "GraphDataset([1])": (lambda h, t: ld.GraphDataset([1]), "networkx"),
    'data["trian"]': (lambda h, t: h.data["trian"], "Did you mean 'train'"),
    "report.save(html)": (lambda h, t: h.report.save(t / "x.html"), r"\.json"),
}


@pytest.mark.parametrize("call", WORKING)
def test_a_guessed_call_works(call, have, tmp_path):
    if "to_pandas" in call:
        pytest.importorskip("pandas")
    assert WORKING[call](have, tmp_path) is not False


@pytest.mark.parametrize("call", REFUSED)
def test_a_wrong_call_names_the_right_one(call, have, tmp_path):
    make, words = REFUSED[call]
    with pytest.raises(UsageError, match=words):
        make(have, tmp_path)


def test_wrong_names_are_no_attributes(have):
    assert not hasattr(have.r, "makespan")
    assert not hasattr(ld, "LayerDAG")
    with pytest.raises(AttributeError):
        ld.no_such_name  # noqa: B018
    with pytest.raises(KeyError):
        have.report["nothing"]


def test_codes_of_a_list_of_dags_stay_what_they_are(have):
    again = ld.GraphDataset(have.dags, split={"train": range(len(have.dags))})
    assert [d.x.tolist() for d in again] == [d.x.tolist() for d in have.dags]


def test_networkx_and_back_is_the_same_graph(have):
    for graph, dag in zip(have.data.train.to_networkx(), have.data.train, strict=True):
        assert list(graph.edges) == [tuple(edge) for edge in dag.edge_index.T.tolist()]
    assert len(ld.GraphDataset(have.data.train.to_networkx())) == len(have.data.train)


def test_every_object_is_shown_in_a_few_short_lines(have):
    objects = [
        have.data, have.data.train, have.data[0], have.g, have.s, have.w, have.w.traces[0],
        have.r, have.report, have.surrogate, have.surrogate.fitted, have.raws[0],
        ld.Generator(), ld.Surrogate(), ld.Cluster("small"), ld.Cluster("small", num_ranks=8),
        have.data.schema, have.report.rows[0], have.report.rows[0].generated, have.g.checkpoint,
        ld.diff(have.w, have.w), ld.vun(have.data, [have.data[0]]),
    ]  # fmt: skip
    for thing in objects:
        lines = repr(thing).splitlines()
        assert len(lines) <= 12, thing
        assert max(map(len, lines)) <= 120, thing
