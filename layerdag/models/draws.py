"""Random draws: uniforms by seed, categories, subsets, guidance; and DAGs from what was drawn.

Uniforms depend on a sample's own seed alone and are computed for all samples at once. Both kinds
are SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): number k of a stream is a mix of ``state + k *
gamma``, so any position of any stream is a few integer operations on an array. ``SampleStreams``
are read one after another, for models whose draws follow each other; ``slot_uniforms`` are
addressed by position and slot, for models that make the same decisions about every node.

Shape letters: A node attributes, B graphs, E edges, G groups of rows, K codes, N nodes, O options,
R rows, U uniforms, n nodes of one graph.
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int, UInt64
from torch import Tensor

from layerdag.dag.dag import DAG
from layerdag.runtime.rng import (
    GOLDEN_GAMMA,
    derive_seed,
    position_words,
    scrambled,
    shifted_right,
    slot_words,
)


def bin_positions(uniform: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return positions inside bins as float32 below 1, which rounding must not reach."""
    return uniform.float().clamp(max=1 - 2.0**-24)


def assemble_dags(
    x_NA: Int[Tensor, "N A"],
    u_NA: Float[Tensor, "N A"],
    nodes_B: Int[Tensor, " B"],
    edge_index_2E: Int[Tensor, "2 E"],
    edge_type_E: Int[Tensor, " E"],
    layer_N: Int[Tensor, " N"],
) -> tuple[DAG, ...]:
    """Split flat tensors into DAGs, edges sorted by (target, source).

    Nodes are ordered by graph, then by layer; edges count through all nodes, in any order.
    """
    graph_N = torch.repeat_interleave(nodes_B)
    order_E = torch.argsort(edge_index_2E[1] * x_NA.shape[0] + edge_index_2E[0])
    edge_index_2E, edge_type_E = edge_index_2E[:, order_E], edge_type_E[order_E]
    graph_E = graph_N[edge_index_2E[1]]
    edge_index_2E = edge_index_2E - (nodes_B.cumsum(0) - nodes_B)[graph_E]
    nodes = nodes_B.tolist()
    edges = torch.bincount(graph_E, minlength=len(nodes)).tolist()
    # Copies, so that one graph does not keep the tensors of all.
    return tuple(
        DAG.build(
            x_nA.clone(),
            pairs_2e.clone(),
            edge_type_E=type_e.clone(),
            u_NA=u_nA.clone(),
            layer_N=layer_n.clone(),
        )
        for x_nA, u_nA, pairs_2e, type_e, layer_n in zip(
            x_NA.split(nodes),
            u_NA.split(nodes),
            edge_index_2E.split(edges, dim=1),
            edge_type_E.split(edges),
            layer_N.split(nodes),
            strict=True,
        )
    )


def sample_categorical(
    weight_K: Float[Tensor, "*shape K"], uniform: Float[Tensor, "*drawn"]
) -> Int[Tensor, "*drawn"]:
    """Sample codes by inverting the cumulative distribution; sums run in float64.

    Weights are not negative and need not sum to 1; a code of weight 0 is never sampled. There is
    one uniform in [0, 1) for each row of weights, or several, of shape (*shape, O).
    """
    several = uniform.ndim == weight_K.ndim
    reach_K = weight_K.double().cumsum(-1)
    total = reach_K[..., -1:].contiguous()
    uniform_O = uniform.double() if several else uniform.double().unsqueeze(-1)
    code_O = torch.searchsorted(reach_K, uniform_O * total, right=True)
    # A product that rounds up to the total belongs to the last code with a positive weight.
    code_O = torch.minimum(code_O, torch.searchsorted(reach_K, total))
    return code_O if several else code_O.squeeze(-1)


def sample_from_logits(
    logits_K: Float[Tensor, "*shape K"], uniform: Float[Tensor, "*drawn"]
) -> Int[Tensor, "*drawn"]:
    """Sample codes as ``sample_categorical``; a code with a logit of -inf is never sampled."""
    return sample_categorical(torch.softmax(logits_K.double(), dim=-1), uniform)


def sample_if_possible(
    logits_K: Float[Tensor, "*shape K"], uniform: Float[Tensor, "*drawn"]
) -> Int[Tensor, "*drawn"]:
    """Sample codes as ``sample_from_logits``; 0 where no code is possible."""
    weight_K = torch.softmax(logits_K.double(), dim=-1).nan_to_num(0.0)
    return sample_categorical(weight_K, uniform)


