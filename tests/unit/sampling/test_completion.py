"""Samples that begin with the first layers of a given job or graph."""

import numpy as np
import pytest
from random_jobs import random_job
from raw_graphs import chain

from layerdag.codec.unfolding import unfold_sampled
from layerdag.dag.statistics import GraphStatistics
from layerdag.datasets.dataset import GraphDataset
from layerdag.errors import DataError, UsageError, VocabularyError
from layerdag.graph.attributed_graph import AttributedGraph
from layerdag.models.base import DAGModel, ModelSpec, build_model
from layerdag.sampling.completion import (
    GivenLayers,
)
from layerdag.sampling.generation import generate
from layerdag.sampling.settings import GenerationSettings


def model_of(data: GraphDataset) -> DAGModel:
    sizes = data.schema.sizes()
    statistics = GraphStatistics.measure(data.graphs["train"], sizes)
    spec = ModelSpec("fast", sizes, statistics, {"width": 32, "depth": 1})
    return build_model(spec, seed=1).eval()


@pytest.fixture(scope="module")
def jobs() -> GraphDataset:
    raw = [random_job(seed, 2, layers=6) for seed in range(6)]
    return GraphDataset.build("jobs", "trace", {"train": raw}, num_bins=2)


@pytest.fixture(scope="module")
def chains() -> GraphDataset:
    graphs = [
        chain(f"g{i}", "abcab"[: 2 + i % 4], label=1.0 + i, family="ab"[i % 2]) for i in range(12)
    ]
    return GraphDataset.build("chains", "flow", {"train": graphs})


def words(graph: AttributedGraph, count: int) -> list[str]:
    """Return the kinds of the first nodes."""
    order_N = np.argsort(graph.layer_N, kind="stable")[:count]
    return [graph.categories["kind"][node] for node in order_N]


def completed(data: GraphDataset, **settings: object) -> list:
    plain = {"num": 3, "seed": 5, "best_of": 2, "guidance": 1.0, "max_nodes": 24}
    wanted = GenerationSettings(**(plain | settings))
    return list(generate(model_of(data), data.schema, wanted))


def test_graphs_begin_with_the_given_nodes(chains):
    given = chain("mine", "abca")
    for sample in completed(chains, prefix=given, prefix_layers=3):
        assert words(sample.graph, 3) == ["a", "b", "c"]


def test_half_of_the_layers_are_given_unless_said_otherwise(chains):
    assert (
        GivenLayers.from_graph(chain("mine", "abcab"), None, chains.schema).prefix.num_layers == 2
    )
    assert GivenLayers.from_graph(chain("mine", "a"), None, chains.schema).prefix.num_layers == 1


def test_given_nodes_of_a_job_keep_operators_and_numbers(jobs):
    workload = unfold_sampled(random_job(9, 2, layers=6), 2).workload
    given = GivenLayers.from_graph(workload, 3, jobs.schema)
    count = given.prefix.num_nodes
    for sample in completed(jobs, prefix=workload, prefix_layers=3, max_nodes=count + 12):
        order_N = np.argsort(sample.graph.layer_N, kind="stable")[:count]
        kind_N, given_N = (dag.x_NA[:count, 0] for dag in (sample.dag, given.prefix.dag))
        assert kind_N.tolist() == given_N.tolist()
        for name, value_N in given.numbers.first.items():
            np.testing.assert_allclose(sample.graph.numbers[name][order_N], value_N)


def test_what_the_graph_states_is_no_open_condition(chains):
    given = chain("mine", "abca", family="b", label=4.0, unknown_to_the_checkpoint=1.0)
    for sample in completed(chains, prefix=given):
        assert sample.dag.conditions["family"] == "b"
        assert sample.dag.conditions["label"] == 4.0
    for sample in completed(chains, prefix=given, conditions={"family": "a"}):
        assert sample.dag.conditions["family"] == "a"


def test_open_conditions_are_those_under_which_the_prefix_is_likely(monkeypatch):
    graphs = [chain(f"g{i}", ("aaaa", "bbbb")[i % 2], family="ab"[i % 2]) for i in range(12)]
    data = GraphDataset.build("two", "flow", {"train": graphs})
    given = GivenLayers.from_graph(chain("mine", "bbbb"), 2, data.schema)

    def log_likelihood(_self: GivenLayers, _model: DAGModel, row: dict) -> float:
        return 0.0 if row["family"] == "b" else -50.0

    monkeypatch.setattr(GivenLayers, "_log_likelihood", log_likelihood)
    rows = given.likely_conditions(model_of(data), {}, range(20))
    assert {row["family"] for row in rows} == {"b"}


