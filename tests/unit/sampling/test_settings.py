"""What is left to the model is filled in by the model and the kind of its graphs."""

import pytest

from layerdag.errors import UsageError
from layerdag.sampling.generation import generate
from layerdag.sampling.settings import GenerationSettings
from layerdag.training.checkpoint import LoadedCheckpoint, checkpoint_schema


def settled(checkpoint: LoadedCheckpoint, **settings: object) -> GenerationSettings:
    schema = checkpoint_schema(checkpoint)
    return GenerationSettings(**settings).resolved(checkpoint.model, schema)


def test_jobs_are_sharper_than_flow_graphs_unless_asked_otherwise(trace, flow):
    assert (settled(trace).guidance, settled(trace).temperature) == (1.0, 0.7)
    assert (settled(flow).guidance, settled(flow).temperature) == (1.5, 1.0)
    asked = settled(trace, guidance=2.0, temperature=1.0)
    assert (asked.guidance, asked.temperature) == (2.0, 1.0)


def test_a_model_that_has_no_temperature_is_sampled_without(reference):
    model, schema = reference.model, checkpoint_schema(reference)
    assert GenerationSettings().resolved(model, schema).temperature == 1.0
    with pytest.raises(UsageError, match=r"temperature=0\.5 cannot be done; leave it out"):
        GenerationSettings(temperature=0.5).resolved(model, schema)


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("inf"), float("nan")])
def test_a_temperature_that_is_none_is_refused(flow, temperature):
    with pytest.raises(UsageError, match="'temperature' must be above 0"):
        settled(flow, temperature=temperature)


def test_without_temperature_every_seed_gives_the_likeliest_graph(flow):
    cold = GenerationSettings(
        num=4, temperature=1e-6, best_of=1, guidance=1.0, max_nodes=20, conditions={"label": 2.0}
    )
    graphs = list(generate(flow.model, checkpoint_schema(flow), cold))
    assert len({str(graph.dag.x_NA.tolist()) for graph in graphs}) == 1
    assert len({str(graph.dag.edge_index_2E.tolist()) for graph in graphs}) == 1


def test_a_model_may_say_how_many_graphs_it_draws_side_by_side(flow, monkeypatch):
    assert settled(flow).batch_size is None
    monkeypatch.setattr(type(flow.model), "default_batch_size", 1024)
    assert settled(flow).batch_size == 1024
    assert settled(flow, batch_size=7).batch_size == 7


@pytest.mark.parametrize("name", ["best_of", "redraws"])
def test_more_candidates_than_memory_holds_are_refused(name):
    with pytest.raises(UsageError, match=f"'{name}' must be at most 10,000"):
        GenerationSettings(**{name: 10**20})
