"""Gradients of each unit by the few parameters that are tuned, noise, and those parameters.

Noise of differential privacy grows with the number of parameters, the signal does not: of the
million parameters of a model some hundred are tuned, biases of readouts and low-rank changes of
their weights, and everything else stays as it is public.

What is tuned are the last linear maps of decisions: their inputs do not change while tuning, so
that one pass through the model is enough for all steps. The gradient of such a map is a sum over
the rows that it is given, and each row belongs to one unit (Goodfellow, arXiv 1510.01799).

Shape letters: D width of a state, K codes, P tuned parameters, R rank, S rows, U units, V values of
a count.
"""

import contextlib
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.utils import parametrize

from layerdag.dag.dag import DAGBatch
from layerdag.dag.statistics import GraphStatistics
from layerdag.dp.units import Units
from layerdag.errors import ConfigError
from layerdag.models.base import DAGModel
from layerdag.models.fast.decisions import Heads, graphs_of_rows
from layerdag.models.fast.model import FastLayerDAG
from layerdag.models.layers import CountEncoder
from layerdag.runtime.rng import derive_seed

Pairs = Iterable[tuple[int, int]]
"""Values, and how often each occurs."""


def code_scales(
    heads: Heads, statistics: GraphStatistics
) -> Mapping[nn.Linear, Float[Tensor, " K"]]:
    """Return the scale of each code of each readout: sqrt(f (1 - f)) for a share f of the public.

    It is the standard deviation of the gradient by the code's logit, as far as only shares are
    known. Noise has the same size for all parameters, so that it would make rare codes common; in
    parameters of this scale a rare code has little gradient and gets little noise.
    """
    counts: dict[nn.Linear, Sequence[int]] = {
        heads.size_readout.project: _by_code(heads.size, statistics.layer_sizes),
        heads.kind_readout.project: statistics.attributes[0],
        heads.degree_readout.project: _by_code(
            heads.in_degree, (p for kind in statistics.in_degrees for p in kind if p[0])
        ),
        heads.type_readout.project: statistics.edge_types,
    }
    for readout, others in zip(heads.other_readouts, statistics.attributes[1:], strict=True):
        assert isinstance(readout.project, nn.Linear)
        counts[readout.project] = others
    if heads.plan_readout is not None and heads.out_degree is not None:
        pairs = (pair for kind in statistics.out_degrees for pair in kind)
        counts[heads.plan_readout.project] = _by_code(heads.out_degree, pairs)
    scales = {}
    for linear, found in counts.items():
        seen_K = torch.tensor(list(found), dtype=torch.float64) + 1  # as if each occurred once more
        share_K = seen_K / seen_K.sum()
        scales[linear] = (share_K * (1 - share_K)).sqrt()
    return scales


def _by_code(counter: CountEncoder, pairs: Pairs) -> list[int]:
    table_V2 = torch.tensor(list(pairs), dtype=torch.int64).view(-1, 2)
    code_V = counter.encode(table_V2[:, 0].to(counter.lows_K1.device)).cpu()
    found_K = torch.zeros(counter.num_codes, dtype=torch.int64)
    return found_K.index_add(0, code_V, table_V2[:, 1]).tolist()


class LowRank(nn.Module):
    """Adds a product of two small matrices to a weight: LoRA (Hu et al., arXiv 2106.09685).

    The change is zero at first. Only the second matrix is tuned: noise in the first would be
    multiplied by the inputs, and without it the loss is convex in what is tuned.
    """

    down_RD: Tensor

    def __init__(self, weight: Float[Tensor, "K D"], rank: int, generator: torch.Generator) -> None:
        super().__init__()
        codes, width = weight.shape
        down_RD = torch.randn(rank, width, generator=generator) * width**-0.5
        self.register_buffer("down_RD", down_RD.to(weight.device))
        self.up_KR = nn.Parameter(weight.new_zeros(codes, rank))

    def forward(self, weight: Float[Tensor, "K D"]) -> Float[Tensor, "K D"]:
        """Return the changed weight."""
        return weight + self.up_KR @ self.down_RD


