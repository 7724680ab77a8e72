"""Noise and predictions of edges: the expected in-degree is the true one at any time."""

import itertools
import math
from dataclasses import replace

import pytest
import torch
from noising import forward_distribution

from layerdag.dag.dag import DAG, GraphSizes
from layerdag.dag.statistics import GraphStatistics
from layerdag.models.conditions import Conditions
from layerdag.models.config import EdgeConfig, LayerSizeConfig, NodeConfig
from layerdag.models.draws import sample_categorical
from layerdag.models.layers import Segments
from layerdag.models.reference.diffusion import (
    add_noise,
    cosine_alpha_bar,
    reverse_distribution,
    strided_timesteps,
)
from layerdag.models.reference.networks import (
    DegreeCodes,
    DenoiserBlock,
    EdgeDenoiser,
    LayerSizeNet,
    NodeDenoiser,
    smoothed_marginals,
)
from layerdag.models.reference.prefixes import Pairs, PrefixGraphs

MARGINAL = torch.tensor([0.1, 0.25, 0.6, 0.05], dtype=torch.float64)
KEEP = cosine_alpha_bar(16)
CODES = torch.arange(4)


def step_matrix(now: int, then: int) -> torch.Tensor:
    """Return Q of the step between two times."""
    share = KEEP[then] / KEEP[now]
    return share * torch.eye(4, dtype=torch.float64) + (1 - share) * MARGINAL.expand(4, 4)


def test_closed_form_equals_product_of_steps():
    product = torch.eye(4, dtype=torch.float64)
    for t in range(1, 17):
        product = product @ step_matrix(t - 1, t)
        closed = forward_distribution(CODES, KEEP[t].expand(4), MARGINAL)
        torch.testing.assert_close(closed, product)


@pytest.mark.parametrize(("now", "then"), [(16, 15), (16, 4), (9, 2), (5, 0), (16, 0)])
def test_reverse_distribution_is_bayes(now, then):
    predicted = torch.tensor([0.5, 0.2, 0.2, 0.1], dtype=torch.float64)
    for noisy in range(4):
        found = reverse_distribution(
            predicted, torch.tensor(noisy), MARGINAL, KEEP[now], KEEP[then]
        )
        to_then = forward_distribution(CODES, KEEP[then].expand(4), MARGINAL)
        to_now = forward_distribution(CODES, KEEP[now].expand(4), MARGINAL)[:, noisy]
        likelihood = step_matrix(then, now)[:, noisy]
        posterior = to_then * likelihood / to_now[:, None]
        torch.testing.assert_close(found, predicted @ posterior)


@pytest.mark.parametrize(("now", "then"), [(15, 14), (9, 2), (5, 0)])
def test_a_code_that_noise_never_makes_was_there_from_the_start(now, then):
    marginal = torch.tensor([0.4, 0.6, 0.0], dtype=torch.float64)
    predicted = torch.tensor([0.3, 0.3, 0.4], dtype=torch.float64)
    found = reverse_distribution(predicted, torch.tensor(2), marginal, KEEP[now], KEEP[then])
    torch.testing.assert_close(found / found.sum(), torch.tensor([0, 0, 1], dtype=torch.float64))


@pytest.mark.parametrize("steps", [1, 3, 16])
def test_oracle_that_knows_the_clean_code_returns_it(generator, steps):
    clean = torch.randint(4, (500,), generator=generator)
    oracle = torch.nn.functional.one_hot(clean, 4).double()
    assert torch.equal(run_chain(oracle, steps, generator), clean)


@pytest.mark.parametrize("steps", [1, 4, 16])
def test_oracle_that_predicts_the_marginal_returns_the_marginal(generator, steps):
    count = 20_000
    found = run_chain(MARGINAL.expand(count, 4), steps, generator).bincount(minlength=4)
    chi_square = ((found - count * MARGINAL) ** 2 / (count * MARGINAL)).sum()
    assert chi_square < 21  # 3 degrees of freedom: the chance of more is 1e-4


