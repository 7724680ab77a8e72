"""Operations on flat rows: gathering, and sums over segments (groups of rows).

Shape letters: D width of a state, G groups of rows, R rows.
"""

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor


def gather_rows(
    x_RD: Shaped[Tensor, "R D"], index: Int[Tensor, "*shape"]
) -> Shaped[Tensor, "*shape D"]:
    """Return the rows ``index`` of ``x_RD``, shape (*index.shape, D).

    The same as ``x_RD[index]``, whose gradient takes ten times as long on a CPU.
    """
    return x_RD.index_select(0, index.flatten()).unflatten(0, index.shape)


def to_float32(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return ``x`` in at least float32, for sums over many rows under autocast.

    A sum in bfloat16, with its eight significant bits, stops growing after a few hundred terms.
    float64 is kept.
    """
    return x.to(torch.promote_types(x.dtype, torch.float32))


def segment_mean(
    value_RD: Float[Tensor, "R D"], group_R: Int[Tensor, " R"], count_G: Int[Tensor, " G"]
) -> Float[Tensor, "G D"]:
    """Return the mean of the rows of each group, zero for an empty one."""
    value_RD = to_float32(value_RD)
    total_GD = value_RD.new_zeros(count_G.shape[0], value_RD.shape[1])
    total_GD = total_GD.index_add(0, group_R, value_RD)
    return total_GD / count_G.clamp(min=1)[:, None]


def segment_max(
    value_RD: Float[Tensor, "R D"], group_R: Int[Tensor, " R"], groups: int
) -> Float[Tensor, "G D"]:
    """Return the maximum over the rows of each group, minus infinity for an empty one."""
    empty_GD = value_RD.new_full((groups, value_RD.shape[1]), -torch.inf)
    return empty_GD.scatter_reduce(0, group_R[:, None].expand_as(value_RD), value_RD, "amax")


def segment_log_sum_exp(
    value_RD: Float[Tensor, "R D"], group_R: Int[Tensor, " R"], max_GD: Float[Tensor, "G D"]
) -> Float[Tensor, "G D"]:
    """Return log-sum-exp over the rows of each group; none may be empty.

    It is a sum in the log domain: the time of a graph is the sum of its operators' times.

    Args:
        value_RD: The rows.
        group_R: Their groups.
        max_GD: From ``segment_max``.
    """
    shift_GD = max_GD.detach()
    exp_RD = (value_RD - gather_rows(shift_GD, group_R)).exp()
    return shift_GD + torch.zeros_like(shift_GD).index_add(0, group_R, exp_RD).log()


def segment_pointers(size_G: Int[Tensor, " G"]) -> Int[Tensor, " G+1"]:
    """Return running sums that start with 0."""
    return torch.cat([size_G.new_zeros(1), size_G.cumsum(0)])


def segment_ranges(
    start_G: Int[Tensor, " G"], size_G: Int[Tensor, " G"]
) -> tuple[Int[Tensor, " R"], Int[Tensor, " R"]]:
    """Return (group, value) of the ranges ``start_G[g] + [0, size_G[g])`` laid end to end."""
    total = int(size_G.sum())
    index_G = torch.arange(size_G.numel(), device=size_G.device)
    group_R = torch.repeat_interleave(index_G, size_G, output_size=total)
    first_G = start_G - (size_G.cumsum(0) - size_G)
    return group_R, first_G[group_R] + torch.arange(total, device=size_G.device)
