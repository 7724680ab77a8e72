"""Costs of the embedding of time step and label that conditions a diffusion transformer."""

from collections.abc import Callable

from layerdag.workloads.symbolic.costs._costs import Costs
from layerdag.workloads.symbolic.costs._linear import Cost, Linear
from layerdag.workloads.symbolic.shapes import TIME_FREQUENCIES


def condition(costs: Costs) -> Cost:
    """Return the cost of the embedding: a network of two layers, and a look-up."""
    return _time(costs, costs.linear)


def condition_back(costs: Costs) -> Cost:
    """Return that of the gradients of both layers' weights, and of the second one's input."""
    operations, moved = _time(costs, costs.linear_dw)
    second = Linear(costs.shape.hidden, costs.shape.hidden)
    more, further = costs.linear_dx(second, costs.sequences)
    return operations + more, moved + further


def _time(costs: Costs, product: Callable[[Linear, int], Cost]) -> Cost:
    hidden = costs.shape.hidden
    layers = (Linear(TIME_FREQUENCIES, hidden), Linear(hidden, hidden))
    operations, moved = zip(*(product(layer, costs.sequences) for layer in layers), strict=True)
    return sum(operations), sum(moved)