def test_add_noise_follows_its_distribution(generator):
    count = 20_000
    clean = torch.ones(count, dtype=torch.int64)
    uniform = torch.rand(count, 2, generator=generator)
    noisy = add_noise(clean, KEEP[8], MARGINAL, uniform)
    wanted = count * forward_distribution(torch.tensor(1), KEEP[8], MARGINAL)
    chi_square = ((noisy.bincount(minlength=4) - wanted) ** 2 / wanted).sum()
    assert chi_square < 21


def run_chain(predicted: torch.Tensor, steps: int, generator: torch.Generator) -> torch.Tensor:
    """Denoise from the marginal with a fixed prediction."""
    count = predicted.shape[0]
    code = sample_categorical(MARGINAL.expand(count, 4), torch.rand(count, generator=generator))
    times = strided_timesteps(16, steps)
    for now, then in itertools.pairwise(times):
        weights = reverse_distribution(predicted, code, MARGINAL, KEEP[now], KEEP[then])
        code = sample_categorical(weights, torch.rand(count, generator=generator))
    return code


def test_alpha_bar_falls_from_1_to_0_and_strided_times_run_from_the_last_step_to_0():
    alpha_bar_S = cosine_alpha_bar(16)
    assert alpha_bar_S[0] == 1
    assert alpha_bar_S[-1] == 0
    assert torch.all(alpha_bar_S.diff() < 0)
    assert strided_timesteps(8, None) == [8, 7, 6, 5, 4, 3, 2, 1, 0]
    assert strided_timesteps(8, 3) == [8, 5, 3, 0]
    assert strided_timesteps(8, 1) == [8, 0]
    assert strided_timesteps(4, 100) == [4, 3, 2, 1, 0]


def test_only_in_degrees_that_occur_have_codes(sizes, make_dag):
    statistics = GraphStatistics.measure([make_dag(2, 3)], sizes)
    kinds = (((0, 4), (1, 2)), ((1, 1), (200, 3)), (), ())
    codes = DegreeCodes(replace(statistics, in_degrees=kinds))
    assert codes.counts == (4, 3, 3)
    assert codes.encode(torch.tensor([0, 1, 2, 199, 200, 999])).tolist() == [0, 1, 1, 1, 2, 2]
    assert codes.decode(torch.tensor([0, 1, 2])).tolist() == [0, 1, 200]


def codes_of(*kinds: tuple[tuple[int, int], ...]) -> DegreeCodes:
    """Codes of training graphs with these pairs of (in-degree, nodes) per kind."""
    dag = DAG.build(torch.zeros(1, 1, dtype=torch.int64), torch.zeros(2, 0, dtype=torch.int64))
    statistics = GraphStatistics.measure([dag], GraphSizes((1,)))
    return DegreeCodes(replace(statistics, in_degrees=kinds))


def test_an_unknown_in_degree_becomes_the_largest_known_one_below():
    codes = codes_of(((0, 1), (3, 1), (7, 1)))
    degrees = torch.arange(20)
    found = codes.decode(codes.encode(degrees))
    wanted = [max(known for known in (0, 3, 7) if known <= degree) for degree in range(20)]
    assert found.tolist() == wanted
    assert (found.diff() >= 0).all()


def test_no_parent_has_a_code_even_if_no_node_or_every_node_lacks_parents():
    codes = codes_of(((2, 5),))
    assert len(codes) == 2
    assert codes.decode(torch.tensor([0, 1])).tolist() == [0, 2]
    assert codes.encode(torch.tensor([1])).tolist() == [0]
    codes = codes_of(((0, 3),))
    assert len(codes) == 1
    assert codes.encode(torch.tensor([0, 9])).tolist() == [0, 0]


COLUMNS = (4, 2, 3)
STEPS = 5


