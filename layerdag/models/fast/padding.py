"""Batches padded to fixed sizes, so that steps of different batches run the same kernels.

A GPU repeats a recorded step without the host (``training.recorded_steps``), if all shapes are
those of the recording. What pads a batch counts in no loss: its graphs have unknown conditions, its
targets are ``NOT_A_TARGET``, and its edges and pairs belong to nodes and softmaxes that are padding
themselves.

Shape letters: A node attributes, B graphs, C numeric conditions, E edges, G groups of rows, M
categorical conditions, N nodes, P pairs, R rows, T tokens, Z attention blocks, b tokens of a block,
w window, z pooled blocks.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import final

import torch
from torch import Tensor
from torch.nn import functional as F

from layerdag.dag.dag import DAGBatch
from layerdag.models.base import BatchPadding, BatchSizes
from layerdag.models.fast.layout import AttentionBlocks, AttentionWindow, CandidatePairs
from layerdag.models.fast.targets import (
    NOT_A_TARGET,
    ChosenCodes,
    Targets,
    TrainingCandidates,
)


@dataclass(frozen=True)
class PaddedSizes(BatchSizes):
    """Sizes of everything whose number differs from batch to batch."""

    graphs: int
    nodes: int
    edges: int
    size_rows: int  # sizes of layers and ends of graphs
    inner: int  # nodes with parents
    pairs: int  # decisions with candidate tokens
    block_pairs: int  # decisions with candidate blocks
    softmaxes: int  # softmaxes over these
    width: int  # tokens of a first attention block
    later: int  # later attention blocks
    pooled: int  # blocks that a later block sees as means

    @classmethod
    def of(cls, batch: DAGBatch, targets: Targets) -> "PaddedSizes":
        """Return the sizes of a batch, with one more of what padding must have a row of."""
        candidates, blocks = targets.candidates, targets.blocks
        return cls(
            graphs=batch.num_graphs + 1,
            nodes=batch.num_nodes + 1,
            edges=targets.parent_E.shape[0] + 1,
            size_rows=targets.size_token_R.shape[0],
            inner=targets.inner_q.shape[0],
            pairs=candidates.codes_P4.shape[0],
            block_pairs=candidates.block_codes_P.shape[0] + 1,
            softmaxes=candidates.chosen_G.shape[0] + 1,
            width=blocks.first.query_Zb.shape[1],
            later=blocks.later.query_Zb.shape[0],
            pooled=blocks.pooled_Zz.shape[1],
        )

    @property
    def scales(self) -> tuple[int, ...]:
        """The numbers of nodes and of pairs."""
        return self.nodes, self.pairs

    def hold(self, other: BatchSizes) -> bool:
        """Return whether a batch of these sizes fits."""
        return self.grown(other, 1.0) == self

    def grown(self, other: BatchSizes, room: float) -> "PaddedSizes":
        """Return sizes that also hold a batch of the sizes ``other``; width and depth exactly."""
        assert isinstance(other, PaddedSizes)
        exact = {"width": 1.0, "pooled": 1.0}
        sizes = {}
        for field in fields(self):
            own, wanted = getattr(self, field.name), getattr(other, field.name)
            factor = exact.get(field.name, room)
            sizes[field.name] = own if wanted <= own else math.ceil(wanted * factor)
        # Every graph that pads a batch has a node.
        spare = (part.nodes + sizes["graphs"] - part.graphs for part in (self, other))
        return PaddedSizes(**{**sizes, "nodes": max(sizes["nodes"], *spare)})


@final
class FastPadding(BatchPadding):
    """Padding of batches that carry ``Targets``."""

    def sizes(self, derived: DAGBatch) -> PaddedSizes:
        """Return the smallest sizes to which a batch can be padded."""
        return PaddedSizes.of(derived, _targets_of(derived))

    def padded(self, derived: DAGBatch, sizes: BatchSizes) -> DAGBatch:
        """Return a batch of these sizes, which hold its own, with the same losses."""
        assert isinstance(sizes, PaddedSizes)
        return _padded(derived, _targets_of(derived), sizes)

    def counts(self, derived: DAGBatch) -> Mapping[str, float]:
        """Return the layers, nodes and graphs of a batch, by objective."""
        return _targets_of(derived).counts


def _targets_of(derived: DAGBatch) -> Targets:
    targets = derived.derived
    assert isinstance(targets, Targets), "DAGModel.derived() comes first"
    return targets


def _padded(batch: DAGBatch, targets: Targets, sizes: PaddedSizes) -> DAGBatch:
    graph, node, token = batch.num_graphs, batch.num_nodes, targets.graph_T.shape[0]
    extra = sizes.graphs - graph
    ends = torch.arange(node + 1, node + extra)
    node_ptr = torch.cat([batch.node_ptr, ends, torch.tensor([sizes.nodes])])
    larger = DAGBatch(
        x_NA=_rows(batch.x_NA, sizes.nodes, 0),
        u_NA=_rows(batch.u_NA, sizes.nodes, 0.0),
        layer_N=_rows(batch.layer_N, sizes.nodes, 0),
        edge_index_2E=_rows(batch.edge_index_2E.T, sizes.edges, node).T.contiguous(),
        edge_type_E=_rows(batch.edge_type_E, sizes.edges, 0),
        node_ptr=node_ptr,
        edge_ptr=_rows(batch.edge_ptr, sizes.graphs + 1, sizes.edges),
        numeric_BC=_rows(batch.numeric_BC, sizes.graphs, float("nan")),
        category_BM=_rows(batch.category_BM, sizes.graphs, -1),
    )
    return larger.carrying(_padded_targets(targets, sizes, graph, node, token))


def _padded_targets(
    targets: Targets, sizes: PaddedSizes, graph: int, node: int, token: int
) -> Targets:
    """Return targets of these sizes; the padding's first graph, node and token are given."""
    tokens = sizes.nodes + sizes.graphs
    edge = targets.parent_E.shape[0]
    of_tokens = {
        name: _rows(getattr(targets, name), tokens, 0)
        for name in ("token_codes_TF", "position_T", "layer_T", "bucket_T")
    }
    of_nodes = {
        name: _rows(getattr(targets, name), sizes.nodes, 0)
        for name in ("x_NA", "slot_codes_N3", "first_stub_N", "degree_code_N")
    }
    of_edges = {
        name: _rows(getattr(targets, name), sizes.edges, value)
        for name, value in (
            ("parent_E", token), ("child_E", token), ("node_E", node), ("rank_E", 0),
            ("open_code_E", 0),
        )
    }  # fmt: skip
    return Targets(
        **of_tokens,
        graph_T=_rows(targets.graph_T, tokens, graph),
        in_degree_T=_rows(targets.in_degree_T, tokens, sizes.edges),
        blocks=_padded_blocks(targets.blocks, sizes, token),
        **of_nodes,
        in_degree_N=_rows(targets.in_degree_N, sizes.nodes, sizes.edges),
        token_N=_rows(targets.token_N, sizes.nodes, token),
        inner_q=_rows(targets.inner_q, sizes.inner, node),
        first_q=_rows(targets.first_q, sizes.inner, edge),
        **of_edges,
        size_token_R=_rows(targets.size_token_R, sizes.size_rows, token),
        opens_graph_R=_rows(targets.opens_graph_R, sizes.size_rows, False),
        candidates=_padded_candidates(targets.candidates, sizes, edge, token),
        chosen=_padded_codes(targets.chosen, sizes),
        counts=targets.counts,
    )


