"""Draws without replacement from groups of candidates, all groups at once.

Shape letters: G groups of rows, R rows (candidates).
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

_FIRST = float("inf")


def gumbel(uniform: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return standard Gumbel noise from uniforms in (0, 1)."""
    return -torch.log(-torch.log(uniform))


def choose_in_groups(
    key_R: Float[Tensor, " R"], group_R: Int[Tensor, " R"], count_G: Int[Tensor, " G"]
) -> Bool[Tensor, " R"]:
    """Mark the ``count_G[g]`` candidates with the largest keys of each group g.

    With log-weights plus Gumbel noise as keys this draws without replacement in proportion to the
    weights (Gumbel-top-k, Kool et al., arXiv 1903.06059).

    Args:
        key_R: Key of each candidate.
        group_R: int64 group of each candidate, ascending.
        count_G: int64 number wanted; a group with fewer candidates gives all.
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

    Args:
        key_R: Key of each candidate.
        group_R: int64 group of each candidate, ascending.
        count_G: int64 number wanted, at least 1.
        eligible_R: bool; a group without an eligible candidate is chosen by key alone.
    """
    among_R = torch.where(eligible_R, key_R, -_FIRST)
    first_R = choose_in_groups(among_R, group_R, torch.ones_like(count_G)) & eligible_R
    return choose_in_groups(torch.where(first_R, _FIRST, key_R), group_R, count_G)
