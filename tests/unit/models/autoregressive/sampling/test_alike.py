"""Groups of candidates about which all decisions so far are the same."""

import torch
from hypothesis import given, strategies as st
from laws import tried

from layerdag.models.autoregressive.sampling._alike import Alike, GroupStates
from layerdag.models.autoregressive.sampling._guidance import Guidance
from layerdag.models.draws import sample_from_logits

CPU = torch.device("cpu")


def test_at_first_the_candidates_of_a_graph_are_alike() -> None:
    alike = Alike.by_graph(2, 3, CPU)
    assert alike.group_P.tolist() == [0, 0, 0, 1, 1, 1]
    assert alike.option_P.tolist() == [0, 1, 2, 0, 1, 2]
    assert alike.of(torch.arange(6) // 3).tolist() == [0, 1]


@tried(40)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 2, 4]))
def test_candidates_stay_together_while_they_decide_alike(seed: int, options: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    alike, history = Alike.by_graph(3, options, CPU), [[p // options] for p in range(3 * options)]
    for _ in range(3):
        code_P = torch.randint(0, 3, (3 * options,), generator=generator)
        alike = alike.split(code_P)
        for past, code in zip(history, code_P.tolist(), strict=True):
            past.append(code)
    group_P = alike.group_P.tolist()
    for p, q in torch.cartesian_prod(*2 * [torch.arange(3 * options)]).tolist():
        assert (group_P[p] == group_P[q]) == (history[p] == history[q] if options > 1 else p == q)
    assert group_P == alike.of(alike.group_P)[alike.group_P].tolist()


def test_each_candidate_draws_from_the_logits_of_its_group_with_its_own_uniform() -> None:
    alike = Alike.by_graph(2, 4, CPU).split(torch.tensor([0, 1, 0, 1, 2, 2, 2, 0]))
    logits_GK = torch.randn((alike.groups, 5), generator=torch.Generator().manual_seed(0))
    uniform_P = torch.rand(8, generator=torch.Generator().manual_seed(1))
    alone_P = sample_from_logits(logits_GK[alike.group_P], uniform_P)
    assert alike.draw(logits_GK, uniform_P).tolist() == alone_P.tolist()
    assert len(set(alone_P.tolist())) > 2


def test_a_single_candidate_draws_as_it_would_alone() -> None:
    alike = Alike.by_graph(3, 1, CPU)
    logits_GK, uniform_P = torch.eye(3), torch.tensor([0.1, 0.5, 0.9])
    drawn_P = sample_from_logits(logits_GK, uniform_P)
    assert alike.draw(logits_GK, uniform_P).tolist() == drawn_P.tolist()
    assert alike.split(torch.tensor([1, 1, 1])) is alike
    assert alike.keep(torch.tensor([2])).group_P.tolist() == [0]


def test_states_follow_their_candidates_through_splits_and_selections() -> None:
    for weight in (1.0, 1.5):
        guidance = Guidance(weight, 1.0)
        alike = Alike.by_graph(3, 2, CPU)
        state_QD = guidance.duplicate(torch.tensor([[10.0], [20.0], [30.0]]))
        state_QD[3:] += 1  # the unconditional rows
        states = GroupStates(guidance, alike, (state_QD,))
        states = states.split(torch.tensor([0, 1, 1, 1, 0, 2])).keep(torch.tensor([1, 2, 5]))
        (found_RD,) = states.of_candidates(torch.arange(3))
        expected = [10, 20, 30] if weight == 1 else [10, 20, 30, 11, 21, 31]
        assert found_RD[:, 0].tolist() == expected


def test_no_candidate_has_no_group() -> None:
    alike = Alike.by_graph(2, 2, CPU).keep(torch.zeros(0, dtype=torch.int64))
    assert alike.groups == 0
