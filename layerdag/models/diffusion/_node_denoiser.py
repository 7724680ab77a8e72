"""Diffusion of the attributes of a new layer's nodes, with the in-degree as one more attribute.

Shape letters: A node attributes, D width of a state, I prefixes, K codes, R rows (new nodes, end to
end), S diffusion steps.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from layerdag.graph import GraphSizes
from layerdag.models import LossTerm
from layerdag.models.diffusion._config import NodeConfig
from layerdag.models.diffusion._encoder import PrefixEncoder, code_embedding
from layerdag.models.diffusion.process import add_noise, cosine_alpha_bar
from layerdag.models.layers import MLP, SegmentAttention, Segments, sinusoids


class Block(nn.Module):
    """A pre-norm transformer block over the nodes of each layer."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = SegmentAttention(width, heads)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp = MLP(width, 2 * width, width)

    def forward(self, rows_RD: Float[Tensor, "R D"], segments: Segments) -> Float[Tensor, "R D"]:
        """Return the new rows, shape (R, F)."""
        rows_RD = rows_RD + self.attention(self.attention_norm(rows_RD), segments)
        return rows_RD + self.mlp(self.mlp_norm(rows_RD))


class NodeDenoiser(nn.Module):
    """Predicts the clean attributes of the new nodes from noisy ones and the prefix.

    Each of the A attributes is noised on its own toward its training marginal (with one added
    count a code, so that no code is impossible).

    Args:
        sizes: Of the data set.
        counts: Number of training nodes with each code, of each node column (in-degree included).
        config: Width F, depths, heads and steps T.
    """

    marginal_AK: Tensor
    allowed_AK: Tensor
    alpha_bar_S: Tensor

    def __init__(
        self, sizes: GraphSizes, counts: Sequence[Sequence[int]], config: NodeConfig
    ) -> None:
        super().__init__()
        width, self.steps = config.width, config.steps
        cardinalities = tuple(map(len, counts))
        self.encoder = PrefixEncoder(sizes, cardinalities, width=width, rounds=config.rounds)
        self.noisy = code_embedding(cardinalities, width)
        self.time = MLP(width, width, width)
        self.blocks = nn.ModuleList([Block(width, config.heads) for _ in range(config.blocks)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, len(cardinalities) * max(cardinalities))
        marginal_AK = _marginals(counts)
        self.register_buffer("marginal_AK", marginal_AK, persistent=False)
        self.register_buffer("allowed_AK", marginal_AK > 0, persistent=False)
        self.register_buffer("alpha_bar_S", cosine_alpha_bar(self.steps).float(), persistent=False)

    def times(self, time_I: Int[Tensor, " I"]) -> Float[Tensor, "I D"]:
        """Return what the times 1..T add to the state of a prefix, shape (I, F)."""
        width = self.encoder.width
        return self.time(sinusoids(1000 * time_I.to(self.encoder.start) / self.steps, width))

    def forward(
        self, prefix_ID: Float[Tensor, "I D"], xt_RA: Int[Tensor, "R A"], segments: Segments
    ) -> Float[Tensor, "R A K"]:
        """Return logits of the clean codes.

        Args:
            prefix_ID: State of each prefix (``encoder``) plus its ``times``.
            xt_RA: Noisy codes of the new nodes.
            segments: The new nodes of each item.

        Returns:
            Shape (R, A, K); minus infinity for codes that an attribute does not have.
        """
        rows_RD = self.noisy(xt_RA) + segments.broadcast(prefix_ID)
        for block in self.blocks:
            rows_RD = block(rows_RD, segments)
        logits_RAK = self.head(self.norm(rows_RD)).unflatten(-1, self.marginal_AK.shape)
        return logits_RAK.masked_fill(~self.allowed_AK, float("-inf"))

    def loss(
        self,
        state_ID: Float[Tensor, "I D"],
        x0_RA: Int[Tensor, "R A"],
        ptr: Int[Tensor, " I1"],
        generator: torch.Generator,
    ) -> LossTerm:
        """Return the cross entropy of the clean codes at a random time per item."""
        items, device = state_ID.shape[0], state_ID.device
        time_I = torch.randint(1, self.steps + 1, (items,), generator=generator, device=device)
        uniform_RA2 = torch.rand(*x0_RA.shape, 2, generator=generator, device=device)
        time_R = torch.repeat_interleave(time_I, ptr.diff(), output_size=x0_RA.shape[0])
        alpha_bar_R1 = self.alpha_bar_S[time_R].unsqueeze(-1)
        xt_RA = add_noise(x0_RA, alpha_bar_R1, self.marginal_AK, uniform_RA2)
        logits_RAK = self(state_ID + self.times(time_I), xt_RA, Segments.of(ptr))
        total = F.cross_entropy(logits_RAK.flatten(0, 1), x0_RA.flatten(), reduction="sum")
        return LossTerm(total, torch.tensor(x0_RA.numel(), device=device))


def _marginals(columns: Sequence[Sequence[int]]) -> Float[Tensor, "A K"]:
    """Return the smoothed frequency of each code, 0 for codes that do not exist, shape (A, K)."""
    width = max(map(len, columns))
    rows = []
    for counts in columns:
        total = sum(counts) + len(counts)
        row = [(count + 1) / total for count in counts]
        rows.append(row + [0.0] * (width - len(row)))
    return torch.tensor(rows)
