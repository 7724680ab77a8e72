"""The few parameters that are tuned: biases of readouts, and low-rank changes of their weights.

Noise of differential privacy grows with the number of parameters, the signal does not: of the
million parameters of a model some hundred are tuned, and everything else stays as it is public.

Shape letters: D width of a state, K codes, P tuned parameters, R rank, S rows, U units.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils import parametrize

from layerdag._runtime import derive_seed
from layerdag.errors import ConfigError
from layerdag.models import DAGModel
from layerdag.models.autoregressive import FastLayerDAG
from layerdag.training.private._scales import code_scales


class LowRank(nn.Module):
    """Adds a product of two small matrices to a weight: LoRA (Hu et al., arXiv 2106.09685).

    The change is zero at first. Only the second matrix is tuned: noise in the first would be
    multiplied by the inputs, and without it the loss is convex in what is tuned.

    Args:
        weight: Of the readout; it is not changed.
        rank: R.
        generator: Of the first matrix.
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
    """The linear map of a readout that is tuned.

    Attributes:
        linear: The map, whose bias is tuned.
        change: Of its weight; None for none.
        scale_K: Of each code's parameters.
    """

    linear: nn.Linear
    change: LowRank | None
    scale_K: Float[Tensor, " K"]

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

        Args:
            low_SR: Input of the second matrix in each row.
            wanted_SK: Gradient of the loss by each row's output.
            unit_S: Unit of each row.
            units: Number of units.
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

    Args:
        model: Of kind ``fast``; its weights are as public as the base.
        rank: Of the changes of readouts; 0 for none.
        seed: Of the first matrices, which are public.

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
        self.adapted = tuple(_adapted(model, rank, generator))
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


def _adapted(model: FastLayerDAG, rank: int, generator: torch.Generator) -> Iterator[Adapted]:
    """Make the linear maps of readouts tunable, and yield them."""
    for linear, scale_K in code_scales(model.heads, model.statistics).items():
        change = None
        if rank:
            change = LowRank(linear.weight, rank, generator)
            parametrize.register_parametrization(linear, "weight", change)
        yield Adapted(linear, change, scale_K)
