"""Losses of decisions with their gradients, as few operators on a processor (``models/fused.py``).

Both are computed in the forward pass, as the logits are there: nothing is kept for the backward
pass but the gradients, which it multiplies by that of the sum.

Shape letters: A node attributes, D width of a state, G groups of rows, K codes, P pairs, Q
decisions, R rows, T tokens, Z attention blocks, d width of a head or key.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from layerdag.models.fast.layout import BLOCK_CODES, TOKEN_CODES
from layerdag.models.fast.targets import TrainingCandidates
from layerdag.models.fused import (
    NUMBER,
    POINTER,
    Activation,
    matrix,
    product_rows,
    run_kernel,
    structure,
)

_FEW_CODES = 48
"""Up to so many, a readout is computed row by row; beyond, matrix products are faster."""

_Candidates = structure(
    "_Candidates",
    ("tokens blocks", NUMBER),
    ("token_decision token token_code block_decision block block_code", POINTER),
    ("softmax chosen padding", POINTER),
    ("softmaxes width columns token_codes block_codes", NUMBER),
    ("offset", 4 * NUMBER),
    ("scale", ctypes.c_float),
)
_Readout = structure(
    "_Readout",
    ("rows codes", NUMBER),
    ("state map bias chosen", POINTER),
    ("columns", NUMBER),
    ("without_first", POINTER),
)
_Gradients = structure("_Gradients", ("state norm map bias", POINTER))

# Codes that were chosen, how far apart they are, and the rows where the first code is excluded.
_Chosen = tuple[Tensor, int, Tensor | None]


@dataclass(frozen=True, eq=False)
class ReadoutChain:
    """Readouts of one state after the other; an embedding of what was read out may be added."""

    norms: Sequence[nn.LayerNorm]  # the readouts' normalizations, which have no bias
    map_AKD: Sequence[Float[Tensor, "_ D"]]  # Weights of their maps, of K codes each
    bias_AK: Sequence[Float[Tensor, " _"]]  # biases of these
    table_AKD: Sequence[Float[Tensor, "_ D"]]  # added after the first, second, ... readout
    dtype: torch.dtype  # precision of the products

    def loss(
        self,
        state_RD: Float[Tensor, "R D"],
        chosen_RA: Int[Tensor, "R A"],
        code_RA: Int[Tensor, "R _"] | None = None,
        without_first_R: Bool[Tensor, " R"] | None = None,
    ) -> Float[Tensor, ""]:
        """Return the cross entropies of all readouts, summed.

        Nothing was chosen where ``chosen_RA`` is ``NOT_A_TARGET``; code 0 of the first readout is
        excluded where ``without_first_R``.
        """
        chosen_RA, code_RA = chosen_RA.long(), None if code_RA is None else code_RA.long()
        first_R = None if without_first_R is None else without_first_R.contiguous()
        norm_AD = [each.weight for each in self.norms]
        parameters = (*norm_AD, *self.map_AKD, *self.bias_AK, *self.table_AKD)
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
        code_RA: Tensor | None,
        without_first_R: Tensor | None,
        *parameters: Tensor,
    ) -> Tensor:
        (rows, width), loss = state_RD.shape, ctypes.c_double()
        codes_AR = () if code_RA is None else code_RA.T.contiguous()
        embedded = list(zip(chain.table_AKD, codes_AR, strict=False))
        if embedded:
            state_RD = state_RD.clone()
        for table_KD, code_R in embedded:
            run_kernel("shift", len(table_KD), rows, width, code_R, table_KD, 1.0, state_RD)
        sizes = [len(each) for each in chain.bias_AK]
        of_map_AKD = state_RD.new_zeros(sum(sizes), width).split(sizes)
        of_bias_AK = state_RD.new_zeros(sum(sizes)).split(sizes)
        of_norm_AD = state_RD.new_zeros(len(sizes), width).unbind()
        of_table_AKD = [torch.zeros_like(table_KD) for table_KD in chain.table_AKD]
        of_state_RD = torch.zeros_like(state_RD)
        first_row = chosen_RA.new_zeros(1)
        for a in reversed(range(len(sizes))):
            if a < len(embedded):
                table_KD, code_R = embedded[a]
                run_kernel("shift", len(table_KD), rows, width, code_R, table_KD, -1.0, state_RD)
                run_kernel(
                    "embed_backward",
                    *(rows, 1, width, code_R, first_row, of_state_RD, of_table_AKD[a]),
                )
            chosen = chosen_RA[:, a], chosen_RA.stride(0), without_first_R if a == 0 else None
            of = of_state_RD, of_norm_AD[a], of_map_AKD[a], of_bias_AK[a]
            read_out = _read_out_few if sizes[a] <= _FEW_CODES else _read_out_many
            read_out(chain, a, state_RD, chosen, of, loss)
        ctx.gradients = (of_state_RD, *of_norm_AD, *of_map_AKD, *of_bias_AK, *of_table_AKD)
        return state_RD.new_tensor(loss.value)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        of_state_RD, *others = torch._foreach_mul(ctx.gradients, gradient)
        return (of_state_RD, None, None, None, None, *others)


def _read_out_few(
    chain: ReadoutChain,
    a: int,
    state_RD: Tensor,
    chosen: _Chosen,
    of: Sequence[Tensor],
    loss: ctypes.c_double,
) -> None:
    """Add the cross entropies of a readout of few codes, and their gradients.

    ``of`` has the gradients of the state, the normalization's weight, the map and its bias.
    """
    codes, stride, without_first_R = chosen
    weight_KD, bias_K = chain.map_AKD[a], chain.bias_AK[a]
    given = state_RD, weight_KD, bias_K, codes
    readout = _Readout(
        state_RD.shape[0],
        len(bias_K),
        *(x.data_ptr() for x in given),
        stride,
        None if without_first_R is None else without_first_R.data_ptr(),
    )
    activation = Activation(chain.norms[a], gelu=True)
    run_kernel(
        "readout",
        ctypes.byref(activation.structure(state_RD.shape[1], *activation.parameters)),
        ctypes.byref(readout),
        ctypes.byref(_Gradients(*(x.data_ptr() for x in of))),
        ctypes.byref(loss),
    )


def _read_out_many(
    chain: ReadoutChain,
    a: int,
    state_RD: Tensor,
    chosen: _Chosen,
    of: Sequence[Tensor],
    loss: ctypes.c_double,
) -> None:
    of_state_RD, of_norm_D, of_map_KD, of_bias_K = of
    rows, dtype = state_RD.shape[0], chain.dtype
    low_KD, low_K = chain.map_AKD[a].to(dtype), chain.bias_AK[a].to(dtype)
    activation = Activation(chain.norms[a], gelu=True)
    hidden_RD, slope_RD = activation.fused(state_RD, product_rows(rows, dtype), dtype)
    logits_RK = torch.addmm(low_K, hidden_RD, low_KD.T)
    run_kernel(
        "cross_entropy",
        *(rows, *logits_RK.shape, matrix(logits_RK), *chosen, of_bias_K, ctypes.byref(loss)),
    )
    of_map_KD.copy_(logits_RK.T @ hidden_RD)
    found_RD, found_D, _ = activation.fused_backward(
        state_RD, slope_RD, logits_RK @ low_KD, *activation.parameters
    )
    assert found_D is not None
    of_state_RD += found_RD
    of_norm_D += found_D


def pointer_loss(
    projection_QK: Float[Tensor, "Q K"],
    key_Td: Float[Tensor, "T d"],
    key_Zd: Float[Tensor, "Z d"],
    candidates: TrainingCandidates,
) -> Float[Tensor, ""]:
    """Return -log p of the parents that were chosen, summed.

    ``projection_QK`` has the query of tokens, the query of blocks, scores of token codes and of
    block codes of each decision, side by side.
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
        pairs = _Candidates(
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
        run_kernel("pointer", ctypes.byref(pairs), *given, ctypes.byref(loss), *gradients)
        ctx.gradients = gradients
        return projection_QK.new_tensor(loss.value)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return (*torch._foreach_mul(ctx.gradients, gradient), None)
