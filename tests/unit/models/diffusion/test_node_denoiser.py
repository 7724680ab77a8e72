"""Noise and predictions of the attributes of a new layer."""

import pytest
import torch

from layerdag.graph import GraphSizes
from layerdag.models.diffusion import NodeConfig
from layerdag.models.diffusion._node_denoiser import Block, NodeDenoiser, _marginals
from layerdag.models.layers import Segments

COUNTS = ((6, 0, 2), (1, 1), (5, 3, 0, 1))
STEPS = 6


@pytest.fixture
def denoiser(sizes: GraphSizes) -> NodeDenoiser:
    torch.manual_seed(0)
    return NodeDenoiser(sizes, COUNTS, NodeConfig(width=8, rounds=1, heads=2, steps=STEPS))


def layers(generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor, Segments]:
    """Return states, codes and segments of two layers, of 3 nodes and of one."""
    codes = torch.stack([torch.randint(len(c), (4,), generator=generator) for c in COUNTS], dim=1)
    return torch.randn(2, 8, generator=generator), codes, Segments.of(torch.tensor([0, 3, 4]))


def test_marginals_are_frequencies_with_one_count_more_for_each_code():
    found = _marginals(COUNTS)
    assert found.tolist() == [
        pytest.approx([7 / 11, 1 / 11, 3 / 11, 0]),
        pytest.approx([0.5, 0.5, 0, 0]),
        pytest.approx([6 / 13, 4 / 13, 1 / 13, 2 / 13]),
    ]
    torch.testing.assert_close(found.sum(1), torch.ones(3))


def test_codes_that_an_attribute_does_not_have_are_impossible(
    denoiser: NodeDenoiser, generator: torch.Generator
):
    state, codes, segments = layers(generator)
    logits = denoiser(state, codes, segments)
    assert logits.shape == (4, 3, 4)
    for column, counts in enumerate(COUNTS):
        assert logits[:, column, : len(counts)].isfinite().all()
        assert logits[:, column, len(counts) :].isinf().all()


def test_layers_of_other_prefixes_do_not_matter(denoiser: NodeDenoiser, generator):
    state, codes, segments = layers(generator)
    together = denoiser(state, codes, segments)
    first = denoiser(state[:1], codes[:3], Segments.of(torch.tensor([0, 3])))
    second = denoiser(state[1:], codes[3:], Segments.of(torch.tensor([0, 1])))
    torch.testing.assert_close(together, torch.cat([first, second]))


def test_each_node_of_a_layer_sees_the_others(denoiser: NodeDenoiser, generator: torch.Generator):
    state, codes, segments = layers(generator)
    plain = denoiser(state, codes, segments)
    codes[1, 0] = (codes[1, 0] + 1) % 3
    moved = (denoiser(state, codes, segments) != plain).flatten(1).any(1)
    assert moved.tolist() == [True, True, True, False]


def test_without_blocks_nodes_are_alone(sizes: GraphSizes, generator: torch.Generator):
    torch.manual_seed(0)
    denoiser = NodeDenoiser(sizes, COUNTS, NodeConfig(width=8, rounds=0, blocks=0, steps=2))
    state, codes, segments = layers(generator)
    plain = denoiser(state, codes, segments)
    codes[1, 0] = (codes[1, 0] + 1) % 3
    moved = (denoiser(state, codes, segments) != plain).flatten(1).any(1)
    assert moved.tolist() == [False, True, False, False]


def test_times_are_told_apart(denoiser: NodeDenoiser):
    found = denoiser.times(torch.arange(1, STEPS + 1))
    assert (torch.cdist(found, found) + torch.eye(STEPS)).min() > 1e-4


def test_the_loss_of_a_model_that_knows_nothing_is_the_entropy_of_its_guess(
    denoiser: NodeDenoiser, generator: torch.Generator
):
    state, codes, segments = layers(generator)
    with torch.no_grad():
        denoiser.head.weight.zero_()
        denoiser.head.bias.zero_()
    term = denoiser.loss(state, codes, segments.ptr, torch.Generator().manual_seed(0))
    assert term.count == 12
    wanted = 4 * sum(torch.tensor(float(len(counts))).log() for counts in COUNTS)
    torch.testing.assert_close(term.total, wanted)


def test_the_noise_of_the_loss_comes_from_the_generator_alone(
    denoiser: NodeDenoiser, generator: torch.Generator
):
    state, codes, segments = layers(generator)

    def loss(seed: int) -> float:
        noise = torch.Generator().manual_seed(seed)
        return denoiser.loss(state, codes, segments.ptr, noise).total.item()

    assert loss(1) == loss(1)
    assert len({loss(seed) for seed in range(5)}) == 5


def test_a_batch_without_new_nodes_has_a_loss_of_zero(denoiser: NodeDenoiser):
    none = torch.zeros(0, 3, dtype=torch.int64)
    term = denoiser.loss(torch.zeros(2, 8), none, torch.tensor([0, 0, 0]), torch.Generator())
    assert (term.total.item(), term.count.item(), term.mean().item()) == (0, 0, 0)


def test_a_block_adds_to_its_rows_and_follows_their_order(generator: torch.Generator):
    torch.manual_seed(0)
    block, rows = Block(8, 2), torch.randn(5, 8, generator=generator)
    segments, order = Segments.of(torch.tensor([0, 4, 5])), torch.tensor([2, 0, 3, 1, 4])
    torch.testing.assert_close(block(rows[order], segments), block(rows, segments)[order])
    with torch.no_grad():
        for part in (block.attention.output, block.mlp[2]):
            part.weight.zero_()
            part.bias.zero_()
    assert torch.equal(block(rows, segments), rows)


def test_parameters_of_the_denoiser_learn(denoiser: NodeDenoiser, generator: torch.Generator):
    """The encoder of the prefix is tested on its own."""
    state, codes, segments = layers(generator)
    denoiser.loss(state, codes, segments.ptr, torch.Generator().manual_seed(0)).total.backward()
    idle = {
        name.split(".")[0] for name, p in denoiser.named_parameters()
        if p.grad is None or not p.grad.any()
    }  # fmt: skip
    assert idle == {"encoder"}
