"""Gradients of each unit on its own, from rows that are computed once.

What is tuned are the last linear maps of decisions: their inputs do not change while tuning, so
that one pass through the model is enough for all steps. The gradient of such a map is a sum over
the rows that it is given, and each row belongs to one unit (Goodfellow, arXiv 1510.01799).

Shape letters: D width of a state, K codes, P tuned parameters, R rank, S rows, U units.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from layerdag.graph import DAGBatch
from layerdag.models import DAGModel
from layerdag.models.autoregressive import graphs_of_rows
from layerdag.training.private._adapters import Adapted, Adapters
from layerdag.training.private._units import Units


@dataclass(frozen=True, eq=False)
class _Rows:
    """The rows that one linear map is given.

    Attributes:
        frozen_SK: Logits under the public weights, without the bias; -inf for impossible codes.
        low_SR: Inputs of the second matrix of the map's change.
        code_S: The right code.
        unit_S: Whose row it is.
    """

    frozen_SK: Float[Tensor, "S K"]
    low_SR: Float[Tensor, "S R"]
    code_S: Int[Tensor, " S"]
    unit_S: Int[Tensor, " S"]

    @classmethod
    def of(
        cls,
        adapted: Adapted,
        given_SD: Float[Tensor, "S D"],
        made_SK: Float[Tensor, "S K"],
        wanted_SK: Float[Tensor, "S K"],
        unit_S: Int[Tensor, " S"],
    ) -> "_Rows":
        """Return the rows by what a pass through the model has found.

        The gradient of a cross entropy by the logits, ``wanted_SK``, is the probability of each
        code, less 1 for the right one: below 0 for that alone, and 0 for an impossible one.
        """
        code_S = wanted_SK.argmin(dim=1)
        possible_SK = (wanted_SK != 0).scatter(1, code_S[:, None], value=True)
        frozen_SK = (made_SK - adapted.linear.bias).masked_fill(~possible_SK, -torch.inf)
        return cls(frozen_SK.detach(), adapted.low(given_SD), code_S, unit_S)

    def chosen(self, row_S: Bool[Tensor, " S"]) -> "_Rows":
        """Return some rows."""
        columns = (self.frozen_SK, self.low_SR, self.code_S, self.unit_S)
        return _Rows(*(column[row_S] for column in columns))


@dataclass(frozen=True, eq=False)
class Decisions:
    """All decisions of some units that are tuned: private. About a kilobyte for each node.

    Attributes:
        adapters: What is tuned.
        nodes_U: Nodes of each unit.
        rows: The rows of each map.
    """

    adapters: Adapters
    nodes_U: Float[Tensor, " U"]
    rows: tuple[_Rows, ...]

    @classmethod
    def of(cls, adapters: Adapters, units: Units) -> "Decisions":
        """Return the decisions of units.

        Args:
            adapters: Of a model in evaluation mode, as they are before the first step.
            units: On the device of the model.
        """
        assert not adapters.flat().any(), "decisions are of the public weights"
        parts = [
            _rows(adapters, batch, unit_G)
            for batch, unit_G in units.batches(np.ones(units.count, bool))
        ]
        names = ("frozen_SK", "low_SR", "code_S", "unit_S")
        joined = tuple(
            _Rows(*(torch.cat([getattr(rows, name) for rows in same]) for name in names))
            for same in zip(*parts, strict=True)
        )
        return cls(adapters, units.nodes_U, joined)

    @torch.no_grad()
    def gradients(self, chosen_U: np.ndarray) -> tuple[Float[Tensor, "U P"], float]:
        """Return the gradient of nats per node of each chosen unit, zero for others, and all nats.

        Args:
            chosen_U: Whether a unit is wanted.
        """
        units, nats = len(self.nodes_U), 0.0
        is_chosen_U = torch.from_numpy(chosen_U)
        columns: list[Tensor] = []
        for one, all_rows in zip(self.adapters.adapted, self.rows, strict=True):
            unit_S = all_rows.unit_S
            rows = all_rows.chosen(is_chosen_U.to(unit_S.device)[unit_S])
            logits_SK = one.logits(rows.frozen_SK, rows.low_SR)
            log_p_SK = logits_SK.log_softmax(dim=1)
            wanted_SK = log_p_SK.exp()
            nats -= float(log_p_SK.gather(1, rows.code_S[:, None]).double().sum())
            wanted_SK.scatter_add_(1, rows.code_S[:, None], torch.full_like(wanted_SK[:, :1], -1.0))
            columns.extend(one.gradients(rows.low_SR, wanted_SK, rows.unit_S, units))
        gradient_UP = torch.cat(columns, dim=1).cpu() * self.adapters.scale_P
        return gradient_UP / self.nodes_U.clamp(min=1)[:, None], nats


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


def _rows(adapters: Adapters, batch: DAGBatch, unit_G: Int[Tensor, " G"]) -> list[_Rows]:
    """Return the rows of each map for the graphs of a micro-batch."""
    linears = [one.linear for one in adapters.adapted]
    with _recorded(linears) as calls:
        nats = graph_nats(adapters.model, batch)
    found = torch.autograd.grad(nats, [calls[linear][1] for linear in linears])
    graph_of = graphs_of_rows(adapters.model.heads, batch)
    return [
        _Rows.of(one, *calls[one.linear], wanted_SK, unit_G[graph_of[one.linear]])
        for one, wanted_SK in zip(adapters.adapted, found, strict=True)
    ]


@contextlib.contextmanager
def _recorded(linears: Sequence[nn.Linear]) -> Iterator[dict[nn.Linear, tuple[Tensor, Tensor]]]:
    """Record what linear maps are given and make, each called once inside the block."""
    calls: dict[nn.Linear, tuple[Tensor, Tensor]] = {}

    def record(module: nn.Module, given: tuple[Any, ...], made: Tensor) -> None:
        assert isinstance(module, nn.Linear)
        assert module not in calls, "a readout of a decision is called once"
        calls[module] = (given[0].detach(), made)

    handles = [linear.register_forward_hook(record) for linear in linears]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()
