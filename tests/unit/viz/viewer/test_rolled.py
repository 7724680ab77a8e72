"""Repeated blocks drawn once."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from laws import tried
from trace_examples import comp

from layerdag.traces.chakra import build_trace
from layerdag.viz import GraphView, view_of_trace
from layerdag.viz.viewer import rolled_graph


def chain(*names: str) -> GraphView:
    """Return a view of nodes in a row."""
    return view_of_trace(
        build_trace([comp(i, *range(max(i - 1, 0), i), name=n) for i, n in enumerate(names)])
    )


def layers(count: int, block: tuple[str, ...] = ("norm", "mm", "act")) -> GraphView:
    inner = [f"{name}.{layer}" for layer in range(count) for name in block]
    return chain("embedding", *inner, "loss")


def test_of_equal_layers_one_is_drawn_with_their_number() -> None:
    view = layers(10)
    found = rolled_graph(view)
    assert [view.labels[row] for row in found.row_M] == [
        "embedding", "norm.0", "mm.0", "act.0", "loss",
    ]  # fmt: skip
    assert found.copies_M.tolist() == [1, 10, 10, 10, 1]
    (block,) = found.blocks
    assert (block.count, block.period, block.row_K) == (10, 3, (1, 2, 3))


def test_edges_lead_into_and_out_of_the_block_and_back_to_its_start() -> None:
    found = rolled_graph(layers(10))
    assert found.edge_index_2E.T.tolist() == [[0, 1], [1, 2], [2, 3], [3, 4]]
    assert found.back_2B.T.tolist() == [[3, 1]]
    assert found.layer_M.tolist() == [0, 1, 2, 3, 4]


def test_blocks_inside_a_block_are_rolled_up_too() -> None:
    micro_batches = [
        name
        for batch in range(3)
        for name in (
            f"start.F{batch}",
            *(f"{op}.{layer}.F{batch}" for layer in range(4) for op in ("norm", "mm", "act")),
        )
    ]
    found = rolled_graph(chain(*micro_batches))
    assert [(block.count, block.period) for block in found.blocks] == [(3, 13), (4, 3)]
    assert found.copies_M.tolist() == [3, 12, 12, 12]
    outer, inner = found.blocks
    assert set(inner.row_K) < set(outer.row_K)


@pytest.mark.parametrize("names", [("a", "b", "c", "d"), ("a", "a", "a"), ("a", "b", "a", "b")])
def test_what_hardly_repeats_stays_as_it_is(names: tuple[str, ...]) -> None:
    found = rolled_graph(chain(*names))
    assert found.blocks == ()
    assert found.row_M.tolist() == list(range(len(names)))


def test_numbers_that_are_part_of_a_name_tell_operators_apart() -> None:
    assert rolled_graph(chain(*(f"conv{i}x{i}d" for i in range(8)))).blocks == ()


@tried(40)
@given(st.lists(st.sampled_from("abc"), max_size=40), st.randoms(use_true_random=False))
def test_every_node_has_one_that_stands_for_it_and_what_is_drawn_has_no_cycle(names, random):
    nodes = [
        comp(i, *{random.randrange(i) for _ in range(2) if i}, name=name)
        for i, name in enumerate(names)
    ]
    view = view_of_trace(build_trace(nodes))
    found = rolled_graph(view)
    assert found.copies_M.sum() == view.num_nodes
    drawn_N = found.row_M[found.of_N] if view.num_nodes else np.zeros(0, int)
    assert (view.kind_N[drawn_N] == view.kind_N).all()
    source, target = found.edge_index_2E
    assert (found.layer_M[source] < found.layer_M[target]).all()
    # No edge is lost: it is drawn, leads back, or stays on one node.
    pairs = {*map(tuple, found.edge_index_2E.T.tolist()), *map(tuple, found.back_2B.T.tolist())}
    for a, b in found.of_N[view.edge_index_2E].T.tolist():
        assert a == b or (a, b) in pairs