@pytest.fixture
def denoiser(sizes, make_dag) -> EdgeDenoiser:
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
    partial = prefix.with_new_nodes(new_WA, torch.tensor([0, 0, 1]))
    return partial, Pairs.of(partial, torch.tensor([1, 2, 2]))


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


def test_noise_has_the_true_in_degree_in_the_mean(denoiser):
    _, pairs = problem()
    marginal_WK = denoiser.marginals(pairs)[[0, 2, 4]]
    torch.testing.assert_close(marginal_WK.sum(1), torch.ones(3))
    expected_W = (1 - marginal_WK[:, 0]) * pairs.candidates_W
    # Where all candidates are parents (new node 1) the share stays below 1.
    assert expected_W.tolist() == pytest.approx([1.0, 1.8, 2.0])


def test_edge_types_have_their_shares_and_none_is_impossible(denoiser):
    assert denoiser.type_fraction_K.tolist() == pytest.approx([0.9, 0.1])
    marginal_WK = denoiser.marginals(problem()[1])
    assert torch.allclose(marginal_WK[:, 1], 9 * marginal_WK[:, 2])


def test_pairs_of_one_prefix_do_not_change_those_of_another(denoiser):
    partial, pairs = problem()
    time = torch.tensor([2, 3])
    plain = denoiser(partial, known(), pairs, torch.zeros(7, dtype=torch.int64), time)
    noisy = torch.tensor([0, 0, 0, 0, 1, 2, 0])
    other = denoiser(partial, known(), pairs, noisy, time)
    torch.testing.assert_close(other[:4], plain[:4])
    assert (other[4:] - plain[4:]).abs().amax(1).min() > 1e-4


def test_time_and_conditions_of_a_prefix_matter_to_its_pairs_alone(denoiser):
    partial, pairs = problem()
    state_P = torch.tensor([0, 1, 2, 0, 1, 1, 0])
    plain = denoiser(partial, known(), pairs, state_P, torch.tensor([2, 3]))
    later = denoiser(partial, known(), pairs, state_P, torch.tensor([2, 4]))
    hidden = Conditions(torch.tensor([[0.5], [torch.nan]]), torch.tensor([[0], [2]]))
    unknown = denoiser(partial, hidden, pairs, state_P, torch.tensor([2, 3]))
    for other in (later, unknown):
        torch.testing.assert_close(other[:4], plain[:4])
        assert (other[4:] - plain[4:]).abs().amax(1).min() > 1e-5


def test_noisy_edges_are_kinds_of_their_own(denoiser):
    """A noisy edge is not taken for a known one between the same nodes."""
    partial, pairs = problem()
    state_P = torch.tensor([2, 0, 0, 0, 0, 0, 1])
    found = denoiser.with_noisy_edges(partial, pairs, state_P)
    assert found.edge_index_2V.tolist() == [[0, 4], [5, 7]]
    assert found.edge_kind_V.tolist() == [3, 2]
    assert partial.edge_kind_V.numel() == 0


def test_the_loss_counts_new_nodes_and_falls_with_the_right_answer(denoiser):
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


def test_every_parameter_learns(denoiser):
    partial, pairs = problem()
    x0_P = torch.tensor([1, 0, 2, 1, 0, 1, 1])
    for seed in range(4):
        denoiser.loss(
            partial, known(), pairs, x0_P, torch.Generator().manual_seed(seed)
        ).total.backward()
    idle = [name for name, p in denoiser.named_parameters() if p.grad is None or not p.grad.any()]
    assert idle == []


@pytest.fixture
def network(sizes, make_dag) -> LayerSizeNet:
    statistics = GraphStatistics.measure([make_dag(2, 3, 1) for _ in range(3)], sizes)
    return LayerSizeNet(sizes, statistics, (4, 2, 3), LayerSizeConfig(width=8, rounds=1))


