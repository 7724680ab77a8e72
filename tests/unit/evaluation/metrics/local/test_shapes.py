"""Numbers of matrix products that fit no shapes: small graphs by hand."""

import numpy as np
import pytest
import torch

from layerdag.datasets.schema import CategoryAttribute, NumericAttribute
from layerdag.evaluation import compare
from layerdag.evaluation.metrics import AttributeView
from layerdag.evaluation.metrics.local import ShapeViolations
from layerdag.graph import DAG

WORDS = CategoryAttribute("op", ("aten::mm", "aten::convolution", "aten::add"))
MM, CONVOLUTION, ADD = range(3)
Node = tuple[int, float, float]


def exact(name: str, values: set[float]) -> NumericAttribute:
    """An attribute that has a bin of its own for each value."""
    return NumericAttribute(name, name, tuple((value,) * 5 for value in sorted(values)))


def values(
    made: list[list[Node]], train: list[list[Node]] | None = None
) -> dict[str, float | None]:
    """Figures of graphs whose nodes have an operator, FLOPs and bytes."""
    sound = [[product(2, 3, 4), product(8, 8, 8)]]
    real = train or sound
    nodes = [node for graphs in (made, real) for graph in graphs for node in graph]
    flops = exact("flops", {node[1] for node in nodes if np.isfinite(node[1])})
    moved = exact("bytes", {node[2] for node in nodes if np.isfinite(node[2])})
    views = [
        AttributeView("op", attribute=WORDS),
        *(AttributeView(one.name, ordered=True, attribute=one) for one in (flops, moved)),
    ]
    sets = [[encoded(graph, flops, moved) for graph in graphs] for graphs in (real, real, made)]
    report = compare(*sets, views, metrics=[ShapeViolations()], replicates=3)
    if train is None:
        assert all(row.reference.value == 0.0 for row in report.rows if not row.generated.error)
    return {row.metric.name.partition(":")[2]: row.generated.value for row in report.rows}


def product(m: int, n: int, k: int, op: int = MM) -> Node:
    return op, 2.0 * m * n * k, 4.0 * (m * k + k * n + m * n)


def encoded(nodes: list[Node], flops: NumericAttribute, moved: NumericAttribute) -> DAG:
    (f_N, _), (b_N, _) = (
        attribute.encode(np.array([node[place] for node in nodes]))
        for place, attribute in ((1, flops), (2, moved))
    )
    x_NA = np.stack([[node[0] for node in nodes], f_N, b_N], axis=1)
    return DAG.build(torch.from_numpy(x_NA), torch.zeros((2, 0), dtype=torch.int64))


def test_products_of_any_shapes_break_no_law() -> None:
    shapes = [(1, 1, 1), (1, 1, 900), (64, 64, 64), (512, 3, 7), (2, 1000, 1)]
    assert values([[product(*shape) for shape in shapes]]) == {
        "bytes": 0.0,
        "flops": 0.0,
        "bounds": 0.0,
    }


def test_bytes_that_are_no_whole_elements_are_found() -> None:
    good, bad = product(8, 8, 8), (MM, 1024.0, 770.0)
    assert values([[good, bad, bad, bad]])["bytes"] == pytest.approx(0.75)
    assert values([[good, bad], [good]])["bytes"] == pytest.approx(0.25)


def test_the_size_of_an_element_is_that_of_training_products() -> None:
    halves = [[(MM, 1024.0, 386.0), product(8, 8, 8)]]
    assert values([[(MM, 1024.0, 770.0)]], train=halves)["bytes"] == 0.0
    assert values([[(MM, 1024.0, 771.0)]], train=halves)["bytes"] == 1.0


def test_odd_operations_are_found_also_of_convolutions() -> None:
    assert values([[(MM, 1023.0, 768.0), product(8, 8, 8)]])["flops"] == pytest.approx(0.5)
    assert values([[(CONVOLUTION, 1023.0, 768.0)]])["flops"] == 1.0


def test_too_few_and_too_many_bytes_for_the_operations_are_found() -> None:
    assert values([[(MM, 1024.0, 764.0), product(8, 8, 8)]])["bounds"] == pytest.approx(0.5)
    assert values([[(MM, 2.0, 44.0)]])["bounds"] == 1.0


def test_other_operators_may_do_what_they_like_and_so_may_what_is_absent() -> None:
    assert values([[product(8, 8, 8), (ADD, 7.0, 3.0)]])["bytes"] == 0.0
    absent = values([[(MM, np.nan, np.nan), product(8, 8, 8)]])
    assert absent == {"bytes": 0.0, "flops": 0.0, "bounds": 0.0}
    assert values([[(ADD, 7.0, 3.0)]]) == {"bytes": None, "flops": None, "bounds": None}


def test_numbers_that_positions_do_not_tell_are_left_out() -> None:
    wide = NumericAttribute("bytes", "bytes", ((1e9, 2e9, 3e9, 4e9, 5e9),))
    near = NumericAttribute("bytes", "bytes", ((100.0, 200.0, 300.0, 400.0, 500.0),))
    flops = exact("flops", {1024.0})
    for moved, value, expected in ((wide, 3e9 + 1, None), (near, 301, 1.0), (near, 90, None)):
        views = [
            AttributeView("op", attribute=WORDS),
            *(AttributeView(one.name, ordered=True, attribute=one) for one in (flops, moved)),
        ]
        code_1, u_1 = moved.encode(np.array([value]))
        dag = DAG.build(
            torch.tensor([[MM, 1, int(code_1[0])]]),
            torch.zeros((2, 0), dtype=torch.int64),
            u_NA=torch.tensor([[0.0, 0.0, float(u_1[0])]]),
        )
        real = DAG.build(
            torch.tensor([[MM, 1, 1]]),
            torch.zeros((2, 0), dtype=torch.int64),
            u_NA=torch.tensor([[0.0, 0.0, float(near.encode(np.array([400]))[1][0])]]),
        )
        report = compare([real], [real], [dag], views, metrics=[ShapeViolations()], replicates=2)
        if expected is not None:
            assert report.row("shape_violation:bytes").generated.value == expected
        else:
            assert report.row("shape_violation:bytes").generated.error


def test_graphs_without_operators_flops_or_bytes_have_no_such_metric() -> None:
    metrics = ShapeViolations()
    flops, moved = (
        AttributeView(name, ordered=True, attribute=exact(name, {1.0}))
        for name in ("flops", "bytes")
    )
    op = AttributeView("op", attribute=WORDS)
    assert len(metrics.of([op, flops, moved])) == 3
    assert metrics.of([op, flops]) == ()
    assert metrics.of([AttributeView("op"), flops, moved]) == ()
    other = AttributeView("op", attribute=CategoryAttribute("op", ("relu", "add")))
    assert metrics.of([other, flops, moved]) == ()
