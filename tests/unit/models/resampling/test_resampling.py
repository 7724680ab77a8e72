"""Choosing among candidates follows their scores, and a graph depends on its own request alone."""

import math

import pytest
import torch
from torch import Tensor

from layerdag.errors import UsageError
from layerdag.graph import DAG, DAGBatch
from layerdag.models import SampleRequest, SampleResult, resample
from tests.unit.models.autoregressive.small_models import request, small_dags, small_model


def from_a_list(dags: list) -> "callable":
    """A sampler that hands out given graphs in turn."""

    def sample(asked: SampleRequest) -> SampleResult:
        drawn = tuple(dags[i % len(dags)] for i in range(len(asked.seeds)))
        return SampleResult(drawn, (False,) * len(drawn))

    return sample


def chain(size: int) -> DAG:
    """A path of nodes of one kind."""
    edges = torch.stack([torch.arange(size - 1), torch.arange(1, size)])
    return DAG.build(torch.zeros(size, 3, dtype=torch.int64), edges)


def nothing(batch: DAGBatch, asked: SampleRequest) -> Tensor:
    """A score that likes all graphs alike."""
    assert batch.num_graphs == len(asked.seeds) * asked.best_of
    return torch.zeros(batch.num_graphs)


def test_candidates_are_drawn_with_odds_of_their_scores():
    dags = small_dags(2)
    sizes = torch.tensor([dag.num_nodes for dag in dags])

    def score(batch: DAGBatch, _: SampleRequest) -> Tensor:
        """Odds of 3 to 1 for the first graph."""
        return torch.where(batch.node_ptr.diff() == sizes[0], 3.0, 1.0).log()

    chosen = resample(score, request(800, best_of=2), from_a_list(dags)).dags
    share = sum(dag is dags[0] for dag in chosen) / 800
    assert share == pytest.approx(0.75, abs=0.06)


def test_one_candidate_is_plain_sampling_and_several_contain_it():
    model = small_model(small_dags())
    plain = model.sample(request(3))
    assert [d.x_NA.tolist() for d in model.sample(request(3, best_of=1)).dags] == [
        d.x_NA.tolist() for d in plain.dags
    ]
    seen: list[tuple[int, ...]] = []

    def remember(asked: SampleRequest) -> SampleResult:
        seen.append(asked.seeds)
        return model.sample(asked)

    resample(nothing, request(3, best_of=2), remember)
    assert seen[0][::2] == request(3).seeds
    assert len(set(seen[0])) == 6


def test_a_graph_with_candidates_does_not_depend_on_its_batch():
    model = small_model(small_dags())
    together = model.sample(request(3, best_of=3)).dags
    alone = model.sample(request(1, best_of=3)).dags
    assert alone[0].x_NA.tolist() == together[0].x_NA.tolist()
    assert alone[0].edge_index_2E.tolist() == together[0].edge_index_2E.tolist()


def test_a_candidate_with_violations_is_not_chosen():
    dags = small_dags(8)
    model = small_model(dags)

    def mean_violations(best_of: int) -> float:
        found = model.sample(request(60, best_of=best_of)).dags
        none = (torch.full((60, 1), torch.nan), torch.full((60, 1), -1))
        batch = DAGBatch.of(found, *none)
        return float(model.constraints.violations(batch).mean())

    assert mean_violations(8) < 0.7 * mean_violations(1)


def test_violations_count_by_their_fraction_of_nodes_not_by_graph_size():
    model = small_model(small_dags(8))
    far_too_many = torch.stack([torch.zeros(40, dtype=torch.int64), torch.arange(1, 41)])
    broken = DAG.build(torch.zeros(41, 3, dtype=torch.int64), far_too_many)
    twice = DAG.build(
        torch.zeros(82, 3, dtype=torch.int64), torch.cat([far_too_many, far_too_many + 41], dim=1)
    )
    unknown = (torch.full((2, 1), torch.nan), torch.full((2, 1), -1))
    batch = DAGBatch.of([broken, twice.in_layer_order()], *unknown)
    violations = model.constraints.violations(batch)
    assert violations[0] > 0
    assert violations[1] == 2 * violations[0]
    score = model._score(batch, request(1, best_of=2))
    assert score[0] == pytest.approx(float(score[1]))
    assert score[0] < 0


def test_the_candidate_of_the_size_asked_for_is_preferred():
    model = small_model(small_dags(8))
    dags = [chain(8), chain(16), chain(8), chain(16)]
    unknown = (torch.full((4, 1), torch.nan), torch.full((4, 1), -1))
    batch = DAGBatch.of(dags, *unknown)
    plain = model._score(batch, request(2, best_of=2))
    sized = request(2, best_of=2, nodes_B=torch.tensor([16.0, torch.nan]))
    lost = plain - model._score(batch, sized)
    assert lost.tolist() == pytest.approx([20 * math.log(2), 0, 0, 0], abs=1e-3)
    layers = request(2, best_of=2, layers_B=torch.tensor([torch.nan, 8.0]))
    lost = plain - model._score(batch, layers)
    assert lost.tolist() == pytest.approx([0, 0, 0, 20 * math.log(2)], abs=1e-3)


def test_truncated_candidates_are_kept_only_if_all_are():
    dags = small_dags(4)

    def sample(asked: SampleRequest) -> SampleResult:
        cut = tuple(i % 4 != 2 for i in range(len(asked.seeds)))
        return SampleResult(tuple(dags[i % 4] for i in range(len(asked.seeds))), cut)

    result = resample(nothing, request(6, best_of=4), sample)
    assert result.truncated == (False,) * 6
    assert all(dag is dags[2] for dag in result.dags)


def test_no_candidate_at_all_is_refused():
    with pytest.raises(UsageError, match="'best_of' must be at least 1, found 0"):
        small_model(small_dags()).sample(request(1, best_of=0))


def test_weights_of_a_sampler_count_with_the_scores():
    dags = small_dags(3)

    def sample(asked: SampleRequest) -> SampleResult:
        count = len(asked.seeds)
        weights = tuple(100.0 * (i % 3 == 1) for i in range(count))
        return SampleResult(tuple(dags[i % 3] for i in range(count)), (False,) * count, weights)

    assert all(dag is dags[1] for dag in resample(nothing, request(4, best_of=3), sample).dags)
