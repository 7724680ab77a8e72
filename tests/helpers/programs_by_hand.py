"""Programs of a few operators whose costs are worked out by hand, for the rules of `scale`."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from small_workloads import collective, integer, trace

from layerdag.traces.builder import NodeSpec
from layerdag.traces.trace import Attribute, CollectiveType, NodeType, Wire
from layerdag.workloads.scaling.program import EditableProgram

ITEM = 4  # bytes of an element where a trace states no format


def operator(node: int, name: str, costs: tuple[int, int], *deps: int) -> NodeSpec:
    """Return an operator with its operations and the elements that it reads and writes."""
    ops, elements = costs
    attributes = (
        Attribute("is_cpu_op", Wire.BOOL, False),
        integer("num_ops", ops),
        integer("tensor_size", ITEM * elements, Wire.UINT64),
    )
    return NodeSpec(node, name, NodeType.COMP, deps, attributes=attributes, duration_us=5)


def stating(spec: NodeSpec, kind: str) -> NodeSpec:
    """Return a node that states the kind of its operator, as those of ``layerdag workload`` do."""
    stated = Attribute("op_type", Wire.STRING, kind)
    return replace(spec, attributes=(*spec.attributes, stated))


def product(node: int, shape: tuple[int, int, int], *deps: int, name: str = "aten::mm") -> NodeSpec:
    """Return a product of (rows, inner) by (inner, columns)."""
    rows, inner, columns = shape
    elements = rows * inner + inner * columns + rows * columns
    return operator(node, name, (2 * rows * inner * columns, elements), *deps)


def gathers(node: int, elements: int, *deps: int) -> NodeSpec:
    """Return a gather of shards of so many elements."""
    return collective(node, *deps, kind=CollectiveType.ALL_GATHER, size=ITEM * elements)


def scatters(node: int, elements: int, *deps: int) -> NodeSpec:
    """Return a scatter of a whole of so many elements."""
    return collective(node, *deps, kind=CollectiveType.REDUCE_SCATTER, size=ITEM * elements)


def sums(node: int, elements: int, *deps: int) -> NodeSpec:
    """Return an all-reduce of so many elements."""
    return collective(node, *deps, size=ITEM * elements)


def program(*nodes: NodeSpec, ranks: Sequence[int] = (0, 1)) -> EditableProgram:
    """Return the program of these nodes."""
    return EditableProgram.from_trace(trace(*nodes), ranks)


def flags(made: EditableProgram, *rows: int) -> np.ndarray:
    """Return which nodes are those, bool (N,)."""
    rows_N = np.zeros(made.num_nodes, dtype=bool)
    rows_N[list(rows)] = True
    return rows_N


def costs(made: EditableProgram, row: int) -> tuple[int, int]:
    """Return the operations of a node, and the elements that it reads and writes."""
    return int(made.ops_N[row]), int(made.bytes_N[row]) // ITEM
