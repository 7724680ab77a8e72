"""Operations and bytes of multi-head latent attention on one rank, for one micro-batch."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from layerdag.workloads.symbolic.costs._linear import Cost, Linear
from layerdag.workloads.symbolic.shapes import Latent

if TYPE_CHECKING:
    from layerdag.workloads.symbolic.costs._costs import Costs


@final
@dataclass(frozen=True)
class LatentCosts:
    """Costs of what other attention does not have.

    Attributes:
        latent: Widths.
        costs: Costs of the rank.
    """

    latent: Latent
    costs: "Costs"

    @property
    def heads(self) -> int:
        """Heads of this rank."""
        return self.costs.shape.heads // self.costs.plan.tensor

    @property
    def compresses_queries(self) -> bool:
        """Whether queries are made of a compressed vector."""
        return self.latent.query_rank > 0

    @property
    def tokens(self) -> int:
        """Tokens of a micro-batch that this rank's tensor group computes."""
        return self.costs.tokens

    @property
    def own_tokens(self) -> int:
        """Tokens that this rank compresses."""
        return self.costs.own_tokens

    @property
    def normed_width(self) -> int:
        """Width of what is normalized after compression."""
        return self.latent.norm_parameters

    @property
    def own_bytes(self) -> int:
        """Bytes of what this rank compresses."""
        return self.own_tokens * self.latent.compressed_width * self.costs.number

    @property
    def whole_bytes(self) -> int:
        """Bytes of that of all tensor ranks."""
        return self.tokens * self.latent.compressed_width * self.costs.number

    # ---- linear layers ----

    @property
    def compress(self) -> Linear:
        """Compressed queries, keys and values and rotary keys, the same on all tensor ranks."""
        return Linear(self.costs.shape.hidden, self.latent.compressed_width)

    @property
    def q_up(self) -> Linear:
        """Queries of this rank's heads."""
        inputs = self.latent.query_rank or self.costs.shape.hidden
        return Linear(inputs, self.heads * self.latent.key_width)

    @property
    def kv_up(self) -> Linear:
        """Keys and values of this rank's heads."""
        return Linear(self.latent.kv_rank, self.heads * self.latent.expanded_width)

    # ---- decode ----

    def into_latent(self) -> Cost:
        """Queries multiplied with what would make keys."""
        return self._of_each_head(self.latent.nope_width)

    def out_of_latent(self) -> Cost:
        """Weighted sums multiplied with what makes values."""
        return self._of_each_head(self.latent.value_width)

    def _of_each_head(self, width: int) -> Cost:
        rank, number = self.latent.kv_rank, self.costs.number
        matrices = self.heads * width * rank
        moved = self.tokens * self.heads * (width + rank) + matrices
        return 2 * self.tokens * matrices, moved * number

    def attention(self) -> Cost:
        """Scores of latent queries and the weighted sum of latent vectors; the cache is read."""
        span = self.costs.step.sequence + 1
        scored, summed = self.latent.cached_width, self.latent.kv_rank
        operations = 2 * self.tokens * span * self.heads * (scored + summed)
        moved = self.tokens * self.heads * (scored + summed)
        moved += self.costs.sequences * span * scored
        if self.costs.plan.attention == "unfused":
            moved += 4 * self.tokens * span * self.heads  # scores: written and read, twice
        return operations, moved * self.costs.number