def test_sizes_have_a_probability_of_1_together_and_forbidden_ones_are_never_drawn(
    network, generator
):
    size = torch.arange(400)
    logits = torch.randn(1, 4, generator=generator).expand(400, 4)
    total = network.log_probability(logits, size).double().exp().sum()
    assert total == pytest.approx(1, abs=1e-5)
    logits = torch.tensor([[float("-inf"), 0.0, 0.0, 0.0]]).expand(5000, 4)
    uniform = torch.rand(5000, 2, generator=generator, dtype=torch.float64)
    assert network.sample(logits, uniform).min() == 1


def test_beyond_the_largest_size_lies_the_probability_of_a_record_and_falls_by_a_factor(network):
    """9 layers were seen: a tenth of the probability lies beyond the largest."""
    logits = torch.randn(1, 4, generator=torch.Generator().manual_seed(0)).expand(4, 4)
    inner = network.log_probability(logits, torch.arange(4)).exp().sum()
    assert inner == pytest.approx(0.9)
    assert network.tail_probability == pytest.approx(0.1)
    log_probability = network.log_probability(torch.zeros(1, 4).expand(9, 4), torch.arange(4, 13))
    ratio = log_probability.diff().exp()
    torch.testing.assert_close(ratio, ratio[:1].expand(8), rtol=1e-4, atol=0)
    # 9 layers have 18 nodes: the mean excess over the largest is that of their mean size.
    assert ratio[0] == pytest.approx(1 - 9 / 18, rel=1e-4)


def test_inside_the_probabilities_are_a_softmax(network, generator):
    logits = torch.randn(2, 4, generator=generator)
    found = network.log_probability(logits, torch.tensor([3, 0]))
    wanted = logits.log_softmax(1)[[0, 1], [3, 0]] + math.log(0.9)
    torch.testing.assert_close(found, wanted)


def test_graphs_of_single_nodes_have_a_tail_that_stops_now_and_then(sizes, make_dag):
    """The mean excess of layers of one node would be none, so that of a record is taken."""
    statistics = GraphStatistics.measure([make_dag(1, 1)], sizes)
    network = LayerSizeNet(sizes, statistics, (4, 2, 2), LayerSizeConfig(width=4, rounds=0))
    assert network.tail_stop_probability == pytest.approx(2 / 3)
    far = network.log_probability(torch.zeros(2, 2), torch.tensor([2, 50]))
    assert far.isfinite().all()
    assert far[0] > far[1]


def test_a_size_is_drawn_from_its_own_uniforms(network):
    logits = torch.zeros(1, 4)
    sizes = [
        int(network.sample(logits, torch.tensor([[u, v]], dtype=torch.float64)))
        for u, v in ((0.01, 0.5), (0.89, 0.5), (0.95, 0.999), (0.95, 0.4), (0.95, 0.1))
    ]
    assert sizes == [0, 3, 4, 5, 7]


COUNTS = ((6, 0, 2), (1, 1), (5, 3, 0, 1))
NODE_STEPS = 6


@pytest.fixture
def node_denoiser(sizes) -> NodeDenoiser:
    torch.manual_seed(0)
    return NodeDenoiser(sizes, COUNTS, NodeConfig(width=8, rounds=1, heads=2, steps=NODE_STEPS))


def layers(generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor, Segments]:
    """Return states, codes and segments of two layers, of 3 nodes and of one."""
    codes = torch.stack([torch.randint(len(c), (4,), generator=generator) for c in COUNTS], dim=1)
    return torch.randn(2, 8, generator=generator), codes, Segments.from_ptr(torch.tensor([0, 3, 4]))


def test_marginals_are_frequencies_with_one_count_more_for_each_code():
    found = smoothed_marginals(COUNTS)
    assert found.tolist() == [
        pytest.approx([7 / 11, 1 / 11, 3 / 11, 0]),
        pytest.approx([0.5, 0.5, 0, 0]),
        pytest.approx([6 / 13, 4 / 13, 1 / 13, 2 / 13]),
    ]
    torch.testing.assert_close(found.sum(1), torch.ones(3))


