"""States of all decisions of a training batch, as one operator on a processor.

They are those of ``Heads``. Linear maps of a token's encoding are applied once to each token, and
not to each edge that it is the parent of.

Shape letters: A node attributes, D width of a state, E edges, K codes, N nodes, T tokens, d width
of a head or key, q selected decisions.
"""

import ctypes
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from layerdag.models.fast.targets import Targets
from layerdag.models.fused import NUMBER, POINTER, run_kernel, structure

_States = structure(
    "_States",
    ("nodes edges inner width columns slots", NUMBER),
    ("token slot_code slot_offset stub kind degree_code in_degree", POINTER),
    ("kind_columns kinds", NUMBER),
    ("first_edge inner_node parent node rank open_code", POINTER),
)
_Tables = structure("_Tables", ("slot stub kind open degree", POINTER))
_Decisions = structure("_Decisions", ("kind degree other after before inner", POINTER))


class DecisionStates(NamedTuple):
    """States of the decisions of a batch."""

    kind_ND: Float[Tensor, "N D"]
    other_ND: Float[Tensor, "N D"]  # of the other attributes
    after_ED: Float[Tensor, "E D"]  # after each parent, of edge types
    before_ED: Float[Tensor, "E D"]  # before each parent was chosen
    inner_qD: Float[Tensor, "q D"]  # of in-degrees


def fused_states(
    projection_TK: Float[Tensor, "T K"],
    targets: Targets,
    slot_offset_3: Int[Tensor, " 3"],
    *tables: Float[Tensor, "_ D"],
) -> tuple[DecisionStates, Float[Tensor, "T d"]]:
    """Return the states of all decisions, and the keys of tokens.

    ``projection_TK`` is what each token's encoding is mapped to: context, first parent, last parent
    and all parents, D columns each, then the key. Tables are embeddings of places in layers (three
    codes one after another, which begin at ``slot_offset_3``), of stub codes of first parents, of
    kinds, of numbers of parents that follow, and of in-degrees.
    """
    *states, key_Td = _StatesFunction.apply(
        targets, slot_offset_3, projection_TK.contiguous(), *tables
    )
    return DecisionStates(*states), key_Td


class _StatesFunction(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, targets: Targets, offset_3: Tensor, projection_TK: Tensor, *tables: Tensor
    ) -> tuple[Tensor, ...]:
        nodes, edges, inner = (
            x.shape[0] for x in (targets.token_N, targets.parent_E, targets.inner_q)
        )
        width = tables[0].shape[1]
        of_nodes = (
            targets.token_N,
            targets.slot_codes_N3,
            offset_3,
            targets.first_stub_N,
            targets.x_NA,
            targets.degree_code_N,
            targets.in_degree_N,
        )
        of_edges = (
            targets.first_q,
            targets.inner_q,
            targets.parent_E,
            targets.node_E,
            targets.rank_E,
            targets.open_code_E,
        )
        indices = (*of_nodes, *of_edges)
        assert all(x.is_contiguous() and x.dtype == torch.int64 for x in indices)
        ctx.structure = _States(
            nodes,
            edges,
            inner,
            width,
            projection_TK.shape[1],
            targets.slot_codes_N3.shape[1],
            *(x.data_ptr() for x in of_nodes),
            targets.x_NA.shape[1],
            len(tables[2]),
            *(x.data_ptr() for x in of_edges),
        )
        ctx.kept, ctx.shape = (targets, offset_3), projection_TK.shape
        ctx.codes = [len(table) for table in tables]
        kind, degree, other, context = (projection_TK.new_empty(nodes, width) for _ in range(4))
        after, before = (projection_TK.new_empty(edges, width) for _ in range(2))
        inner_qD = projection_TK.new_empty(inner, width)
        decisions = kind, degree, other, after, before, inner_qD
        run_kernel(
            "states",
            ctypes.byref(ctx.structure),
            ctypes.byref(_Tables(*(x.data_ptr() for x in tables))),
            projection_TK,
            context,
            ctypes.byref(_Decisions(*(x.data_ptr() for x in decisions))),
        )
        return kind, other, after, before, inner_qD, projection_TK[:, 4 * width :].contiguous()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        kind, other, after, before, inner_qD, key_Td = gradients
        # Copies without gaps, for the kernel adds to them.
        kind, after = (x.clone(memory_format=torch.contiguous_format) for x in (kind, after))
        degree, context = torch.zeros_like(kind), torch.empty_like(kind)
        decisions = (
            kind,
            degree,
            other.contiguous(),
            after,
            before.contiguous(),
            inner_qD.contiguous(),
        )
        width = kind.shape[1]
        of_projection_TK = kind.new_zeros(ctx.shape)
        of_projection_TK[:, 4 * width :] = key_Td
        of_tables = kind.new_zeros(sum(ctx.codes), width).split(ctx.codes)
        run_kernel(
            "states_backward",
            ctypes.byref(ctx.structure),
            ctypes.byref(_Tables(*(x.data_ptr() for x in of_tables))),
            of_projection_TK,
            context,
            ctypes.byref(_Decisions(*(x.data_ptr() for x in decisions))),
        )
        return (None, None, of_projection_TK, *of_tables)
