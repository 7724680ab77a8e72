"""Samples of models that learned jobs with rolled blocks."""

from dataclasses import replace

import pytest
from layered_jobs import layered_job

from layerdag.codec.blocks import BLOCK, as_one_copy, copies_of
from layerdag.datasets import GraphDataset
from layerdag.errors import UsageError, VocabularyError
from layerdag.graph import GraphStatistics
from layerdag.models import DAGModel, ModelSpec, build_model
from layerdag.sampling import GeneratedGraph, GenerationSettings, generate
from layerdag.sampling._repeats import conditions_for_model, unrolled_sizes, with_blocks

COUNTS = [1, 2, 3, 4] * 6


@pytest.fixture(scope="module")
def data() -> GraphDataset:
    jobs = [layered_job(count, 8 + i, label=0.1 * count) for i, count in enumerate(COUNTS)]
    return GraphDataset.build("jobs", "trace", {"train": jobs}, num_bins=2, blocks="rolled")


@pytest.fixture(scope="module")
def statistics(data: GraphDataset) -> GraphStatistics:
    return GraphStatistics.measure(data.graphs["train"], data.schema.sizes())


@pytest.fixture(scope="module")
def model(data: GraphDataset, statistics: GraphStatistics) -> DAGModel:
    """Return an untrained model."""
    spec = ModelSpec("fast", data.schema.sizes(), statistics, {"width": 32, "depth": 1})
    return build_model(spec, seed=1).eval()


def sampled(model: DAGModel, data: GraphDataset, **conditions: float) -> list[GeneratedGraph]:
    wanted = GenerationSettings(4, 3, conditions, best_of=2, guidance=1.0, max_nodes=60)
    return list(generate(model, data.schema, wanted))


def test_blocks_are_copied_as_often_as_requested(model: DAGModel, data: GraphDataset) -> None:
    found = sampled(model, data, repeats=3.0)
    for sample in found:
        assert sample.dag.conditions["repeats"] == 3.0
        assert sample.graph.num_nodes == copies_of(data.schema.decode(sample.dag)).sum()
        assert BLOCK not in sample.graph.categories
    assert all(sample.graph.num_nodes > sample.dag.num_nodes for sample in found)


def test_two_depths_that_were_not_learned_differ_in_the_copies_alone(
    model: DAGModel, data: GraphDataset
) -> None:
    few, many = (sampled(model, data, repeats=count) for count in (20.0, 40.0))
    for small, large in zip(few, many, strict=True):
        assert small.dag.x_NA.tolist() == large.dag.x_NA.tolist()
        assert small.dag.edge_index_2E.tolist() == large.dag.edge_index_2E.tolist()
        blocks = int((copies_of(data.schema.decode(small.dag)) == 20).sum())
        assert large.graph.num_nodes == small.graph.num_nodes + 20 * blocks


def test_a_depth_that_was_not_learned_has_no_label(model: DAGModel, data: GraphDataset) -> None:
    assert all("label" in sample.dag.conditions for sample in sampled(model, data))
    assert not any("label" in sample.dag.conditions for sample in sampled(model, data, repeats=40))


def test_jobs_are_traces_of_all_copies(model: DAGModel, data: GraphDataset) -> None:
    for sample in sampled(model, data, repeats=5.0):
        assert sample.workload(1).traces[0].num_nodes == sample.graph.num_nodes


def test_the_model_is_told_a_depth_that_training_jobs_have(data: GraphDataset) -> None:
    seeds = range(20)
    for wanted in (40.0, 4.0):
        rows = conditions_for_model(data.schema, {"repeats": wanted}, seeds)
        assert all(2 <= round(float(row["repeats"])) <= 4 for row in rows)
    one = conditions_for_model(data.schema, {"repeats": 1.0}, seeds)
    assert {round(float(row["repeats"])) for row in one} == {1}


def test_what_the_model_is_told_depends_on_the_seed_alone(data: GraphDataset) -> None:
    wanted = {"repeats": 40.0}
    (alone,) = conditions_for_model(data.schema, wanted, [7])
    assert conditions_for_model(data.schema, wanted, range(10))[7] == alone


def test_repeats_must_be_a_number(data: GraphDataset) -> None:
    with pytest.raises(VocabularyError, match="repeats"):
        conditions_for_model(data.schema, {"repeats": "many"}, [0])


def test_the_estimate_of_sizes_counts_copies(
    data: GraphDataset, statistics: GraphStatistics
) -> None:
    row = {"num_nodes": 8.0}
    (small,) = unrolled_sizes(data.schema, statistics, [row], {"repeats": 1.0})
    (large,) = unrolled_sizes(data.schema, statistics, [row], {"repeats": 11.0})
    assert small["num_nodes"] == 8.0
    whole = sum(copies_of(layered_job(count)).sum() for count in COUNTS)
    assert 11 * 8 / 2 < large["num_nodes"] < 11 * 8 < whole


def test_a_prefix_is_refused(model: DAGModel, data: GraphDataset) -> None:
    wanted = GenerationSettings(1, prefix=layered_job(2))
    with pytest.raises(UsageError, match="blocks=whole"):
        list(generate(model, data.schema, wanted))


def test_a_sample_without_blocks_is_sampled_again(data: GraphDataset) -> None:
    plain = flat(data)
    tried: list[int] = []

    def again(seed: int) -> GeneratedGraph:
        tried.append(seed)
        return plain if len(tried) < 3 else replace(rolled_sample(data), seed=seed)

    found = with_blocks(plain, {"repeats": 4.0}, again)
    assert len(set(tried)) == 3
    assert (found.name, found.seed) == (plain.name, plain.seed)
    assert found.dag is not plain.dag
    assert with_blocks(plain, {"repeats": 1.0}, again) is plain
    assert with_blocks(plain, {}, again) is plain
    assert len(tried) == 3


def test_a_sample_is_given_up_after_a_few_attempts(data: GraphDataset) -> None:
    plain = flat(data)
    assert with_blocks(plain, {"repeats": 4.0}, lambda seed: plain).dag is plain.dag


def flat(data: GraphDataset) -> GeneratedGraph:
    """Return a sample in which nothing is in a block."""
    dag = data.schema.encode(as_one_copy(layered_job(2)))
    return GeneratedGraph("sample-00005", 5, dag, truncated=False, schema=data.schema)


def rolled_sample(data: GraphDataset) -> GeneratedGraph:
    """Return a sample with blocks."""
    dag = data.schema.encode(layered_job(3))
    return GeneratedGraph("other", 0, dag, truncated=False, schema=data.schema)
