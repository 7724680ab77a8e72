"""The few parameters that are tuned: biases of the decisions, and low-rank changes of readouts.

Noise of differential privacy grows with the number of parameters, the signal does not: of the
million parameters of a model a few thousand are tuned, and everything else stays as it is public.

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

_READOUT = "project"
"""Name of the linear map of a readout."""


class LowRank(nn.Module):
    """Adds a product of two small matrices to a weight: LoRA (Hu et al., arXiv 2106.09685).

    The change is zero at first.

    Args:
        weight: Of the readout; it is not changed.
        rank: R.
        generator: Of the first matrix.
    """

    def __init__(self, weight: Float[Tensor, "K D"], rank: int, generator: torch.Generator) -> None:
        super().__init__()
        codes, width = weight.shape
        down_RD = torch.randn(rank, width, generator=generator) * width**-0.5
        self.down_RD = nn.Parameter(down_RD.to(weight.device))
        self.up_KR = nn.Parameter(weight.new_zeros(codes, rank))

    def forward(self, weight: Float[Tensor, "K D"]) -> Float[Tensor, "K D"]:
        """Return the changed weight."""
        return weight + self.up_KR @ self.down_RD


@dataclass(frozen=True, eq=False)
class Adapted:
    """A linear map that is tuned.

    Attributes:
        linear: The map, whose bias is tuned.
        change: Of its weight; None for none.
    """

    linear: nn.Linear
    change: LowRank | None

    @property
    def parameters(self) -> tuple[nn.Parameter, ...]:
        """Bias, then the two matrices of the change."""
        change = () if self.change is None else (self.change.up_KR, self.change.down_RD)
        return (self.linear.bias, *change)

    def gradients(
        self,
        given_SD: Float[Tensor, "S D"],
        wanted_SK: Float[Tensor, "S K"],
        unit_S: Int[Tensor, " S"],
        units: int,
    ) -> list[Float[Tensor, "U _"]]:
        """Return the gradient of each unit, for each of ``parameters``.

        Args:
            given_SD: Input of each row.
            wanted_SK: Gradient of the loss by each row's output.
            unit_S: Unit of each row.
            units: Number of units.
        """
        pieces = [wanted_SK]
        if self.change is not None:
            up_SR = torch.einsum("sd,rd->sr", given_SD, self.change.down_RD)
            down_SR = torch.einsum("sk,kr->sr", wanted_SK, self.change.up_KR)
            pieces.append(torch.einsum("sk,sr->skr", wanted_SK, up_SR).flatten(1))
            pieces.append(torch.einsum("sr,sd->srd", down_SR, given_SD).flatten(1))
        return [
            piece.new_zeros(units, piece.shape[1]).index_add(0, unit_S, piece).double()
            for piece in pieces
        ]


class Adapters:
    """Tunable parameters of a model whose other parameters are frozen.

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
        self.adapted = tuple(_adapted(model.heads, rank, generator))
        self.parameters = tuple(p for one in self.adapted for p in one.parameters)
        for parameter in self.parameters:
            parameter.requires_grad_(True)

    @property
    def count(self) -> int:
        """Number of parameters."""
        return sum(parameter.numel() for parameter in self.parameters)

    def flat(self) -> Float[Tensor, " P"]:
        """Return all parameters as one vector of double precision."""
        return torch.cat([p.detach().flatten().double().cpu() for p in self.parameters])

    @torch.no_grad()
    def set(self, flat_P: Float[Tensor, " P"]) -> None:
        """Give all parameters the values of ``flat``."""
        start = 0
        for parameter in self.parameters:
            end = start + parameter.numel()
            parameter.copy_(flat_P[start:end].view_as(parameter))
            start = end

    def merge(self) -> Mapping[str, Tensor]:
        """Put the changes into the weights for good; return those of the whole model, by name."""
        for one in self.adapted:
            if parametrize.is_parametrized(one.linear, "weight"):
                parametrize.remove_parametrizations(one.linear, "weight")
        return {name: tensor.detach() for name, tensor in self.model.state_dict().items()}


def _adapted(heads: nn.Module, rank: int, generator: torch.Generator) -> Iterator[Adapted]:
    """Make the linear maps of ``heads`` that have a bias tunable, and yield them."""
    for name, linear in list(heads.named_modules()):
        if not isinstance(linear, nn.Linear) or linear.bias is None:
            continue
        change = None
        if rank and name.endswith(_READOUT):
            change = LowRank(linear.weight, rank, generator)
            parametrize.register_parametrization(linear, "weight", change)
        yield Adapted(linear, change)
