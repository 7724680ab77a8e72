"""Multi-head latent attention of one rank (DeepSeek-AI 2024).

Compressing layers are the same on all tensor ranks and run on the tokens of a rank's own under
sequence parallelism, whose compressed queries, keys and values are gathered; expanding layers are
split by heads (as in Megatron-LM). Decode expands nothing: queries are multiplied into the latent
space and attend to the cache as it is, and the weighted sum is multiplied out of it, with the same
weights. The cache is not split over tensor ranks, because all heads share it.
"""

from dataclasses import dataclass
from typing import final

from layerdag.workloads.symbolic.costs import LatentCosts
from layerdag.workloads.symbolic.passes._blocks import BlockWriter, Input
from layerdag.workloads.symbolic.passes._tape import Nodes


@final
@dataclass(frozen=True)
class LatentWriter:
    """Writes what is particular to latent attention.

    Attributes:
        write: Writer of parts of layers.
        latent: Costs of latent attention.
    """

    write: BlockWriter
    latent: LatentCosts

    def expand(self, where: str, h: Nodes) -> Nodes:
        """Write queries, keys and values of this rank's heads."""
        queries, compressed = self._queries(where, h)
        keys = self.write.linear(f"kv_up.{where}", self.latent.kv_up, compressed)
        return (*queries, *keys)

    def decode(self, where: str, h: Nodes) -> Nodes:
        """Write attention to the cache of compressed keys and values."""
        tape, latent = self.write.tape, self.latent
        h, compressed = self._queries(where, h)
        h = tape.compute(f"mm.absorb.{where}", latent.into_latent(), h)
        h = tape.compute(f"attention.{where}", latent.attention(), (*h, *compressed))
        return tape.compute(f"mm.value_up.{where}", latent.out_of_latent(), h)

    def _queries(self, where: str, h: Nodes) -> tuple[Nodes, Nodes]:
        """Write the compressing layers and the queries; return what makes queries and the rest."""
        write, latent = self.write, self.latent
        compressed = write.linear(f"compress.{where}", latent.compress, h, latent.own_tokens)
        compressed = write.norm(f"norm_latent.{where}", compressed, latent.normed_width)
        compressed = write.gather(f"gather_latent.{where}", compressed, latent.own_bytes)
        read = compressed if latent.compresses_queries else write.gather(f"gather1.{where}", h)
        return write.linear(f"q_up.{where}", latent.q_up, read), compressed

    def expand_back(self, where: str, dy: Nodes) -> tuple[Nodes, Nodes]:
        """Write the backward pass; return what makes dx, and gradients of weights.

        Ranks make parts of the gradient of what they expanded, of their heads: these are summed.
        """
        write, latent = self.write, self.latent
        dq, q_dw = self._queries_back(where, dy)
        read = Input(latent.tokens, latent.own_bytes, latent.whole_bytes, summed=False)
        dkv, kv_dw = write.split_by_columns_back(
            f"kv_up.{where}", latent.kv_up, dy, "_latent", read
        )
        h = (*dq, *dkv) if latent.compresses_queries else dkv
        h = write.total(f"sum_latent.{where}", h, latent.whole_bytes)
        h = write.norm_back(f"norm_latent.{where}", h, latent.normed_width)
        h, down_dw = write.linear_back(f"compress.{where}", latent.compress, h, latent.own_tokens)
        dx = h if latent.compresses_queries else (*h, *dq)
        return dx, (*q_dw, *kv_dw, *down_dw)

    def _queries_back(self, where: str, dy: Nodes) -> tuple[Nodes, Nodes]:
        write, latent = self.write, self.latent
        if latent.compresses_queries:  # what they read is gathered with compressed keys and values
            return write.linear_back(f"q_up.{where}", latent.q_up, dy)
        return write.split_by_columns_back(f"q_up.{where}", latent.q_up, dy, "1", write.stream)
