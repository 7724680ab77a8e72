"""Which runs of equal blocks are layers, and how the numbers in their names go on."""

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st
from laws import tried
from programs_by_hand import operator, product, program, sums
from symbolic_jobs import GPT, small

from layerdag.errors import TraceError, UsageError
from layerdag.graph import Run
from layerdag.workloads.scaling._blocks import (
    Layers,
    colors,
    covered_by_count,
    number_steps,
    renumbered,
)
from layerdag.workloads.scaling._program import Program


@tried(60)
@given(st.integers(0, 90), st.integers(-9, 9), st.integers(2, 9))
def test_names_that_count_evenly_are_made_again_from_their_steps(
    first: int, step: int, count: int
) -> None:
    low = first + 9 * 9  # so that no number falls below zero
    names = [f"layer.{low + step * at}.weight2" for at in range(count)]
    steps = number_steps(names)
    assert steps == [(low, step), (2, 0)]
    for at, name in enumerate(names):
        assert renumbered(names[0], [a + s * at for a, s in steps]) == name


def test_one_name_has_no_step_and_a_name_without_numbers_has_none_to_count() -> None:
    assert number_steps(["layer.7"]) == [(7, 0)]
    assert number_steps(["norm", "norm"]) == []


def test_blocks_of_one_count_are_added_and_tiny_ones_are_left_out() -> None:
    runs = [Run(start=0, period=5, count=4), Run(start=30, period=3, count=4)]
    runs += [Run(start=50, period=2, count=9), Run(start=70, period=6, count=2)]
    # 5 * 4 + 3 * 4 nodes in four blocks, 6 * 2 in two; blocks of two nodes are too small.
    assert covered_by_count(runs) == {4: 32, 2: 12}


def test_nodes_of_one_color_agree_in_costs_and_kind() -> None:
    program = Program.of(small(GPT, data=2).workload().traces[0], (0, 1))
    first: dict[int, tuple[int, ...]] = {}
    columns = (program.trace.type_N, program.ops_N, program.bytes_N, program.comm_N)
    for color, *costs in zip(colors(program).tolist(), *columns, strict=True):
        assert first.setdefault(color, tuple(costs)) == tuple(costs)
    assert 1 < len(first) < program.num_nodes


# ---- layers of programs by hand ----


def chain(*names: str) -> Program:
    """Return products and other operators, each on the result of the one before."""
    nodes = [
        product(node, (2, 3, 3), *range(max(node - 1, 0), node))
        if name.endswith("mm")
        else operator(node, name, (6, 12), *range(max(node - 1, 0), node))
        for node, name in enumerate(names)
    ]
    named = [replace(spec, name=name) for spec, name in zip(nodes, names, strict=True)]
    return program(*named)


def inference(layers: int) -> Program:
    """Return a look-up, layers of three operators, and a last norm."""
    body = [f"layer.{at}.{word}" for at in range(layers) for word in ("mm", "gelu", "add")]
    return chain("look-up", *body, "norm")


def training(layers: int) -> Program:
    """Return layers of three operators forward, a loss, and of four backward."""
    forward = [f"layer.{at}.{word}" for at in range(layers) for word in ("mm", "gelu", "add")]
    words = ("add.dx", "gelu.dx", "dx.mm", "dw.mm")
    backward = [f"layer.{at}.{word}" for at in reversed(range(layers)) for word in words]
    return chain("look-up", *forward, "loss", *backward, "adam")


@pytest.mark.parametrize("layers", [2, 3, 7])
def test_numbered_blocks_are_layers(layers: int) -> None:
    found = Layers.of(inference(layers)).blocks
    assert found.runs == (Run(1, 3, layers),)
    assert (found.count, found.backward) == (layers, (False,))


def test_a_backward_pass_has_the_deepest_layer_first() -> None:
    found = Layers.of(training(4)).blocks
    # Twelve nodes forward from 1 on, a loss at 13, sixteen backward.
    assert found.runs == (Run(1, 3, 4), Run(14, 4, 4))
    assert found.backward == (False, True)


def test_blocks_without_numbers_are_layers_in_their_order() -> None:
    found = Layers.of(chain("look-up", *["aten::mm", "aten::gelu", "aten::add"] * 5)).blocks
    assert found.runs == (Run(1, 3, 5),)
    assert found.backward == (False,)


def test_folded_layers_are_unrolled_to_the_program_that_they_were() -> None:
    made = training(3)
    unrolled = Layers.of(made).blocks.unrolled()
    assert unrolled.row_N.tolist() == list(range(made.num_nodes))
    edges = zip(*unrolled.edge_index_2E.tolist(), strict=True)
    assert set(edges) == set(zip(*made.data_edges_2E.tolist(), strict=True))


def test_nothing_that_repeats_is_no_layer() -> None:
    with pytest.raises(UsageError, match="no block of operators repeats") as error:
        Layers.of(chain("look-up", "aten::mm", "aten::gelu", "norm"))
    assert str(error.value).startswith("job.0.et: ")


def test_blocks_of_two_nodes_are_too_small_to_be_layers() -> None:
    with pytest.raises(UsageError, match="no block of operators repeats"):
        Layers.of(chain("look-up", *["aten::mm", "aten::gelu"] * 4))


def test_a_stated_count_that_is_not_there_is_told_with_what_is() -> None:
    with pytest.raises(UsageError, match="no blocks of operators repeat 4 times") as error:
        Layers.of(inference(6), 4)
    assert "found 6 x (18 nodes)" in str(error.value)


def test_two_counts_of_equal_weight_are_asked_back() -> None:
    names = ["aten::mm", "aten::gelu", "aten::add"] * 5 + ["loss"]
    made = chain(*names, *["b.mm", "aten::relu", "aten::mul", "aten::sum", "aten::exp"] * 3)
    with pytest.raises(UsageError, match="several numbers of blocks repeat") as error:
        Layers.of(made)
    told = str(error.value)
    assert "5 x (15 nodes)" in told
    assert "3 x (15 nodes)" in told
    assert "Say with --layers-now" in told


def test_a_backward_pass_that_does_not_repeat_is_refused() -> None:
    """One bucket of gradients cuts each layer in another place."""
    forward = [f"layer.{at}.{word}" for at in range(3) for word in ("mm", "gelu", "add")]
    backward = ["2.dw.mm", "bucket", "2.dx.mm", "1.dx.mm", "1.dw.mm", "flush", "0.dw.mm", "0.dx.mm"]
    with pytest.raises(TraceError, match="the backward pass is not made of such blocks"):
        Layers.of(chain(*forward, "loss.dx", *[f"layer.{name}" for name in backward]))


def test_nodes_with_other_costs_are_of_another_color() -> None:
    made = program(
        operator(0, "layer.0", (6, 12)), operator(1, "layer.1", (6, 12)),
        operator(2, "layer.2", (6, 13)), operator(3, "layer.3", (7, 12)), sums(4, 12), sums(5, 13),
    )  # fmt: skip
    assert colors(made).tolist() == [0, 0, 1, 2, 3, 4]


def test_uneven_numbers_and_other_words_do_not_count() -> None:
    assert number_steps(["layer.0", "layer.1", "layer.3"]) == []
    assert number_steps(["layer.0", "block.1"]) == []
    assert number_steps(["a.4.b.0", "a.3.b.0", "a.2.b.0"]) == [(4, -1), (0, 0)]
