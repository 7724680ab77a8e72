"""Fused attention on a processor: few calls around the products of an encoder block.

Queries and keys go to one matrix per block and head, and gradients back to tokens, without the
operators that gather, split, scale, mask and join them (``native/train/attend.c``). What is
computed is that of ``EncoderBlock``.

Shape letters: D width of a state, E edges, H heads, T tokens, Y heads of all rows, Z attention
blocks, b tokens of a block, d width of a head or key, v visible keys, w window, z pooled blocks.
"""

import ctypes
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from layerdag.models.fast.layout import AttentionBlocks
from layerdag.models.fused import NUMBER, POINTER, Matrix, matrix, run_kernel, structure

_Windows = structure(
    "_Windows",
    ("tokens width heads block blocks first slots later far", NUMBER),
    ("first_token later_token slot block_of pooled pooled_valid", POINTER),
    ("edges", NUMBER),
    ("parent child in_degree slope", POINTER),
    ("scale", ctypes.c_float),
)
_Heads = structure("_Heads", ("query key value", Matrix))


class Reads:
    """What the tokens of a batch read, the same in every encoder block.

    ``slope_H`` is the distance penalty of each head.
    """

    def __init__(
        self,
        blocks: AttentionBlocks,
        slope_H: Float[Tensor, " H"],
        parent_E: Int[Tensor, " E"],
        child_E: Int[Tensor, " E"],
        in_degree_T: Int[Tensor, " T"],
        width: int,
    ) -> None:
        self.heads, self.head_width = slope_H.shape[0], width // slope_H.shape[0]
        (first, slots), (later, far) = blocks.first.query_Zb.shape, blocks.pooled_Zz.shape
        self.shapes = ((first, slots, slots), (later, blocks.block, 2 * blocks.block + far))
        self._kept = [
            x.contiguous()
            for x in (
                blocks.first.query_Zb,
                blocks.later.key_Zw,
                blocks.slot_T,
                blocks.of_T,
                blocks.pooled_Zz,
                blocks.pooled_valid_Zz,
                parent_E,
                child_E,
                in_degree_T,
                slope_H.float(),
            )
        ]
        of_blocks, of_edges = self._kept[:6], self._kept[6:]
        self.structure = _Windows(
            in_degree_T.shape[0],
            width,
            self.heads,
            blocks.block,
            blocks.num_blocks,
            first,
            slots,
            later,
            far,
            *(x.data_ptr() for x in of_blocks),
            parent_E.shape[0],
            *(x.data_ptr() for x in of_edges),
            self.head_width**-0.5,
        )

    def __call__(self, all_T3D: Float[Tensor, "T _"]) -> Float[Tensor, "T _"]:
        """Return attended values and the mean of the parents' values side by side, (T, 2 D)."""
        read_T2D: Tensor = _Read.apply(all_T3D.contiguous(), self)
        return read_T2D

    def empty(self, like: Float[Tensor, "T _"]) -> list[tuple[Tensor, Tensor, Tensor]]:
        """Return room for queries, keys and values of first and of later blocks."""
        found = []
        for blocks, queries, seen in self.shapes:
            query, key, value = (
                like.new_empty(blocks * self.heads, tokens, self.head_width)
                for tokens in (queries, seen, seen)
            )
            found.append((query, key, value))
        return found


class _Read(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, all_T3D: Tensor, reads: Reads) -> Tensor:
        windows, parts = ctypes.byref(reads.structure), reads.empty(all_T3D)
        run_kernel("windows", windows, matrix(all_T3D), *map(_heads, parts))
        attended, weights = [], []
        for later, (query_Ybd, key_Yvd, value_Yvd) in enumerate(parts):
            weight_Ybv = torch.bmm(query_Ybd, key_Yvd.transpose(1, 2))
            run_kernel("attend", windows, later, matrix(weight_Ybv))
            attended.append(torch.bmm(weight_Ybv, value_Yvd))
            weights.append(weight_Ybv)
        read_T2D = all_T3D.new_empty(all_T3D.shape[0], all_T3D.shape[1] // 3 * 2)
        run_kernel("reads", windows, matrix(all_T3D), *map(matrix, attended), matrix(read_T2D))
        ctx.reads, ctx.parts, ctx.weights = reads, parts, weights
        return read_T2D

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_T2D: Tensor) -> tuple[Tensor, None]:
        windows, gradient_T2D = ctypes.byref(ctx.reads.structure), gradient_T2D.contiguous()
        wanted = [torch.empty_like(query) for query, _, _ in ctx.parts]
        run_kernel("reads_backward", windows, matrix(gradient_T2D), *map(matrix, wanted))
        found = []
        for wanted_Ybd, weight_Ybv, part in zip(wanted, ctx.weights, ctx.parts, strict=True):
            query_Ybd, key_Yvd, value_Yvd = part
            of_value_Yvd = torch.bmm(weight_Ybv.transpose(1, 2), wanted_Ybd)
            of_score_Ybv = torch.bmm(wanted_Ybd, value_Yvd.transpose(1, 2))
            rows, seen = weight_Ybv.shape[0] * weight_Ybv.shape[1], weight_Ybv.shape[2]
            run_kernel("attend_backward", rows, seen, matrix(weight_Ybv), matrix(of_score_Ybv))
            of_query_Ybd = torch.bmm(of_score_Ybv, key_Yvd)
            of_key_Yvd = torch.bmm(of_score_Ybv.transpose(1, 2), query_Ybd)
            found.append((of_query_Ybd, of_key_Yvd, of_value_Yvd))
        of_all_T3D = gradient_T2D.new_empty(gradient_T2D.shape[0], gradient_T2D.shape[1] // 2 * 3)
        run_kernel(
            "windows_backward",
            windows,
            matrix(gradient_T2D),
            *map(_heads, found),
            matrix(of_all_T3D),
        )
        return of_all_T3D, None


def _heads(part: tuple[Tensor, Tensor, Tensor]) -> Any:
    return ctypes.byref(_Heads(*(Matrix(x.data_ptr(), x.dtype == torch.bfloat16) for x in part)))
