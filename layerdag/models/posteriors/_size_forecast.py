"""How many nodes will a graph have, given its first ones?

Programs repeat themselves: a backward pass mirrors the forward pass, an optimizer visits every
tensor. So the first third of a training job tells its number of nodes within some 12 %, the first
half within 5 %, by which kinds of nodes there were and which came last. Sampling uses it to follow
the number that is asked for. The numbers asked for are no inputs: a network that sees them would
learn to repeat them.

Shape letters: B graphs, D width of a state, K codes of the kind, M categorical conditions, N nodes,
R rows (graphs after some of their nodes).
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from layerdag.graph import DAGBatch, GraphSizes
from layerdag.models import LossTerm
from layerdag.models.layers import SumEmbedding

BLOCK = 8
"""Nodes between two forecasts."""

_RECENT = 4
"""Blocks whose kinds count as recent, beside those of the last one."""

# Of the logarithm of the standard deviation.
_LEAST, _MOST = -4.0, 1.0
# Fraction of categorical conditions hidden in training, so that unknown ones can be.
_HIDDEN = 0.1
_STD = 0.05


class Normal(NamedTuple):
    """Normal distributions of logarithms of numbers of nodes.

    Attributes:
        mean_R: Means.
        deviation_R: Standard deviations.
    """

    mean_R: Float[Tensor, " R"]
    deviation_R: Float[Tensor, " R"]


@dataclass(frozen=True, eq=False)
class Progress:
    """Graphs after some of their nodes, as the forecast sees them.

    Attributes:
        count_RK: Nodes of each kind so far.
        recent_RK: Of the last ``_RECENT`` blocks.
        newest_RK: Of the last block.
        position_R: Number of nodes.
        layers_R: Number of layers.
        category_RM: Codes of the conditions; -1 is unknown.
    """

    count_RK: Float[Tensor, "R K"]
    recent_RK: Float[Tensor, "R K"]
    newest_RK: Float[Tensor, "R K"]
    position_R: Int[Tensor, " R"]
    layers_R: Int[Tensor, " R"]
    category_RM: Int[Tensor, "R M"]

    @classmethod
    def of_kinds(
        cls,
        kind_RN: Int[Tensor, "R N"],
        layers_R: Int[Tensor, " R"],
        category_RM: Int[Tensor, "R M"],
        kinds: int,
    ) -> "Progress":
        """Return graphs that all have N nodes, of these kinds."""

        def counted(nodes: int) -> Tensor:
            last_RN = kind_RN[:, -nodes:]
            zero_RK = torch.zeros(last_RN.shape[0], kinds, device=kind_RN.device)
            return zero_RK.scatter_add(1, last_RN, torch.ones_like(last_RN, dtype=torch.float32))

        nodes = kind_RN.shape[1]
        return cls(
            count_RK=counted(nodes),
            recent_RK=counted(_RECENT * BLOCK),
            newest_RK=counted(BLOCK),
            position_R=torch.full_like(layers_R, nodes),
            layers_R=layers_R,
            category_RM=category_RM,
        )

    @classmethod
    def of_batch(
        cls, batch: DAGBatch, category_BM: Int[Tensor, "B M"], kinds: int
    ) -> tuple["Progress", Int[Tensor, " R"]]:
        """Return each graph after each of its full blocks, and the graph of each row."""
        graph_N, full_N = batch.graph_of_node(), _in_full_blocks(batch)
        index_N = torch.arange(batch.num_nodes, device=graph_N.device) - batch.node_ptr[graph_N]
        last_N = full_N & (index_N % BLOCK == BLOCK - 1)
        graph_R = graph_N[last_N]
        row_N = last_N.cumsum(0) - last_N.long()
        newest_RK = torch.zeros(graph_R.shape[0], kinds, device=graph_N.device)
        place = (row_N[full_N], batch.x_NA[full_N, 0])
        ones = torch.ones(place[0].shape, device=graph_N.device)
        newest_RK = newest_RK.index_put(place, ones, accumulate=True)
        # Row r + 1 is what all rows up to r hold, over all graphs.
        until_RK = F.pad(newest_RK.cumsum(0), (0, 0, 1, 0))
        row_R = torch.arange(graph_R.shape[0], device=graph_N.device)
        first_R = row_R - index_N[last_N] // BLOCK
        recent_R = torch.maximum(first_R, row_R + 1 - _RECENT)
        progress = cls(
            count_RK=until_RK[1:] - until_RK[first_R],
            recent_RK=until_RK[1:] - until_RK[recent_R],
            newest_RK=newest_RK,
            position_R=index_N[last_N] + 1,
            layers_R=batch.layer_N[last_N] + 1,
            category_RM=category_BM[graph_R],
        )
        return progress, graph_R


class SizeForecast(nn.Module):
    """p(number of nodes | first nodes, categorical conditions): its logarithm is normal.

    Args:
        sizes: Of the data set.
        width: Of the hidden states.
    """

    def __init__(self, sizes: GraphSizes, *, width: int = 96) -> None:
        super().__init__()
        self.kinds = sizes.attributes[0]
        parts = ("count", "recent", "newest")
        self.codes = nn.ParameterDict(
            {name: nn.Parameter(torch.randn(self.kinds, width) * _STD) for name in parts}
        )
        codes = [size + 1 for size in sizes.category_conditions]
        self.categories = SumEmbedding(codes, width, std=_STD) if codes else None
        self.place = nn.Linear(2, width)
        self.hidden = nn.Linear(width, width)
        self.answer = nn.Linear(width, 2)

    def forward(self, progress: Progress) -> Normal:
        """Return the distribution of the logarithm of the number of nodes of each row."""
        position_R = progress.position_R.float().log()
        place_R2 = torch.stack([position_R, progress.layers_R.float().log()], dim=1)
        state_RD = self.place(place_R2)
        state_RD = state_RD + progress.count_RK.log1p() @ self.codes["count"]
        state_RD = state_RD + progress.recent_RK @ self.codes["recent"]
        state_RD = state_RD + progress.newest_RK @ self.codes["newest"]
        if self.categories is not None:
            state_RD = state_RD + self.categories(progress.category_RM + 1)
        answer_R2 = self.answer(F.gelu(self.hidden(F.gelu(state_RD))))
        further_R, spread_R = F.softplus(answer_R2[:, 0] - 1), answer_R2[:, 1]
        return Normal(position_R + further_R, spread_R.clamp(_LEAST, _MOST).exp())

    def loss(self, batch: DAGBatch, generator: torch.Generator | None) -> LossTerm:
        """Return the negative log-likelihood, nats, one count per full block of a graph.

        Args:
            batch: Whole graphs.
            generator: Hides conditions at random; None hides none.
        """
        category_BM = batch.category_BM
        if generator is not None:
            uniform = torch.rand(category_BM.shape, generator=generator, device=category_BM.device)
            category_BM = category_BM.masked_fill(uniform < _HIDDEN, -1)
        # Never in bfloat16: a size within 5 % is told from others by small differences.
        with torch.autocast(batch.x_NA.device.type, enabled=False):
            progress, graph_R = Progress.of_batch(batch, category_BM, self.kinds)
            mean_R, deviation_R = self(progress)
            log_size_R = batch.node_ptr.diff()[graph_R].float().log()
            distance_R = (log_size_R - mean_R) / deviation_R
            nats_R = 0.5 * (distance_R.square() + math.log(2 * math.pi)) + deviation_R.log()
        return LossTerm(nats_R.sum(), torch.tensor(float(graph_R.shape[0]), device=nats_R.device))


def _in_full_blocks(batch: DAGBatch) -> Bool[Tensor, " N"]:
    """Return which nodes belong to a full block of their graph."""
    graph_N, size_B = batch.graph_of_node(), batch.node_ptr.diff()
    end_B = batch.node_ptr[:-1] + size_B // BLOCK * BLOCK
    return torch.arange(batch.num_nodes, device=graph_N.device) < end_B[graph_N]
