"""Which runs of equal blocks are layers, and how the numbers in their names go on."""

from hypothesis import given, strategies as st
from laws import tried
from symbolic_jobs import GPT, small

from layerdag.graph import Run
from layerdag.workloads.scaling._blocks import colors, covered_by_count, number_steps, renumbered
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
