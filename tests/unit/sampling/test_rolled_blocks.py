"""Samples of models that learned jobs with rolled blocks."""

import pytest
from layered_jobs import layered_job

from layerdag.codec.blocks import BLOCK, copies_of
from layerdag.datasets import GraphDataset
from layerdag.errors import UsageError
from layerdag.graph import GraphStatistics
from layerdag.models import DAGModel, ModelSpec, build_model
from layerdag.sampling import GeneratedGraph, GenerationSettings, generate

COUNTS = [2, 3, 4] * 6


@pytest.fixture(scope="module")
def data() -> GraphDataset:
    jobs = [layered_job(count, 8 + i, label=0.1 * count) for i, count in enumerate(COUNTS)]
    return GraphDataset.build("jobs", "trace", {"train": jobs}, num_bins=2, blocks="rolled")


@pytest.fixture(scope="module")
def model(data: GraphDataset) -> DAGModel:
    """Return an untrained model."""
    sizes = data.schema.sizes()
    statistics = GraphStatistics.measure(data.graphs["train"], sizes)
    spec = ModelSpec("fast", sizes, statistics, {"width": 32, "depth": 1})
    return build_model(spec, seed=1).eval()


def sampled(
    model: DAGModel, data: GraphDataset, num: int = 4, **conditions: float
) -> list[GeneratedGraph]:
    wanted = GenerationSettings(num, 3, conditions, best_of=2, guidance=1.0, max_nodes=60)
    return list(generate(model, data.schema, wanted))


def test_blocks_are_copied_as_often_as_requested(model: DAGModel, data: GraphDataset) -> None:
    for sample in sampled(model, data, repeats=3.0):
        small = data.schema.decode(sample.dag)
        assert sample.graph.num_nodes == copies_of(small).sum()
        assert BLOCK not in sample.graph.categories
    assert any(s.graph.num_nodes > s.dag.num_nodes for s in sampled(model, data, repeats=3.0))


def test_more_copies_than_learned_change_nothing_but_their_number(
    model: DAGModel, data: GraphDataset
) -> None:
    """The model is asked for as many as it learned, so that its samples are those it can make."""
    known = sampled(model, data, repeats=4.0, num_nodes=8.0, num_layers=6.0)
    deep = sampled(model, data, repeats=40.0, num_nodes=8.0, num_layers=6.0)
    for few, many in zip(known, deep, strict=True):
        assert few.dag.x_NA[:, 0].tolist() == many.dag.x_NA[:, 0].tolist()
        assert few.dag.edge_index_2E.tolist() == many.dag.edge_index_2E.tolist()
        blocks = int((copies_of(data.schema.decode(few.dag)) == 4).sum())
        assert many.graph.num_nodes == few.graph.num_nodes + 36 * blocks


def test_a_depth_that_was_not_learned_has_no_label(model: DAGModel, data: GraphDataset) -> None:
    assert all("label" in s.dag.conditions for s in sampled(model, data, repeats=3.0))
    assert not any("label" in s.dag.conditions for s in sampled(model, data, repeats=40.0))


def test_jobs_are_traces_of_all_copies(model: DAGModel, data: GraphDataset) -> None:
    for sample in sampled(model, data, repeats=5.0):
        assert sample.workload(1).traces[0].num_nodes == sample.graph.num_nodes


def test_a_prefix_is_refused(model: DAGModel, data: GraphDataset) -> None:
    wanted = GenerationSettings(1, prefix=layered_job(2))
    with pytest.raises(UsageError, match="blocks=whole"):
        list(generate(model, data.schema, wanted))
