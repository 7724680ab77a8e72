"""What the operators of a trace do, by what their nodes state or by their exact names.

A node states its kind (``op_type``) where a trace is made by ``layerdag workload`` or by STAGE.
Elsewhere the name is looked up in the table of PyTorch's operators. An operator that is in neither
is of no kind, and whoever needs one says so.
"""

import numpy as np

from layerdag.hardware.operators import OperatorKind, operator_kind
from layerdag.traces.trace import OPERATOR, Trace


def operator_kinds(trace: Trace) -> list[OperatorKind | None]:
    """Return the kind of each node, whatever its type."""
    stated_N, _ = trace.texts(OPERATOR)
    found = {pair: operator_kind(*pair) for pair in set(zip(trace.names(), stated_N, strict=True))}
    return [found[pair] for pair in zip(trace.names(), stated_N, strict=True)]


def of_kinds(trace: Trace, kinds: tuple[OperatorKind, ...]) -> np.ndarray:
    """Return which nodes are of one of some kinds, bool (N,)."""
    return np.array([kind in kinds for kind in operator_kinds(trace)], dtype=bool)