def _padded_codes(chosen: ChosenCodes, sizes: PaddedSizes) -> ChosenCodes:
    return ChosenCodes(
        attribute_NA=_rows(chosen.attribute_NA, sizes.nodes, NOT_A_TARGET),
        out_degree_N=_rows(chosen.out_degree_N, sizes.nodes, NOT_A_TARGET),
        degree_q=_rows(chosen.degree_q, sizes.inner, NOT_A_TARGET),
        type_E=_rows(chosen.type_E, sizes.edges, NOT_A_TARGET),
        size_R=_rows(chosen.size_R, sizes.size_rows, NOT_A_TARGET),
        inside_3=chosen.inside_3,
    )


def _padded_candidates(
    candidates: TrainingCandidates, sizes: PaddedSizes, edge: int, token: int
) -> TrainingCandidates:
    pairs, softmax = candidates.codes_P4.shape[0], candidates.chosen_G.shape[0]
    near_P, far_P = candidates.softmax_P.split((pairs, candidates.block_codes_P.shape[0]))
    moved_G = candidates.chosen_G + (candidates.chosen_G >= pairs) * (sizes.pairs - pairs)
    blocks = candidates.blocks
    return TrainingCandidates(
        tokens=CandidatePairs(
            _rows(candidates.tokens.decision_P, sizes.pairs, edge),
            _rows(candidates.tokens.candidate_P, sizes.pairs, token),
        ),
        codes_P4=_rows(candidates.codes_P4, sizes.pairs, 0),
        blocks=CandidatePairs(
            _rows(blocks.decision_P, sizes.block_pairs, edge),
            _rows(blocks.candidate_P, sizes.block_pairs, 0),
        ),
        block_codes_P=_rows(candidates.block_codes_P, sizes.block_pairs, 0),
        softmax_P=torch.cat(
            [_rows(near_P, sizes.pairs, softmax), _rows(far_P, sizes.block_pairs, softmax)]
        ),
        # The last pair of blocks is padding.
        chosen_G=_rows(moved_G, sizes.softmaxes, sizes.pairs + sizes.block_pairs - 1),
        padding_G=_rows(candidates.padding_G, sizes.softmaxes, 1.0),
    )


def _padded_blocks(blocks: AttentionBlocks, sizes: PaddedSizes, token: int) -> AttentionBlocks:
    graphs, width = blocks.first.query_Zb.shape
    first, later = blocks.slot_T < graphs * width, sizes.later
    slot_T = torch.where(
        first,
        blocks.slot_T // width * sizes.width + blocks.slot_T % width,
        blocks.slot_T - graphs * width + sizes.graphs * sizes.width,
    )
    own_Bw = F.pad(blocks.first.query_Zb, (0, sizes.width - width), value=token)
    own_Bw = _rows(own_Bw, sizes.graphs, token)
    columns = (0, sizes.pooled - blocks.pooled_Zz.shape[1])
    tokens = sizes.nodes + sizes.graphs
    return AttentionBlocks(
        block=blocks.block,
        of_T=_rows(blocks.of_T, tokens, blocks.num_blocks),
        offset_T=_rows(blocks.offset_T, tokens, 0),
        slot_T=_rows(slot_T, tokens, graphs * sizes.width),
        first=AttentionWindow(own_Bw, own_Bw),
        later=AttentionWindow(
            _rows(blocks.later.query_Zb, later, token), _rows(blocks.later.key_Zw, later, token)
        ),
        pooled_Zz=_rows(F.pad(blocks.pooled_Zz, columns), later, 0),
        pooled_valid_Zz=_rows(F.pad(blocks.pooled_valid_Zz, columns), later, False),
    )


def _rows(value: Tensor, rows: int, padding: int | float) -> Tensor:
    """Return a tensor with so many rows; those behind its own hold ``padding``."""
    larger = value.new_full((rows, *value.shape[1:]), padding)
    larger[: value.shape[0]] = value
    return larger
