"""Layers between given ones: what is kept, what is drawn, and what the choice weighs."""

from collections.abc import Callable

import pytest
import torch
from small_models import SIZES, request, small_dags, small_model

from layerdag.dag.dag import DAGBatch
from layerdag.dag.partial import Gap, Prefix, Replacement
from layerdag.dag.statistics import GraphStatistics
from layerdag.errors import UsageError
from layerdag.models.base import SampleRequest, SampleResult
from layerdag.models.posterior import GapFilling, LogLikelihood

DAGS = small_dags(8)


@pytest.fixture(autouse=True)
def _few_ways(monkeypatch) -> None:
    monkeypatch.setattr("layerdag.models.posterior.WAYS", 3)


def small_gap() -> Gap:
    return Gap.from_dag(DAGS[2], 2, 2)


def filled(gap: Gap, count: int = 2, predict_out_degree: bool = False, **changes) -> SampleResult:
    model = small_model(DAGS, predict_out_degree=predict_out_degree)
    plain = {"max_nodes": 200, "best_of": 2}
    return model.sample(request(count, prefix=gap.prefix, gap=gap, **(plain | changes)))


@pytest.mark.parametrize(("best_of", "predict_out_degree"), [(1, False), (2, True)])
def test_first_and_last_layers_are_kept(best_of, predict_out_degree):
    gap = small_gap()
    result = filled(gap, predict_out_degree=predict_out_degree, best_of=best_of)
    assert not any(result.truncated)
    for dag in result.dags:
        dag.check()
        assert dag.num_layers == gap.dag.num_layers
        assert torch.equal(dag.x_NA[: gap.start], gap.dag.x_NA[: gap.start])
        assert torch.equal(dag.x_NA[-gap.num_later :], gap.dag.x_NA[gap.end :])
        later_N = dag.layer_N >= gap.end_layer
        assert torch.equal(dag.layer_N[later_N], gap.dag.layer_N[gap.end :])
    new = {tuple(dag.x_NA[gap.start : -gap.num_later].flatten().tolist()) for dag in result.dags}
    assert len(new) == 2


def test_a_graph_depends_on_its_own_seed_alone():
    gap = small_gap()
    together, alone = filled(gap).dags, filled(gap, 1, seeds=(101,)).dags
    assert torch.equal(alone[0].x_NA, together[1].x_NA)
    assert torch.equal(alone[0].edge_index_2E, together[1].edge_index_2E)


def test_a_limit_that_leaves_no_room_for_new_layers_is_refused():
    gap = small_gap()
    with pytest.raises(UsageError, match="nothing is left to complete; raise max_nodes"):
        filled(gap, max_nodes=gap.start + gap.num_later)
    with pytest.raises(UsageError, match="none of the candidates drawn reached the last new layer"):
        filled(gap, max_nodes=gap.start + gap.num_later + 1)


def filling(gap: Gap, log_likelihood: LogLikelihood) -> GapFilling:
    return GapFilling(gap, Replacement(GraphStatistics.measure(DAGS, SIZES)), log_likelihood)


def own_layers(gap: Gap) -> Callable[[SampleRequest], SampleResult]:

    def sample(asked: SampleRequest) -> SampleResult:
        assert asked.min_layers == asked.max_layers == gap.end_layer
        assert asked.max_nodes == 200 - gap.num_later
        return SampleResult((Prefix.from_dag(gap.dag, gap.end_layer).dag,), (True,))

    return sample


def test_the_weight_is_the_likelihood_of_what_follows():
    gap = small_gap()
    found = filling(gap, lambda batch, _: -2.0 * batch.num_nodes).sample(
        request(1, gap=gap, max_nodes=200), own_layers(gap)
    )
    assert found.log_weights == pytest.approx((-2.0 * gap.num_later,))
    assert found.truncated == (False,)


def test_the_likeliest_way_to_connect_is_chosen(monkeypatch):
    monkeypatch.setattr("layerdag.models.posterior.SPREAD", 50.0)
    gap = small_gap()

    def chosen(sign: float) -> int:
        def log_likelihood(batch: DAGBatch, _: torch.Tensor | None) -> float:
            return 1000.0 * sign * int(batch.edge_index_2E[0].sum())

        asked = request(1, gap=gap, max_nodes=200)
        (dag,) = filling(gap, log_likelihood).sample(asked, own_layers(gap)).dags
        return int(dag.edge_index_2E[0].sum())

    assert chosen(1.0) > chosen(-1.0)
