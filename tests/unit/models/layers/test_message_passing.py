import torch

from layerdag.models.layers import MessagePassingLayer

EDGES = torch.tensor([[0, 1], [1, 2]])
KINDS = torch.tensor([0, 1])


def test_a_layer_follows_a_permutation_of_the_nodes(generator: torch.Generator):
    layer = MessagePassingLayer(8, 2)
    rows = torch.randn(4, 8, generator=generator)
    order = torch.tensor([2, 0, 3, 1])
    rank = torch.argsort(order)
    torch.testing.assert_close(
        layer(rows[order], rank[EDGES], KINDS), layer(rows, EDGES, KINDS)[order]
    )


def test_messages_pass_both_ways_and_one_edge_far(generator: torch.Generator):
    layer = MessagePassingLayer(8, 1)
    rows = torch.randn(4, 8, generator=generator)
    changed = rows.clone()
    changed[1] += 1
    moved = (layer(changed, EDGES, KINDS) - layer(rows, EDGES, KINDS)).abs().amax(1) > 0
    assert moved.tolist() == [True, True, True, False]


def test_direction_and_kind_of_an_edge_matter(generator: torch.Generator):
    layer = MessagePassingLayer(8, 2)
    rows = torch.randn(3, 8, generator=generator)
    plain = layer(rows, EDGES, KINDS)
    assert not torch.allclose(layer(rows, EDGES.flip(0), KINDS), plain)
    assert not torch.allclose(layer(rows, EDGES, 1 - KINDS), plain)


def test_with_one_kind_there_is_no_embedding_of_kinds():
    assert "kinds.weight" not in MessagePassingLayer(8, 1).state_dict()