@dataclass(frozen=True, eq=False)
class Adapted:
    """The linear map of a readout that is tuned."""

    linear: nn.Linear  # the map, whose bias is tuned
    change: LowRank | None  # of its weight; None for none
    scale_K: Float[Tensor, " K"]  # of each code's parameters

    @property
    def parameters(self) -> tuple[nn.Parameter, ...]:
        """Bias, then the second matrix of the change."""
        return (self.linear.bias, *(() if self.change is None else (self.change.up_KR,)))

    @property
    def scale(self) -> Float[Tensor, " _"]:
        """Scale of each number of ``parameters``."""
        rank = 0 if self.change is None else self.change.up_KR.shape[1]
        return torch.cat([self.scale_K, self.scale_K.repeat_interleave(rank)])

    def low(self, given_SD: Float[Tensor, "S D"]) -> Float[Tensor, "S R"]:
        """Return what the first matrix of the change makes of inputs."""
        if self.change is None:
            return given_SD[:, :0]
        low_SR: Tensor = given_SD @ self.change.down_RD.T
        return low_SR

    def logits(
        self, frozen_SK: Float[Tensor, "S K"], low_SR: Float[Tensor, "S R"]
    ) -> Float[Tensor, "S K"]:
        """Return the logits of rows: the public ones without the bias, tuned."""
        logits_SK = frozen_SK + self.linear.bias
        return logits_SK if self.change is None else logits_SK + low_SR @ self.change.up_KR.T

    def gradients(
        self,
        low_SR: Float[Tensor, "S R"],
        wanted_SK: Float[Tensor, "S K"],
        unit_S: Int[Tensor, " S"],
        units: int,
    ) -> list[Float[Tensor, "U _"]]:
        """Return the gradient of each unit by each of ``parameters``, without their scale.

        ``wanted_SK`` is the gradient of the loss by each row's output.
        """
        pieces = [wanted_SK]
        if self.change is not None:
            pieces.append(torch.einsum("sk,sr->skr", wanted_SK, low_SR).flatten(1))
        return [
            piece.new_zeros(units, piece.shape[1]).index_add(0, unit_S, piece).double()
            for piece in pieces
        ]


class Adapters:
    """Tunable parameters of a model whose other parameters are frozen.

    All code outside sees them as one vector: what is added to the public weights, divided by
    ``scale_P``. Gradients are by this vector.

    The seed is of the first matrices, which are public.

    Raises:
        ConfigError: If the model is of another kind.
    """

    def __init__(self, model: DAGModel, rank: int, seed: int) -> None:
        if not isinstance(model, FastLayerDAG):
            raise ConfigError(
                "privacy tunes the decisions of model=fast, which this checkpoint's model does not "
                "have; start from a checkpoint of model=fast."
            )
        model.requires_grad_(False)
        self.model: FastLayerDAG = model
        generator = torch.Generator().manual_seed(derive_seed(seed, "adapters"))
        adapted = []
        for linear, scale_K in code_scales(model.heads, model.statistics).items():
            change = LowRank(linear.weight, rank, generator) if rank else None
            if change is not None:
                parametrize.register_parametrization(linear, "weight", change)
            adapted.append(Adapted(linear, change, scale_K))
        self.adapted = tuple(adapted)
        self.parameters = tuple(p for one in self.adapted for p in one.parameters)
        for parameter in self.parameters:
            parameter.requires_grad_(True)
        self.scale_P = torch.cat([one.scale for one in self.adapted])
        self._start = tuple(parameter.detach().clone() for parameter in self.parameters)
        self._flat_P = torch.zeros_like(self.scale_P)

    @property
    def count(self) -> int:
        """Number of parameters."""
        return sum(parameter.numel() for parameter in self.parameters)

    def flat(self) -> Float[Tensor, " P"]:
        """Return the change of all parameters as one vector of double precision; 0 at first."""
        return self._flat_P.clone()

    @torch.no_grad()
    def set(self, flat_P: Float[Tensor, " P"]) -> None:
        """Change all parameters, against the public ones, by ``flat``."""
        self._flat_P = flat_P.clone()
        changes = (flat_P * self.scale_P).split([p.numel() for p in self.parameters])
        for parameter, start, change in zip(self.parameters, self._start, changes, strict=True):
            parameter.copy_(start + change.view_as(start).to(start))

    def merge(self) -> Mapping[str, Tensor]:
        """Put the changes into the weights for good; return those of the whole model, by name."""
        for one in self.adapted:
            if parametrize.is_parametrized(one.linear, "weight"):
                parametrize.remove_parametrizations(one.linear, "weight")
        return {name: tensor.detach() for name, tensor in self.model.state_dict().items()}