def guided(
    conditional: Float[Tensor, "*shape"], unconditional: Float[Tensor, "*shape"], weight: float
) -> Float[Tensor, "*shape"]:
    """Return logits pushed away from the unconditional ones; a weight of 1 changes nothing.

    A code that is impossible under the conditions stays so: there both logits may be minus
    infinity, and their difference is undefined.
    """
    pushed = unconditional + weight * (conditional - unconditional)
    return torch.where(conditional.isinf(), conditional, pushed)


_UNIT = 2.0**-53


class SampleStreams:
    """A stream for each of B samples."""

    def __init__(self, seeds: Sequence[int], device: torch.device | str = "cpu") -> None:
        states = [derive_seed(seed, "sample") for seed in seeds]
        self._state_B = torch.tensor(states, dtype=torch.int64, device=device)
        self._used_B = torch.zeros_like(self._state_B)

    def uniforms(self, counts_B: Int[Tensor, " B"]) -> Float64[Tensor, " R"]:
        """Return the next ``counts_B[b]`` uniforms of each stream, end to end."""
        total = int(counts_B.sum())
        start_B = self._used_B - (counts_B.cumsum(0) - counts_B)
        start_R = torch.repeat_interleave(start_B, counts_B, output_size=total)
        state_R = torch.repeat_interleave(self._state_B, counts_B, output_size=total)
        position_R = start_R + torch.arange(1, total + 1, device=counts_B.device)
        self._used_B = self._used_B + counts_B
        word_R = scrambled(state_R + position_R * GOLDEN_GAMMA)
        return (shifted_right(word_R, 11).double() + 0.5) * _UNIT


def slot_uniforms(
    seed_B: UInt64[np.ndarray, " B"], position_B: Int[np.ndarray, " B"], slots: range
) -> Float64[Tensor, "B U"]:
    """Return uniforms in [0, 1), one for each slot of each sample."""
    word_B1 = position_words(seed_B.astype(np.int64), position_B.astype(np.int64))[:, None]
    slot_U = np.arange(slots.start, slots.stop, dtype=np.int64)
    word_BU = scrambled(word_B1 ^ slot_words(slot_U))
    return torch.from_numpy(shifted_right(word_BU, 11).astype(np.float64) * _UNIT)


def unit_interval(word: Int[Tensor, "*shape"]) -> Float64[Tensor, "*shape"]:
    """Return uniforms as ``slot_uniforms``, of hashes of positions xor those of slots."""
    return shifted_right(scrambled(word), 11).double() * _UNIT


_FIRST = float("inf")


def gumbel(uniform: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return standard Gumbel noise from uniforms in (0, 1)."""
    return -torch.log(-torch.log(uniform))


def choose_in_groups(
    key_R: Float[Tensor, " R"], group_R: Int[Tensor, " R"], count_G: Int[Tensor, " G"]
) -> Bool[Tensor, " R"]:
    """Mark the ``count_G[g]`` candidates with the largest keys of each group g.

    With log-weights plus Gumbel noise as keys this draws without replacement in proportion to the
    weights (Gumbel-top-k, Kool et al., arXiv 1903.06059). Groups are ascending; one with fewer
    candidates than wanted gives all.
    """
    by_key_R = torch.argsort(key_R, descending=True, stable=True)
    order_R = by_key_R[torch.argsort(group_R[by_key_R], stable=True)]
    size_G = torch.bincount(group_R, minlength=count_G.numel())
    start_G = size_G.cumsum(0) - size_G
    rank_R = torch.arange(key_R.numel(), device=key_R.device) - start_G[group_R]
    chosen_R = torch.zeros_like(group_R, dtype=torch.bool)
    chosen_R[order_R] = rank_R < count_G[group_R]
    return chosen_R


def choose_with_one_of(
    key_R: Float[Tensor, " R"],
    group_R: Int[Tensor, " R"],
    count_G: Int[Tensor, " G"],
    eligible_R: Bool[Tensor, " R"],
) -> Bool[Tensor, " R"]:
    """Mark candidates as ``choose_in_groups``, the first of each group among the eligible ones.

    A group without an eligible candidate is chosen by key alone.
    """
    among_R = torch.where(eligible_R, key_R, -_FIRST)
    first_R = choose_in_groups(among_R, group_R, torch.ones_like(count_G)) & eligible_R
    return choose_in_groups(torch.where(first_R, _FIRST, key_R), group_R, count_G)
