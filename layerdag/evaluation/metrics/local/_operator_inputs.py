"""Operators whose inputs a program could not have: a backward pass of nothing, a step from nowhere.

By names of operators alone. A backward operator ("aten::silu_backward",
"aten::_softmax_backward_data") is given what its forward operator computed, or the gradient of
what came of it; so the forward operator ("aten::silu", "aten::_softmax") is among its ancestors. An
operator that only optimizers call ("aten::addcdiv_", "aten::_fused_adamw_") is given a gradient, so
some backward operator is. Which words a data set has decides what is looked at: a backward operator
whose forward operator is no word of the data set (a view, such as "aten::select") is left out.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import final

import numpy as np

from layerdag.datasets.schema import CategoryAttribute
from layerdag.evaluation import GraphSet
from layerdag.evaluation.metrics import AttributeMetrics, AttributeView, Goal, GraphMean, Metric
from layerdag.evaluation.metrics.local._layers import edges_by_layer

Needs = tuple[tuple[int, tuple[int, ...]], ...]
"""Code of each operator that is looked at, and codes of which one must be among its ancestors."""

_BACKWARD = re.compile(r"(?P<stem>.+)_backward(_data|\d*)$")
# Elementwise kernels that step parameters; a gradient may also be scaled by mul_ or summed by add_.
_STEP = re.compile(r"_?(fused_(adam|adamw|sgd|adagrad|lamb)|(foreach_)?addcdiv)_$")
# Backward operators that are not called after their forward operators.
_CALLED = {"threshold": ("relu", "threshold", "clamp_min")}
_MOST_KINDS = 64


@final
@dataclass(frozen=True)
class MissingInputs(GraphMean):
    """Fraction of certain operators of a graph without a needed ancestor, mean over graphs.

    Graphs without such operators are left out.

    Attributes:
        needs: The operators, and what each of them needs.
    """

    needs: Needs = field(kw_only=True)

    def values(self, graphs: GraphSet) -> np.ndarray:
        """Return the fraction of each graph.

        Raises:
            GraphError: If there is a cycle.
        """
        code_N = graphs.x_NA[:, 0]
        checked_N = np.zeros(graphs.num_nodes, dtype=bool)
        missing_N = np.zeros(graphs.num_nodes, dtype=bool)
        for first in range(0, len(self.needs), _MOST_KINDS):
            part = self.needs[first : first + _MOST_KINDS]
            above_N = _kinds_above(graphs, [needed for _, needed in part])
            for kind, (code, _) in enumerate(part):
                has_code_N = code_N == code
                checked_N |= has_code_N
                missing_N |= has_code_N & (above_N >> np.uint64(kind) & np.uint64(1) == 0)
        checked_B, missing_B = (
            np.bincount(graphs.graph_N, weights=flag_N, minlength=graphs.num_graphs)
            for flag_N in (checked_N, missing_N)
        )
        with np.errstate(invalid="ignore"):
            fraction_B: np.ndarray = missing_B / checked_B
        return fraction_B


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
        if steps := step_needs(first.values):
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
        match = _BACKWARD.match(stem_of(operator))
        forward = _forward_codes(match["stem"], code_of) if match else ()
        if forward:
            found.append((code, forward))
    return tuple(found)


def step_needs(operators: Sequence[str]) -> Needs:
    """Return the operators that step parameters, each with all backward operators."""
    backward = tuple(
        code for code, operator in enumerate(operators) if _BACKWARD.match(stem_of(operator))
    )
    if not backward:
        return ()
    steps = [code for code, operator in enumerate(operators) if _STEP.match(stem_of(operator))]
    return tuple((code, backward) for code in steps)


def stem_of(operator: str) -> str:
    """Return the name without namespace and overload: "aten::add.Tensor" is "add"."""
    return operator.rpartition("::")[2].partition(".")[0]


def _codes_by_stem(operators: Sequence[str]) -> Mapping[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for code, operator in enumerate(operators):
        found[stem_of(operator)] = (*found.get(stem_of(operator), ()), code)
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
    """Return which kinds of operators each node has among its ancestors, one bit each."""
    own_N = np.zeros(graphs.num_nodes, dtype=np.uint64)
    for kind, codes in enumerate(kinds):
        own_N |= np.isin(graphs.x_NA[:, 0], codes).astype(np.uint64) << np.uint64(kind)
    above_N = np.zeros(graphs.num_nodes, dtype=np.uint64)
    for source, target in edges_by_layer(graphs.edge_index_2E, graphs.layer_N):
        np.bitwise_or.at(above_N, target, above_N[source] | own_N[source])
    return above_N
