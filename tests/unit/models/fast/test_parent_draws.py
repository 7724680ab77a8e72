"""Which earlier nodes a decision on a parent can choose."""

import pytest
import torch
from small_models import request, small_dags, small_model

from layerdag.models.fast.layout import NEVER
from layerdag.models.fast.parent_draws import ParentSpan
from layerdag.models.fast.sampling_inputs import Extent, SamplingTask
from layerdag.models.fast.sampling_rounds import SamplingRounds
from layerdag.models.fast.sampling_rows import Node
from layerdag.models.fast.tensor_sampler import TensorSampler
from layerdag.models.fast.tokens import Feature

NODES, SIDE = 9, 32
"""Earlier nodes, each a layer of its own, and the steps of each of two uniforms on a grid."""


def parents(block: int, *spans: tuple[int, int], full: tuple[int, ...] = ()) -> list[list[int]]:
    """Return which nodes become parents of node 10, in a graph for each span.

    States are zero, so that candidates have about the same scores; positions ``full`` may have no
    more children.
    """
    model, rows = small_model(small_dags(), block=block), len(spans)
    with torch.inference_mode():
        plain = TensorSampler(model, request(rows)).task
        task = SamplingTask(**(vars(plain) | {"options": SIDE * SIDE}))
        tokens = max(12 // block * block, 2 * block)
        rounds = SamplingRounds(task, Extent(rows, tokens, 20, block))
        graphs = rounds.graphs
        graphs.feature_BF[:, Feature.POSITION] = NODES + 1
        graphs.feature_BF[:, Feature.LAYER] = NODES
        for position in range(1, NODES + 1):
            graphs.node_BTF[:, position, Node.OUT_DEGREE] = 3
            graphs.node_BTF[:, position, Node.ROOM] = 0 if position in full else 5
            graphs.node_BTF[:, position, Node.LAST] = NEVER
            graphs.node_BTF[:, position, Node.LAYER] = position - 1
        low_X, high_X = torch.tensor(spans).T
        grid = (torch.arange(SIDE) + 0.5).double() / SIDE
        uniform_P2 = torch.cartesian_prod(grid, grid).repeat(rows, 1)
        drawn_P = rounds.parents.draw(
            torch.zeros(rows, model.heads.context.out_features),
            rounds.parents.window(),
            ParentSpan(low_X, high_X, torch.full_like(low_X, NEVER)),
            uniform_P2,
        )
    return [sorted(set(row)) for row in drawn_P.view(rows, -1).tolist()]


@pytest.mark.parametrize("block", [1, 2, 3, 4, 64])
def test_exactly_the_nodes_of_the_range_can_be_parents(block):
    spans = [(1, 10), (3, 4), (2, 7), (9, 10)]
    for (low, high), found in zip(spans, parents(block, *spans), strict=True):
        assert found == list(range(low, high))


@pytest.mark.parametrize("block", [1, 2, 64])
def test_a_node_with_children_enough_is_ruled_out_if_there_is_another(block):
    assert parents(block, (7, 10), full=(8, 9)) == [[7]]


def test_where_all_have_children_enough_none_is_ruled_out():
    assert parents(64, (7, 10), full=(7, 8, 9)) == [[7, 8, 9]]


def test_an_older_block_counts_as_another_candidate():
    """The window (8, 9) is full, so the parent comes from an older block."""
    assert parents(2, (5, 10), full=(8, 9)) == [[5, 6, 7]]
    # Inside a block, too: of 4 and 5 the first may have more children, or both may not.
    assert parents(2, (4, 6), full=(5,)) == [[4]]
    assert parents(2, (4, 6), full=(4, 5)) == [[4, 5]]
