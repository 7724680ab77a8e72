"""Candidates for the next node: drawn from one state, each a node that could be drawn alone."""

import pytest
import torch

from layerdag.models import SampleResult
from layerdag.models.autoregressive import FastLayerDAG
from layerdag.models.autoregressive.sampling import _sampler as fast_sampling
from layerdag.models.autoregressive.sampling._candidates import (
    CandidateSampler,
    EdgesToParents,
    NodeCandidates,
)
from layerdag.models.autoregressive.sampling._guidance import Guidance
from tests.unit.models.autoregressive.small_models import request, small_dags, small_model


@pytest.fixture(scope="module")
def model() -> FastLayerDAG:
    return small_model(small_dags())


def sampled(model: FastLayerDAG, guidance: float) -> SampleResult:
    return model.sample(request(4, guidance=guidance, max_nodes=25))


@pytest.mark.parametrize("guidance", [1.0, 1.5])
def test_the_first_candidate_is_the_node_that_is_drawn_alone(
    model: FastLayerDAG, guidance: float, monkeypatch: pytest.MonkeyPatch
):
    alone = sampled(model, guidance).dags
    draw = CandidateSampler.draw

    def first_of_five(
        self: CandidateSampler, context_RD: torch.Tensor, count: int
    ) -> NodeCandidates:
        candidates = draw(self, context_RD, 5 * count)
        first_B = torch.arange(self.seed_B.shape[0]) * 5
        assert candidates.graph_P[first_B].tolist() == list(range(self.seed_B.shape[0]))
        return candidates.select(first_B, self.guidance)

    monkeypatch.setattr(CandidateSampler, "draw", first_of_five)
    for one, other in zip(alone, sampled(model, guidance).dags, strict=True):
        assert one.x_NA.tolist() == other.x_NA.tolist()
        assert one.edge_index_2E.tolist() == other.edge_index_2E.tolist()
        assert one.edge_type_E.tolist() == other.edge_type_E.tolist()


def test_candidates_of_a_graph_differ_and_each_has_as_many_parents_as_its_degree(
    model: FastLayerDAG, monkeypatch: pytest.MonkeyPatch
):
    draw, distinct = CandidateSampler.draw, []

    def watched(self: CandidateSampler, context_RD: torch.Tensor, count: int) -> NodeCandidates:
        candidates = draw(self, context_RD, 8)
        for graph in range(self.seed_B.shape[0]):
            chosen_X = torch.arange(8 * graph, 8 * graph + 8)
            distinct.append(len(set(candidates.kind_P[chosen_X].tolist())))
        found_P = torch.zeros_like(candidates.degree_P)
        for edges in candidates.edges:
            found_P[edges.candidate_X] += 1
            assert (edges.parent_X < self.position).all()
        assert found_P.tolist() == candidates.degree_P.tolist()
        return candidates.select(torch.arange(self.seed_B.shape[0]) * 8 + 3, self.guidance)

    monkeypatch.setattr(CandidateSampler, "draw", watched)
    for dag in sampled(model, 1.5).dags:
        dag.check()
    assert max(distinct) > 2


def test_one_selects_its_own_edges_and_states_under_new_numbers():
    whole = torch.arange(4)
    edges = EdgesToParents(
        torch.tensor([0, 2, 3]), torch.tensor([5, 6, 7]), torch.tensor([0, 1, 0])
    )
    states_QD = torch.arange(8.0)[:, None]
    candidates = NodeCandidates(
        whole // 2, whole + 10, whole, torch.tensor([1, 0, 1, 1]), (edges,), states_QD, states_QD
    )
    kept = candidates.select(torch.tensor([1, 2]), Guidance(1.5, 1.0))
    assert kept.first_P.tolist() == [11, 12]
    assert [kept.edges[0].candidate_X.tolist(), kept.edges[0].parent_X.tolist()] == [[1], [6]]
    assert kept.state_QD[:, 0].tolist() == [1, 2, 5, 6]  # the unconditional rows follow


@pytest.mark.parametrize(("weight", "rows"), [(1.0, 2), (1.5, 4)])
def test_only_guidance_has_pairs_of_rows(weight: float, rows: int):
    guidance = Guidance(weight, 0.5)
    assert guidance.duplicate(torch.arange(2)).shape[0] == rows
    assert guidance.rows(torch.tensor([1]), 2).tolist() == [1, 3][: rows // 2]
    assert guidance.merge(torch.zeros(rows, 3)).shape == (2, 3)


def test_without_guidance_the_temperature_divides_the_logits():
    logits_RK = torch.tensor([[1.0, 2.0]])
    assert Guidance(1.0, 0.5).merge(logits_RK).tolist() == [[2.0, 4.0]]


def test_without_lists_of_neighbors_one_candidate_is_drawn(
    model: FastLayerDAG, monkeypatch: pytest.MonkeyPatch
):
    counts = []
    draw = CandidateSampler.draw

    def watched(self: CandidateSampler, context_RD: torch.Tensor, count: int) -> NodeCandidates:
        counts.append(count)
        return draw(self, context_RD, count)

    monkeypatch.setattr(CandidateSampler, "draw", watched)
    monkeypatch.setattr(fast_sampling, "NODE_CANDIDATES", 8)
    sampled(model, 1.0)
    assert set(counts) == {1}