@dataclass(frozen=True, eq=False)
class _Rows:
    """The rows that one linear map is given."""

    frozen_SK: Float[Tensor, "S K"]  # public logits without the bias; -inf for impossible codes
    low_SR: Float[Tensor, "S R"]  # inputs of the second matrix of the map's change
    code_S: Int[Tensor, " S"]  # the right code
    unit_S: Int[Tensor, " S"]  # whose row it is

    @classmethod
    def from_products(
        cls, adapted: Adapted, given_SD: Tensor, made_SK: Tensor, wanted_SK: Tensor, unit_S: Tensor
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
class UnitDecisions:
    """All decisions of some units that are tuned: private. About a kilobyte for each node."""

    adapters: Adapters  # what is tuned
    nodes_U: Float[Tensor, " U"]
    rows: tuple[_Rows, ...]  # the rows of each map

    @classmethod
    def from_units(cls, adapters: Adapters, units: Units) -> "UnitDecisions":
        """Return the decisions of units."""
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
        """Return each chosen unit's gradient of nats per node, zero for others, and all nats."""
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
    linears = [one.linear for one in adapters.adapted]
    with _recorded(linears) as calls:
        nats = graph_nats(adapters.model, batch)
    found = torch.autograd.grad(nats, [calls[linear][1] for linear in linears])
    graph_of = graphs_of_rows(adapters.model.heads, batch)
    return [
        _Rows.from_products(one, *calls[one.linear], wanted_SK, unit_G[graph_of[one.linear]])
        for one, wanted_SK in zip(adapters.adapted, found, strict=True)
    ]


@contextlib.contextmanager
def _recorded(linears: Sequence[nn.Linear]) -> Iterator[dict[nn.Linear, tuple[Tensor, Tensor]]]:
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


class SecretGenerator:
    """numpy's Philox with a secret key of the operating system, which is written nowhere.

    Who knows the key can subtract the noise, so that the seed of a run has no part in it. Philox is
    made for statistics and not for cryptography, and its normal variates are numbers of double
    precision, not reals (docs/how-to/differential-privacy.md). A ``key`` is for tests and
    benchmarks; None draws a secret one.
    """

    def __init__(self, key: int | None = None) -> None:
        self.is_secret = key is None
        self._numpy = np.random.Generator(
            np.random.Philox(key=secrets.randbits(128) if key is None else key)
        )

    def coins(self, count: int, rate: float) -> np.ndarray:
        """Return independent events of probability ``rate``, bool (count,)."""
        return np.asarray(self._numpy.random(count) < rate)

    def normal(self, count: int) -> Float[Tensor, " P"]:
        """Return standard normal noise of double precision, shape (count,)."""
        return torch.from_numpy(self._numpy.standard_normal(count))

    @property
    def description(self) -> str:
        """The generator, and where its key comes from."""
        source = (
            "a secret key of the operating system"
            if self.is_secret
            else "a key that was given, so that whoever knows it can subtract the noise"
        )
        return f"numpy Philox4x64, {source}"
