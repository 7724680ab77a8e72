"""Losses of decisions with their gradients, as few operators on a processor (``models/fused.py``).

Both are computed in the forward pass, as the logits are there: nothing is kept for the backward
pass but the gradients, which it multiplies by that of the sum.

Shape letters: A readouts, D width of a state, E edges, G softmaxes, K codes, P pairs, Q decisions,
R rows, T tokens, V codes of all embeddings, Z attention blocks, d width of a key.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from layerdag.models.fast.layout import BLOCK_CODES, TOKEN_CODES
from layerdag.models.fast.targets import TrainingCandidates
from layerdag.models.fused import matrix, product_rows, run_kernel


class _Chain(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int64) for name in ("width", "readouts", "embedded")),
        *((name, ctypes.c_void_p) for name in ("weight", "table", "code")),
        ("columns", ctypes.c_int64),
        ("codes", ctypes.c_void_p),
    )


_PAIRS = "token_decision token token_code block_decision block block_code softmax chosen padding"
_SIZES = "softmaxes width columns token_codes block_codes"


class _Candidates(ctypes.Structure):
    _fields_ = (
        ("tokens", ctypes.c_int64),
        ("blocks", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in _PAIRS.split()),
        *((name, ctypes.c_int64) for name in _SIZES.split()),
        ("offset", 4 * ctypes.c_int64),
        ("scale", ctypes.c_float),
    )


@dataclass(frozen=True, eq=False)
class ReadoutChain:
    """Readouts of one state after the other; an embedding of what was read out may be added.

    Attributes:
        norm_AD: Weights of the readouts' normalizations.
        map_AKD: Weights of their maps, of K codes each.
        bias_AK: Biases of these.
        table_VD: Embeddings that are added after the first, second, ... readout.
        dtype: Precision of the products.
    """

    norm_AD: Sequence[Float[Tensor, " D"]]
    map_AKD: Sequence[Float[Tensor, "_ D"]]
    bias_AK: Sequence[Float[Tensor, " _"]]
    table_VD: Sequence[Float[Tensor, "_ D"]]
    dtype: torch.dtype

    def loss(
        self,
        state_RD: Float[Tensor, "R D"],
        chosen_RA: Int[Tensor, "R A"],
        code_RA: Int[Tensor, "R _"],
        without_first_R: Bool[Tensor, " R"] | None = None,
    ) -> Float[Tensor, ""]:
        """Return the cross entropies of all readouts, summed.

        Args:
            state_RD: What the first readout is given.
            chosen_RA: Codes that were chosen; ``NOT_A_TARGET`` for none.
            code_RA: Codes that are embedded.
            without_first_R: Where code 0 of the first readout is excluded.
        """
        parameters = (*self.norm_AD, *self.map_AKD, *self.bias_AK, *self.table_VD)
        chosen_RA, code_RA = chosen_RA.long(), code_RA.long().contiguous()
        first_R = None if without_first_R is None else without_first_R.contiguous()
        loss: Tensor = _ChainLoss.apply(
            state_RD.float().contiguous(), self, chosen_RA, code_RA, first_R, *parameters
        )
        return loss


class _ChainLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        state_RD: Tensor,
        chain: ReadoutChain,
        chosen_RA: Tensor,
        code_RA: Tensor,
        without_first_R: Tensor | None,
        *parameters: Tensor,
    ) -> Tensor:
        (rows, width), dtype = state_RD.shape, chain.dtype
        padded, readouts = product_rows(rows, dtype), len(chain.map_AKD)
        norms, tables = _addresses(chain.norm_AD), _addresses(chain.table_VD)
        codes_of = [len(table) for table in chain.table_VD]
        table_codes = (ctypes.c_int64 * len(codes_of))(*codes_of)
        structure = ctypes.byref(
            _Chain(
                width,
                readouts,
                len(tables),
                ctypes.addressof(norms),
                ctypes.addressof(tables),
                code_RA.data_ptr(),
                code_RA.stride(0),
                ctypes.addressof(table_codes),
            )
        )
        hidden_ARD = torch.empty((readouts, padded, width), dtype=dtype)
        slope_ARD = torch.empty_like(hidden_ARD)
        run_kernel(
            "chain", structure, rows, padded, state_RD, matrix(hidden_ARD), matrix(slope_ARD)
        )
        low_KD = torch.cat(list(chain.map_AKD)).to(dtype)
        low_K = torch.cat(list(chain.bias_AK)).to(dtype)
        of_low_KD = torch.empty_like(low_KD)
        of_bias_K = torch.zeros(low_K.shape, dtype=torch.float32)
        of_hidden_ARD, loss = torch.empty_like(hidden_ARD), ctypes.c_double()
        sizes, first = [len(each) for each in chain.bias_AK], 0
        for a, codes in enumerate(sizes):
            own = slice(first, first + codes)
            hidden_RD, first = hidden_ARD[a], first + codes
            logits_RK = torch.addmm(low_K[own], hidden_RD, low_KD[own].T)
            run_kernel(
                "cross_entropy",
                rows,
                padded,
                codes,
                matrix(logits_RK),
                chosen_RA[:, a],
                chosen_RA.stride(0),
                without_first_R if a == 0 else None,
                of_bias_K[own],
                ctypes.byref(loss),
            )
            torch.mm(logits_RK, low_KD[own], out=of_hidden_ARD[a])
            torch.mm(logits_RK.T, hidden_RD, out=of_low_KD[own])
        of_state_RD = torch.empty_like(state_RD)
        of_norm_AD = torch.zeros(readouts, width, dtype=torch.float32)
        of_table_VD = torch.zeros(sum(codes_of), width, dtype=torch.float32)
        split_norms, split_tables = list(of_norm_AD), list(of_table_VD.split(codes_of))
        run_kernel(
            "chain_backward",
            structure,
            rows,
            padded,
            state_RD,
            matrix(slope_ARD),
            matrix(of_hidden_ARD),
            of_state_RD,
            _addresses(split_norms),
            _addresses(split_tables),
        )
        ctx.gradients = (
            of_state_RD,
            *split_norms,
            *of_low_KD.float().split(sizes),
            *of_bias_K.split(sizes),
            *split_tables,
        )
        return torch.tensor(loss.value, dtype=torch.float32)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        of_state_RD, *others = torch._foreach_mul(ctx.gradients, gradient)
        return (of_state_RD, None, None, None, None, *others)


def _addresses(tensors: Sequence[Tensor]) -> Any:
    return (ctypes.c_void_p * len(tensors))(*(each.data_ptr() for each in tensors))


def pointer_loss(
    projection_QK: Float[Tensor, "Q K"],
    key_Td: Float[Tensor, "T d"],
    key_Zd: Float[Tensor, "Z d"],
    candidates: TrainingCandidates,
) -> Float[Tensor, ""]:
    """Return -log p of the parents that were chosen, summed.

    Args:
        projection_QK: Query of tokens, query of blocks, scores of token codes and of block codes of
            each decision, side by side.
        key_Td: Keys of tokens.
        key_Zd: Keys of attention blocks.
        candidates: Of all decisions.
    """
    numbers = (x.float().contiguous() for x in (projection_QK, key_Td, key_Zd))
    loss: Tensor = _PointerLoss.apply(*numbers, candidates)
    return loss


class _PointerLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        projection_QK: Tensor,
        key_Td: Tensor,
        key_Zd: Tensor,
        candidates: TrainingCandidates,
    ) -> Tensor:
        tokens, blocks = candidates.tokens, candidates.blocks
        offset = [sum(TOKEN_CODES[:feature]) for feature in range(len(TOKEN_CODES))]
        indices = (
            tokens.decision_P,
            tokens.candidate_P,
            candidates.codes_P4,
            blocks.decision_P,
            blocks.candidate_P,
            candidates.block_codes_P,
            candidates.softmax_P,
            candidates.chosen_G,
            candidates.padding_G.float(),
        )
        assert all(each.is_contiguous() for each in indices)
        structure = _Candidates(
            tokens.decision_P.shape[0],
            blocks.decision_P.shape[0],
            *(each.data_ptr() for each in indices),
            candidates.chosen_G.shape[0],
            key_Td.shape[1],
            projection_QK.shape[1],
            sum(TOKEN_CODES),
            BLOCK_CODES,
            (4 * ctypes.c_int64)(*offset),
            key_Td.shape[1] ** -0.5,
        )
        given = projection_QK, key_Td, key_Zd
        gradients = [torch.zeros_like(each) for each in given]
        loss = ctypes.c_double()
        run_kernel("pointer", ctypes.byref(structure), *given, ctypes.byref(loss), *gradients)
        ctx.gradients = gradients
        return torch.tensor(loss.value, dtype=torch.float32)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return (*torch._foreach_mul(ctx.gradients, gradient), None)
