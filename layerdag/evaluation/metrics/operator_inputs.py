"""Operators whose inputs a program could not have: a backward pass of nothing, a step from nowhere.

By names of operators alone. A backward operator ("aten::silu_backward",
"aten::_softmax_backward_data") is given what its forward operator computed, or the gradient of
what came of it; so the forward operator ("aten::silu", "aten::_softmax") is among its ancestors. An
operator that only optimizers call ("aten::addcdiv_", "aten::_fused_adamw_") is given a gradient, so
some backward operator is. The words of the data set decide what is checked: a backward operator
whose forward operator is not among them (a view, such as "aten::select") is left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import final

import numpy as np

from layerdag.dag.graph_set import GraphSet
from layerdag.evaluation.metrics.base import (
    AttributeMetrics,
    AttributeView,
    Goal,
    GraphMean,
    Metric,
    fraction_by_graph,
)
from layerdag.evaluation.metrics.neighborhoods import edges_by_layer
from layerdag.hardware.operators import base_name
from layerdag.schema.attributes import CategoryAttribute

Needs = tuple[tuple[int, tuple[int, ...]], ...]
"""Code of each operator that is checked, and codes of which one must be among its ancestors."""

# Elementwise kernels that step parameters; a gradient may also be scaled by mul_ or summed by add_.
_STEPS = frozenset(
    f"{start}{kernel}_"
    for start in ("", "_")
    for kernel in (
        *("fused_adam", "fused_adamw", "fused_sgd", "fused_adagrad", "fused_lamb"),
        *("addcdiv", "foreach_addcdiv"),
    )
)
# Backward operators that are not called after their forward operators.
_CALLED = {"threshold": ("relu", "threshold", "clamp_min")}
_MAX_KINDS = 64


@final
@dataclass(frozen=True)
class MissingInputs(GraphMean):
    """Fraction of certain operators of a graph without a needed ancestor, mean over graphs.

    Graphs without such operators are left out.
    """

    needs: Needs = field(kw_only=True)

    def values(self, graphs: GraphSet) -> np.ndarray:
        """Return the fraction of each graph."""
        code_N = graphs.x_NA[:, 0]
        checked_N = np.zeros(graphs.num_nodes, dtype=bool)
        missing_N = np.zeros(graphs.num_nodes, dtype=bool)
        for first in range(0, len(self.needs), _MAX_KINDS):
            part = self.needs[first : first + _MAX_KINDS]
            above_N = _kinds_above(graphs, [needed for _, needed in part])
            for kind, (code, _) in enumerate(part):
                has_code_N = code_N == code
                checked_N |= has_code_N
                missing_N |= has_code_N & (above_N >> np.uint64(kind) & np.uint64(1) == 0)
        return fraction_by_graph(missing_N, graphs.graph_N, graphs, checked_N)


@final
@dataclass(frozen=True)
class OperatorInputs(AttributeMetrics):
    """Metrics of impossible inputs, as far as the words of the first attribute have such names."""

    name: str = "operator_inputs"
    description: str = "operators whose inputs no program could give them"
    goal: Goal = Goal.MINIMIZE
    upper: float = 1.0

    def of(self, attributes: Sequence[AttributeView]) -> tuple[Metric, ...]:
        """Return those for which there are operators."""
        first = attributes[0].attribute if attributes else None
        if not isinstance(first, CategoryAttribute):
            return ()
        found = []
        if backward := backward_needs(first.values):
            what = "backward operators without their forward operator among their ancestors"
            found.append(_missing("backward_without_forward", what, backward))
        if steps := optimizer_inputs(first.values):
            what = "optimizer steps without a backward operator among their ancestors"
            found.append(_missing("step_without_gradient", what, steps))
        return tuple(found)


def _missing(name: str, what: str, needs: Needs) -> MissingInputs:
    return MissingInputs(name, what, Goal.MINIMIZE, upper=1.0, needs=needs)


def backward_needs(operators: Sequence[str]) -> Needs:
    """Return the backward operators among words whose forward operators are also among them."""
    code_of = _codes_by_stem(operators)
    found = []
    for code, operator in enumerate(operators):
        stem = _stem_of_backward(base_name(operator))
        forward = _forward_codes(stem, code_of) if stem else ()
        if forward:
            found.append((code, forward))
    return tuple(found)


def optimizer_inputs(operators: Sequence[str]) -> Needs:
    """Return the operators that step parameters, each with all backward operators."""
    backward = tuple(
        code for code, operator in enumerate(operators) if _stem_of_backward(base_name(operator))
    )
    if not backward:
        return ()
    steps = [code for code, operator in enumerate(operators) if base_name(operator) in _STEPS]
    return tuple((code, backward) for code in steps)


def _stem_of_backward(name: str) -> str:
    """Return what stands before "_backward", "_backward_data" or "_backward1"; "" if none does."""
    stem, _, rest = name.rpartition("_backward")
    return stem if rest in ("", "_data") or rest.isdecimal() else ""


def _codes_by_stem(operators: Sequence[str]) -> Mapping[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for code, operator in enumerate(operators):
        found[base_name(operator)] = (*found.get(base_name(operator), ()), code)
    return found


def _forward_codes(stem: str, code_of: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    """Return the codes of the forward operator of a backward operator's stem, in place or not.

    That of "embedding_dense" is "embedding": a stem may go on after the forward operator's name.
    """
    parts = stem.split("_")
    for end in range(len(parts), 0, -1):
        name = "_".join(parts[:end])
        names = _CALLED.get(name, (name,))
        forms = [f"{one}{ending}" for one in names for ending in ("", "_", "_forward")]
        codes = tuple(code for form in forms for code in code_of.get(form, ()))
        if codes:
            return codes
    return ()


def _kinds_above(graphs: GraphSet, kinds: Sequence[Sequence[int]]) -> np.ndarray:
    own_N = np.zeros(graphs.num_nodes, dtype=np.uint64)
    for kind, codes in enumerate(kinds):
        own_N |= np.isin(graphs.x_NA[:, 0], codes).astype(np.uint64) << np.uint64(kind)
    above_N = np.zeros(graphs.num_nodes, dtype=np.uint64)
    for source, target in edges_by_layer(graphs.edge_index_2E, graphs.layer_N):
        np.bitwise_or.at(above_N, target, above_N[source] | own_N[source])
    return above_N
