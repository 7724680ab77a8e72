"""Groups of candidates about which all decisions so far are the same."""

import pytest
import torch
from hypothesis import given, strategies as st
from laws import tried
from small_models import request, sampling_in_torch, small_dags, small_model
from torch import Tensor

from layerdag.models.base import SampleResult
from layerdag.models.config import EncoderConfig
from layerdag.models.draws import sample_from_logits
from layerdag.models.fast.candidates import (
    CandidateSampler,
    EdgesToParents,
    GroupStates,
    NodeCandidates,
    ParentDecisions,
    ParentScorer,
    PrefixGroups,
)
from layerdag.models.fast.decisions import Pointer
from layerdag.models.fast.encoder import WindowEncoder
from layerdag.models.fast.layout import NEVER
from layerdag.models.fast.model import FastLayerDAG
from layerdag.models.fast.sampler_state import EncoderCache, Guidance, SamplerState

CPU = torch.device("cpu")


def test_at_first_the_candidates_of_a_graph_are_alike():
    alike = PrefixGroups.by_graph(2, 3, CPU)
    assert alike.group_P.tolist() == [0, 0, 0, 1, 1, 1]
    assert alike.option_P.tolist() == [0, 1, 2, 0, 1, 2]
    assert alike.of(torch.arange(6) // 3).tolist() == [0, 1]


@tried(40)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 2, 4]))
def test_candidates_stay_together_while_they_decide_alike(seed, options):
    generator = torch.Generator().manual_seed(seed)
    alike, history = (
        PrefixGroups.by_graph(3, options, CPU),
        [[p // options] for p in range(3 * options)],
    )
    for _ in range(3):
        code_P = torch.randint(0, 3, (3 * options,), generator=generator)
        alike = alike.split(code_P)
        for past, code in zip(history, code_P.tolist(), strict=True):
            past.append(code)
    group_P = alike.group_P.tolist()
    for p, q in torch.cartesian_prod(*2 * [torch.arange(3 * options)]).tolist():
        assert (group_P[p] == group_P[q]) == (history[p] == history[q] if options > 1 else p == q)
    assert group_P == alike.of(alike.group_P)[alike.group_P].tolist()


def test_each_candidate_draws_from_the_logits_of_its_group_with_its_own_uniform():
    alike = PrefixGroups.by_graph(2, 4, CPU).split(torch.tensor([0, 1, 0, 1, 2, 2, 2, 0]))
    logits_GK = torch.randn((alike.groups, 5), generator=torch.Generator().manual_seed(0))
    uniform_P = torch.rand(8, generator=torch.Generator().manual_seed(1))
    alone_P = sample_from_logits(logits_GK[alike.group_P], uniform_P)
    assert alike.draw(logits_GK, uniform_P).tolist() == alone_P.tolist()
    assert len(set(alone_P.tolist())) > 2


def test_a_single_candidate_draws_as_it_would_alone():
    alike = PrefixGroups.by_graph(3, 1, CPU)
    logits_GK, uniform_P = torch.eye(3), torch.tensor([0.1, 0.5, 0.9])
    drawn_P = sample_from_logits(logits_GK, uniform_P)
    assert alike.draw(logits_GK, uniform_P).tolist() == drawn_P.tolist()
    assert alike.split(torch.tensor([1, 1, 1])) is alike
    assert alike.keep(torch.tensor([2])).group_P.tolist() == [0]


def test_states_follow_their_candidates_through_splits_and_selections():
    for weight in (1.0, 1.5):
        guidance = Guidance(weight, 1.0)
        alike = PrefixGroups.by_graph(3, 2, CPU)
        state_QD = guidance.duplicate(torch.tensor([[10.0], [20.0], [30.0]]))
        state_QD[3:] += 1  # the unconditional rows
        states = GroupStates(guidance, alike, (state_QD,))
        states = states.split(torch.tensor([0, 1, 1, 1, 0, 2])).keep(torch.tensor([1, 2, 5]))
        (found_RD,) = states.of_candidates(torch.arange(3))
        expected = [10, 20, 30] if weight == 1 else [10, 20, 30, 11, 21, 31]
        assert found_RD[:, 0].tolist() == expected


@pytest.fixture(scope="module")
def model() -> FastLayerDAG:
    return small_model(small_dags())


def sampled(model: FastLayerDAG, guidance: float) -> SampleResult:
    return model.sample(request(4, guidance=guidance, max_nodes=25))


@pytest.mark.parametrize("guidance", [1.0, 1.5])
def test_the_first_candidate_is_the_node_that_is_drawn_alone(model, guidance, monkeypatch):
    sampling_in_torch(monkeypatch.setattr)
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
    model, monkeypatch
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
def test_only_guidance_has_pairs_of_rows(weight, rows):
    guidance = Guidance(weight, 0.5)
    assert guidance.duplicate(torch.arange(2)).shape[0] == rows
    assert guidance.rows(torch.tensor([1]), 2).tolist() == [1, 3][: rows // 2]
    assert guidance.merge(torch.zeros(rows, 3)).shape == (2, 3)


def test_without_guidance_the_temperature_divides_the_logits():
    logits_RK = torch.tensor([[1.0, 2.0]])
    assert Guidance(1.0, 0.5).merge(logits_RK).tolist() == [[2.0, 4.0]]


def test_without_lists_of_neighbors_one_candidate_is_drawn(model, monkeypatch):
    counts = []
    draw = CandidateSampler.draw

    def watched(self: CandidateSampler, context_RD: torch.Tensor, count: int) -> NodeCandidates:
        counts.append(count)
        return draw(self, context_RD, count)

    monkeypatch.setattr(CandidateSampler, "draw", watched)
    sampling_in_torch(monkeypatch.setattr)
    sampled(model, 1.0)
    assert set(counts) == {1}


WIDTH, KEY, NODES = 8, 4, 9


def scorer(block: int, full: tuple[int, ...] = ()) -> ParentScorer:
    """The scorer of node 10 of two equal graphs; positions ``full`` may have no more children."""
    torch.manual_seed(0)
    encoder = WindowEncoder(WIDTH, 1, EncoderConfig(block=block))
    cache = EncoderCache(encoder, block, KEY, torch.zeros(2, WIDTH))
    state, row = SamplerState.start(2, CPU), torch.arange(2)
    zero = torch.zeros(2, WIDTH)
    cache.append(0, zero, zero[:, :KEY])
    for position in range(1, NODES + 1):
        state.start_node(position, torch.tensor([1, 1]))
        capacity = torch.full((2,), 0 if position in full else 5)
        state.set_out_degree(position, torch.tensor([3, 3]), capacity)
        cache.append(position, zero, torch.randn(1, KEY).expand(2, -1))
    state.start_node(NODES + 1, torch.tensor([1, 1]))
    assert (state.structure.layer_T[row] == NODES).all()
    return ParentScorer(Pointer(WIDTH, KEY), cache, state, NODES + 1)


def decisions(low: int, high: int, rows: int = 1) -> ParentDecisions:
    every = torch.arange(rows)
    return ParentDecisions(
        every,
        every,
        torch.full((rows,), low),
        torch.full((rows,), high),
        torch.full((rows,), NEVER),
    )


def hidden(rows: int = 1) -> Tensor:
    return torch.randn(1, WIDTH, generator=torch.Generator().manual_seed(1)).expand(rows, -1)


def probabilities(found: ParentScorer, low: int, high: int) -> dict[int, float]:
    """Return the probability of each parent: of the token, or of its block and of it inside."""
    decision = decisions(low, high)
    visible = found.score_visible(hidden(), decision)
    shares = visible.logits_QO.softmax(1)[0].tolist()
    first = int(visible.first_token_Q)
    result = {first + i: share for i, share in enumerate(shares[: visible.tokens])}
    for i, share in enumerate(shares[visible.tokens :]):
        block = visible.first_block_Q + i
        inside = found.score_inside(hidden(), decision, block)
        for j, part in enumerate(inside.logits_QO.softmax(1)[0].tolist()):
            result[int(inside.first_token_Q) + j] = share * part
    return result


@pytest.mark.parametrize("block", [1, 2, 3, 64])
@pytest.mark.parametrize(("low", "high"), [(1, 10), (3, 4), (2, 7), (9, 10)])
def test_exactly_the_tokens_of_the_range_can_be_parents(block, low, high):
    found = probabilities(scorer(block), low, high)
    assert {position for position, share in found.items() if share > 0} == set(range(low, high))
    assert sum(found.values()) == pytest.approx(1)


@pytest.mark.parametrize("block", [1, 2, 64])
def test_a_token_with_children_enough_is_ruled_out_if_there_is_another(block):
    found = probabilities(scorer(block, full=(8, 9)), 7, 10)
    assert found[7] == pytest.approx(1)
    assert found[8] == found[9] == 0


def test_where_all_have_children_enough_none_is_ruled_out():
    found = probabilities(scorer(64, full=(7, 8, 9)), 7, 10)
    assert all(found[position] > 0 for position in (7, 8, 9))


def test_a_pooled_block_counts_as_another_candidate():
    """The window (8, 9) is full, so the parent comes from an older block."""
    found = probabilities(scorer(2, full=(8, 9)), 5, 10)
    assert found[8] == found[9] == 0
    assert found[5] > 0
    inside = scorer(2, full=(4, 5)).score_inside(hidden(), decisions(4, 10), torch.tensor([2]))
    assert inside.logits_QO.isfinite().all()
    half = scorer(2, full=(5,)).score_inside(hidden(), decisions(4, 10), torch.tensor([2]))
    assert half.logits_QO.isfinite().tolist() == [[True, False]]


def test_uses_so_far_change_the_scores_of_the_parent_and_of_its_block():
    plain = scorer(2).score_visible(hidden(2), decisions(1, 10, rows=2))
    used = scorer(2)
    # In the second graph nodes 2, 3 and 9 have a child each.
    for position in (2, 3, 9):
        used.state.connect(torch.tensor([1]), torch.tensor([position]))
    after = used.score_visible(hidden(2), decisions(1, 10, rows=2))
    assert torch.equal(after.logits_QO[0], plain.logits_QO[0])
    changed = after.logits_QO[1] != plain.logits_QO[1]
    tokens = changed[: after.tokens].nonzero()[:, 0] + int(after.first_token_Q[1])
    blocks = changed[after.tokens :].nonzero()[:, 0] + int(after.first_block_Q[1])
    assert tokens.tolist() == [9]
    assert blocks.tolist() == [1]


def test_decisions_with_ranges_of_different_lengths_are_padded_with_impossible_ones():
    every = torch.arange(2)
    asked = ParentDecisions(
        every, every, torch.tensor([1, 8]), torch.tensor([5, 9]), torch.full((2,), NEVER)
    )
    scores = scorer(64).score_visible(hidden(2), asked)
    assert scores.logits_QO.isfinite().tolist() == [[True] * 4, [True] + [False] * 3]
    assert scores.first_token_Q.tolist() == [1, 8]
    alone = scorer(64).score_visible(hidden(), decisions(8, 9))
    torch.testing.assert_close(scores.logits_QO[1, :1], alone.logits_QO[0])
    assert asked.at(torch.tensor([1])).high_Q.tolist() == [9]
