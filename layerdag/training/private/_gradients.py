"""Gradients of each unit on its own, from one backward pass over the graphs of many.

The gradient of a linear map's parameters is a sum over the rows that it is given, and each row
belongs to one graph (Goodfellow, arXiv 1510.01799). A loop over units gives the same, several times
as slowly.

Shape letters: G graphs, P tuned parameters, U units.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from layerdag.graph import DAGBatch
from layerdag.models import DAGModel
from layerdag.models.autoregressive import graphs_of_rows
from layerdag.training.private._adapters import Adapters
from layerdag.training.private._units import Units


@dataclass(eq=False)
class _Calls:
    """Inputs and outputs of a linear map in one forward pass."""

    given: list[Tensor] = field(default_factory=list)
    made: list[Tensor] = field(default_factory=list)


def unit_gradients(
    adapters: Adapters, batch: DAGBatch, unit_G: Int[Tensor, " G"], units: int
) -> tuple[Float[Tensor, "U P"], float]:
    """Return the gradient of each unit's nats, and the nats of all: private, both.

    Args:
        adapters: What is tuned, of a model in evaluation mode.
        batch: Some graphs.
        unit_G: Unit of each graph, from 0 on.
        units: Number of units; one without a graph has gradient 0.
    """
    model = adapters.model
    linears = [one.linear for one in adapters.adapted]
    with _recorded(linears) as calls:
        nats = graph_nats(model, batch)
    outputs = [made for linear in linears for made in calls[linear].made]
    found = torch.autograd.grad(nats, outputs, allow_unused=True)
    by_output = zip(outputs, found, strict=True)
    wanted = iter([torch.zeros_like(o) if g is None else g for o, g in by_output])
    rows = graphs_of_rows(model.heads, batch)
    columns: list[Tensor] = []
    with torch.no_grad():
        for one in adapters.adapted:
            unit_S = unit_G[rows[one.linear]]
            pieces = [
                one.gradients(given, next(wanted), unit_S, units)
                for given in calls[one.linear].given
            ]
            columns.extend(torch.stack(list(same)).sum(0) for same in zip(*pieces, strict=True))
    return torch.cat(columns, dim=1).cpu(), float(nats.detach())


def chosen_gradients(
    adapters: Adapters, units: Units, chosen_U: np.ndarray
) -> tuple[Float[Tensor, "U P"], float]:
    """Return the gradient of nats per node of each chosen unit, zero for others, and all nats.

    Args:
        adapters: What is tuned, of a model in evaluation mode.
        units: All units.
        chosen_U: Whether a unit is wanted.
    """
    gradient_UP = torch.zeros(units.count, adapters.count, dtype=torch.float64)
    nats = 0.0
    for batch, unit_G in units.batches(chosen_U):
        part_UP, part = unit_gradients(adapters, batch, unit_G, units.count)
        gradient_UP += part_UP
        nats += part
    return gradient_UP / units.nodes_U.clamp(min=1)[:, None], nats


def graph_nats(model: DAGModel, batch: DAGBatch) -> Float[Tensor, ""]:
    """Return -log p(graphs | conditions), summed, nats: without the posterior's part."""
    posterior = set(model.posterior_objectives())
    terms = model.losses(batch, torch.Generator(batch.x_NA.device))
    return torch.stack([t.total for name, t in terms.items() if name not in posterior]).sum()


def clipped(gradient_UP: Float[Tensor, "U P"], clip: float) -> Float[Tensor, "U P"]:
    """Return gradients of a norm of at most ``clip``.

    One that is not finite becomes zero, so that it cannot break the bound.
    """
    finite_U = gradient_UP.isfinite().all(dim=1)
    gradient_UP = torch.where(finite_U[:, None], gradient_UP, 0.0)
    norm_U1 = gradient_UP.norm(dim=1, keepdim=True)
    return gradient_UP * (clip / norm_U1.clamp(min=clip))


@contextlib.contextmanager
def _recorded(linears: Sequence[nn.Linear]) -> Iterator[dict[nn.Linear, _Calls]]:
    """Record what linear maps are given and make, inside the block."""
    calls = {linear: _Calls() for linear in linears}

    def record(module: nn.Module, given: tuple[Any, ...], made: Tensor) -> None:
        assert isinstance(module, nn.Linear)
        calls[module].given.append(given[0].detach())
        calls[module].made.append(made)

    handles = [linear.register_forward_hook(record) for linear in linears]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()