def test_the_likelihood_of_a_prefix_is_that_of_its_nodes_alone(chains):
    model = model_of(chains)
    whole, part = chain("whole", "abcab"), chain("part", "ab")
    first = GivenLayers.from_graph(whole, 2, chains.schema)._log_likelihood(model, {"label": 2.0})
    alone = GivenLayers.from_graph(part, 2, chains.schema)._log_likelihood(model, {"label": 2.0})
    assert first == pytest.approx(alone)
    longer = GivenLayers.from_graph(whole, 3, chains.schema)._log_likelihood(model, {"label": 2.0})
    assert longer < first


def test_a_sample_depends_on_its_own_seed_alone(chains):
    together = completed(chains, prefix=chain("mine", "abca"))
    (last,) = completed(chains, prefix=chain("mine", "abca"), num=1, seed=7)
    assert last.dag.x_NA.tolist() == together[2].dag.x_NA.tolist()
    assert last.dag.conditions == together[2].dag.conditions


def test_a_graph_of_another_kind_is_refused(jobs, chains):
    with pytest.raises(DataError, match="mine: attribute 'op' is missing; this schema needs"):
        GivenLayers.from_graph(chain("mine", "ab"), 1, jobs.schema)
    workload = unfold_sampled(random_job(9, 2), 2).workload
    with pytest.raises(DataError, match="is a job's traces, and the checkpoint samples flow"):
        GivenLayers.from_graph(workload, 1, chains.schema)


def test_a_given_word_that_the_checkpoint_does_not_know_is_refused(chains):
    with pytest.raises(VocabularyError, match="mine: the checkpoint has no word for a given node"):
        GivenLayers.from_graph(chain("mine", "az"), 2, chains.schema)
    assert GivenLayers.from_graph(chain("mine", "az"), 1, chains.schema).prefix.num_nodes == 1


def test_layers_of_no_prefix_are_refused():
    with pytest.raises(UsageError, match="'prefix_layers' is of a 'prefix', and there is none"):
        GenerationSettings(prefix_layers=3)
    with pytest.raises(UsageError, match="'suffix_layers' is of a 'prefix', and there is none"):
        GenerationSettings(suffix_layers=3)


def test_layers_between_given_ones_are_drawn_anew(chains):
    middles = set()
    for sample in completed(
        chains, prefix=chain("mine", "abcab"), prefix_layers=1, suffix_layers=2
    ):
        order_N = np.argsort(sample.graph.layer_N, kind="stable")
        kinds = [sample.graph.categories["kind"][node] for node in order_N]
        assert kinds[0] == "a"
        assert kinds[-2:] == ["a", "b"]
        assert sample.graph.layer_N.max() == 4
        middles.add("".join(kinds[1:-2]))
    assert len(middles) > 1


def test_given_last_nodes_of_a_job_keep_operators_and_numbers(jobs):
    workload = unfold_sampled(random_job(9, 2, layers=6), 2).workload
    given = GivenLayers.from_graph(workload, 8, jobs.schema, 2)
    count = given.gap.num_later
    wanted = {"prefix": workload, "prefix_layers": 8, "suffix_layers": 2, "max_nodes": 100}
    for sample in completed(jobs, num=1, best_of=1, **wanted):
        assert sample.dag.x_NA[-count:, 0].tolist() == given.gap.dag.x_NA[-count:, 0].tolist()
        for name, value_N in given.numbers.last.items():
            np.testing.assert_allclose(sample.graph.numbers[name][-count:], value_N)
        assert sample.dag.conditions["world_size"] == "2"


def test_an_edited_sample_depends_on_its_own_seed_alone(chains):
    wanted = {"prefix": chain("mine", "abcab"), "prefix_layers": 1, "suffix_layers": 2}
    together = completed(chains, **wanted)
    (last,) = completed(chains, **wanted, num=1, seed=7)
    assert last.dag.x_NA.tolist() == together[2].dag.x_NA.tolist()
    assert last.dag.edge_index_2E.tolist() == together[2].dag.edge_index_2E.tolist()


def test_conditions_around_a_gap_are_those_of_the_whole_graph(chains):
    model = model_of(chains)
    given = GivenLayers.from_graph(chain("mine", "abcab"), 2, chains.schema, 1)
    whole = GivenLayers.from_graph(chain("mine", "abcab"), 5, chains.schema)
    row = {"label": 2.0}
    assert given._log_likelihood(model, row) == whole._log_likelihood(model, row)