def test_codes_that_an_attribute_does_not_have_are_impossible(node_denoiser, generator):
    state, codes, segments = layers(generator)
    logits = node_denoiser(state, codes, segments)
    assert logits.shape == (4, 3, 4)
    for column, counts in enumerate(COUNTS):
        assert logits[:, column, : len(counts)].isfinite().all()
        assert logits[:, column, len(counts) :].isinf().all()


def test_nodes_see_the_others_of_their_layer_alone(node_denoiser, generator):
    state, codes, segments = layers(generator)
    together = node_denoiser(state, codes, segments)
    first = node_denoiser(state[:1], codes[:3], Segments.from_ptr(torch.tensor([0, 3])))
    second = node_denoiser(state[1:], codes[3:], Segments.from_ptr(torch.tensor([0, 1])))
    torch.testing.assert_close(together, torch.cat([first, second]))
    state, codes, segments = layers(generator)
    plain = node_denoiser(state, codes, segments)
    codes[1, 0] = (codes[1, 0] + 1) % 3
    moved = (node_denoiser(state, codes, segments) != plain).flatten(1).any(1)
    assert moved.tolist() == [True, True, True, False]


def test_without_blocks_nodes_are_alone(sizes, generator):
    torch.manual_seed(0)
    denoiser = NodeDenoiser(sizes, COUNTS, NodeConfig(width=8, rounds=0, blocks=0, steps=2))
    state, codes, segments = layers(generator)
    plain = denoiser(state, codes, segments)
    codes[1, 0] = (codes[1, 0] + 1) % 3
    moved = (denoiser(state, codes, segments) != plain).flatten(1).any(1)
    assert moved.tolist() == [False, True, False, False]


def test_the_loss_of_a_model_that_knows_nothing_is_the_entropy_of_its_guess(
    node_denoiser, generator
):
    state, codes, segments = layers(generator)
    with torch.no_grad():
        node_denoiser.head.weight.zero_()
        node_denoiser.head.bias.zero_()
    term = node_denoiser.loss(state, codes, segments.ptr, torch.Generator().manual_seed(0))
    assert term.count == 12
    wanted = 4 * sum(torch.tensor(float(len(counts))).log() for counts in COUNTS)
    torch.testing.assert_close(term.total, wanted)


def test_a_batch_without_new_nodes_has_a_loss_of_zero(node_denoiser):
    none = torch.zeros(0, 3, dtype=torch.int64)
    term = node_denoiser.loss(torch.zeros(2, 8), none, torch.tensor([0, 0, 0]), torch.Generator())
    assert (term.total.item(), term.count.item(), term.mean().item()) == (0, 0, 0)


def test_a_block_adds_to_its_rows_and_follows_their_order(generator):
    torch.manual_seed(0)
    block, rows = DenoiserBlock(8, 2), torch.randn(5, 8, generator=generator)
    segments, order = Segments.from_ptr(torch.tensor([0, 4, 5])), torch.tensor([2, 0, 3, 1, 4])
    torch.testing.assert_close(block(rows[order], segments), block(rows, segments)[order])
    with torch.no_grad():
        for part in (block.attention.output, block.mlp[2]):
            part.weight.zero_()
            part.bias.zero_()
    assert torch.equal(block(rows, segments), rows)


def test_parameters_of_the_denoiser_learn(node_denoiser, generator):
    """The encoder of the prefix is tested on its own."""
    state, codes, segments = layers(generator)
    node_denoiser.loss(
        state, codes, segments.ptr, torch.Generator().manual_seed(0)
    ).total.backward()
    idle = {
        name.split(".")[0] for name, p in node_denoiser.named_parameters()
        if p.grad is None or not p.grad.any()
    }  # fmt: skip
    assert idle == {"encoder"}
