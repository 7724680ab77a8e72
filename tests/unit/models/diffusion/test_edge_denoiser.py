"""Noise and predictions of edges: the expected in-degree is the true one at any time."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from layerdag.graph import DAG, GraphSizes, GraphStatistics
from layerdag.models import Conditions
from layerdag.models.diffusion import EdgeConfig
from layerdag.models.diffusion._edge_denoiser import EdgeDenoiser, Pairs
from layerdag.models.diffusion._encoder import PrefixGraphs
from layerdag.models.diffusion._sampler import _with_new_nodes
from layerdag.models.diffusion.process import add_noise

COLUMNS = (4, 2, 3)
STEPS = 5


@pytest.fixture
def denoiser(sizes: GraphSizes, make_dag: Callable[..., DAG]) -> EdgeDenoiser:
    statistics = replace(GraphStatistics.measure([make_dag(2, 3)], sizes), edge_types=(8, 0))
    torch.manual_seed(0)
    return EdgeDenoiser(sizes, statistics, COLUMNS, EdgeConfig(width=8, rounds=2, steps=STEPS))


def problem() -> tuple[PrefixGraphs, Pairs]:
    """Two prefixes, of 2 and 3 nodes of one layer each, with 2 and 1 new nodes."""
    prefix = PrefixGraphs(
        code_NA=torch.tensor([[0, 0, 0], [1, 1, 0], [2, 0, 0], [3, 1, 0], [1, 0, 0]]),
        graph_N=torch.tensor([0, 0, 1, 1, 1]),
        node_R=torch.arange(5),
        prefix_R=torch.tensor([0, 0, 1, 1, 1]),
        distance_R=torch.ones(5, dtype=torch.int64),
        graph_I=torch.tensor([0, 1]),
        depth_I=torch.tensor([1, 1]),
        edge_index_2V=torch.zeros(2, 0, dtype=torch.int64),
        edge_kind_V=torch.zeros(0, dtype=torch.int64),
    )
    new_WA = torch.tensor([[0, 1, 1], [2, 0, 2], [3, 0, 2]])
    return _with_new_nodes(prefix, new_WA, torch.tensor([1, 2, 2]), torch.tensor([0, 2, 3]))


def known() -> Conditions:
    return Conditions(torch.tensor([[0.5], [-1.0]]), torch.tensor([[0], [2]]))


def test_every_earlier_node_of_the_same_prefix_is_a_candidate_of_every_new_one():
    partial, pairs = problem()
    assert pairs.new_P.tolist() == [0, 0, 1, 1, 2, 2, 2]
    assert pairs.source_P.tolist() == [0, 1, 0, 1, 2, 3, 4]
    assert pairs.target_P.tolist() == [5, 5, 6, 6, 7, 7, 7]
    assert pairs.candidates_W.tolist() == [2, 2, 3]
    assert torch.equal(partial.prefix_R[pairs.source_P], partial.prefix_R[pairs.target_P])
    assert torch.equal(partial.prefix_R[pairs.source_P], pairs.prefix_P)
    assert pairs.latest_P.all()
    assert partial.distance_R[5:].tolist() == [0, 0, 0]


def test_noise_has_the_true_in_degree_in_the_mean(denoiser: EdgeDenoiser):
    _, pairs = problem()
    marginal_WK = denoiser.marginals(pairs)
    torch.testing.assert_close(marginal_WK.sum(1), torch.ones(3))
    expected_W = (1 - marginal_WK[:, 0]) * pairs.candidates_W
    # Where all candidates are parents (new node 1) the share stays below 1.
    assert expected_W.tolist() == pytest.approx([1.0, 1.8, 2.0])


def test_edge_types_have_their_shares_and_none_is_impossible(denoiser: EdgeDenoiser):
    assert denoiser.type_fraction_K.tolist() == pytest.approx([0.9, 0.1])
    marginal_WK = denoiser.marginals(problem()[1])
    assert torch.allclose(marginal_WK[:, 1], 9 * marginal_WK[:, 2])


def test_the_expected_in_degree_holds_at_any_time(
    denoiser: EdgeDenoiser, generator: torch.Generator
):
    """A node with one parent of two candidates, noised 20 000 times to the middle."""
    count, keep = 20_000, denoiser.alpha_bar_S[2]
    x0_P = torch.tensor([1, 0]).repeat(count, 1)
    marginal = denoiser.marginals(problem()[1])[0]
    uniform = torch.rand(count, 2, 2, generator=generator)
    noisy = add_noise(x0_P, keep, marginal, uniform)
    assert (noisy > 0).sum(1).float().mean() == pytest.approx(1.0, abs=0.02)


def test_each_pair_has_a_logit_for_no_edge_and_for_each_type(denoiser: EdgeDenoiser):
    partial, pairs = problem()
    state_P = torch.tensor([0, 1, 2, 0, 1, 1, 0])
    logits = denoiser(partial, known(), pairs, state_P, torch.tensor([1, STEPS]))
    assert logits.shape == (7, 3)
    assert logits.isfinite().all()


def test_pairs_of_one_prefix_do_not_change_those_of_another(denoiser: EdgeDenoiser):
    partial, pairs = problem()
    time = torch.tensor([2, 3])
    plain = denoiser(partial, known(), pairs, torch.zeros(7, dtype=torch.int64), time)
    noisy = torch.tensor([0, 0, 0, 0, 1, 2, 0])
    other = denoiser(partial, known(), pairs, noisy, time)
    torch.testing.assert_close(other[:4], plain[:4])
    assert (other[4:] - plain[4:]).abs().amax(1).min() > 1e-4


def test_time_and_conditions_of_a_prefix_matter_to_its_pairs_alone(denoiser: EdgeDenoiser):
    partial, pairs = problem()
    state_P = torch.tensor([0, 1, 2, 0, 1, 1, 0])
    plain = denoiser(partial, known(), pairs, state_P, torch.tensor([2, 3]))
    later = denoiser(partial, known(), pairs, state_P, torch.tensor([2, 4]))
    hidden = Conditions(torch.tensor([[0.5], [torch.nan]]), torch.tensor([[0], [2]]))
    unknown = denoiser(partial, hidden, pairs, state_P, torch.tensor([2, 3]))
    for other in (later, unknown):
        torch.testing.assert_close(other[:4], plain[:4])
        assert (other[4:] - plain[4:]).abs().amax(1).min() > 1e-5


def test_noisy_edges_are_kinds_of_their_own(denoiser: EdgeDenoiser):
    """A noisy edge is not taken for a known one between the same nodes."""
    partial, pairs = problem()
    state_P = torch.tensor([2, 0, 0, 0, 0, 0, 1])
    found = denoiser._with_noisy_edges(partial, pairs, state_P)
    assert found.edge_index_2V.tolist() == [[0, 4], [5, 7]]
    assert found.edge_kind_V.tolist() == [3, 2]
    assert partial.edge_kind_V.numel() == 0


def test_the_loss_counts_new_nodes_and_falls_with_the_right_answer(denoiser: EdgeDenoiser):
    partial, pairs = problem()
    x0_P = torch.tensor([1, 0, 1, 1, 0, 1, 1])
    term = denoiser.loss(partial, known(), pairs, x0_P, torch.Generator().manual_seed(0))
    assert term.count == 3
    with torch.no_grad():
        denoiser.head.weight.zero_()
        denoiser.head.bias.copy_(torch.tensor([0.0, 0.0, -30.0]))
    even = denoiser.loss(partial, known(), pairs, x0_P, torch.Generator().manual_seed(0))
    # Seven pairs, each of two states that are equally likely.
    assert even.total.item() == pytest.approx(7 * torch.tensor(2.0).log().item(), rel=1e-5)
    assert even.mean().item() == pytest.approx(even.total.item() / 3)


def test_every_parameter_learns(denoiser: EdgeDenoiser):
    partial, pairs = problem()
    x0_P = torch.tensor([1, 0, 2, 1, 0, 1, 1])
    for seed in range(4):
        denoiser.loss(
            partial, known(), pairs, x0_P, torch.Generator().manual_seed(seed)
        ).total.backward()
    idle = [name for name, p in denoiser.named_parameters() if p.grad is None or not p.grad.any()]
    assert idle == []
