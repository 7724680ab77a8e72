"""Batches padded to fixed sizes, so that steps of different batches run the same kernels.

A GPU repeats a recorded step without the host (``training.recorded_steps``), if all shapes are
those of the recording. What pads a batch counts in no loss: its graphs have unknown conditions, its
targets are ``NOT_A_TARGET``, and its edges and pairs belong to nodes and softmaxes that are padding
themselves.

Shape letters: B graphs, E edges, G groups of rows, P pairs, R rows, T tokens, Z attention blocks, b
tokens of a block, w window, z pooled blocks.
"""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

from layerdag.dag.dag import DAGBatch
from layerdag.models.fast.layout import AttentionBlocks, AttentionWindow
from layerdag.models.fast.targets import NOT_A_TARGET, ChosenCodes, Targets, TrainingCandidates

Part = TypeVar("Part")


def padded_sizes(batch: DAGBatch, targets: Targets) -> dict[str, int]:
    """Return the sizes of a batch, with one more of what padding must have a row of."""
    candidates, blocks = targets.candidates, targets.blocks
    return {
        "graphs": batch.num_graphs + 1,
        "nodes": batch.num_nodes,
        "edges": targets.parent_E.shape[0] + 1,
        "size_rows": targets.size_token_R.shape[0],
        "inner": targets.inner_q.shape[0],
        "pairs": candidates.codes_P4.shape[0],
        "block_pairs": candidates.block_codes_P.shape[0] + 1,
        "softmaxes": candidates.chosen_G.shape[0] + 1,
        "later": blocks.later.query_Zb.shape[0],
        "pooled": blocks.pooled_Zz.shape[1],
    }


def padded(batch: DAGBatch, targets: Targets, sizes: Mapping[str, int]) -> DAGBatch:
    """Return a batch of these sizes with its targets, with the same losses."""
    graph, node = batch.num_graphs, batch.num_nodes
    edge, token = targets.parent_E.shape[0], targets.graph_T.shape[0]
    graphs, edges = sizes["graphs"], sizes["edges"]
    nodes = sizes["nodes"] + graphs  # every graph that pads a batch has a node
    rows = {
        "B": graphs,
        "N": nodes,
        "T": nodes + graphs,
        "E": edges,
        "R": sizes["size_rows"],
        "q": sizes["inner"],
    }
    ends = torch.arange(node + 1, node + graphs - graph)
    larger = _filled(
        batch,
        rows,
        {"numeric_BC": torch.nan, "category_BM": -1},
        edge_index_2E=_rows(batch.edge_index_2E.T, edges, node).T.contiguous(),
        node_ptr=torch.cat([batch.node_ptr, ends, torch.tensor([nodes])]),
        edge_ptr=_rows(batch.edge_ptr, graphs + 1, edges),
    )
    names = [field.name for field in fields(ChosenCodes)]
    # Sums over parents of padding are divided by no less than their number.
    padding = {
        "graph_T": graph, "in_degree_T": edges, "token_N": token, "in_degree_N": edges,
        "inner_q": node, "first_q": edge, "parent_E": token, "child_E": token, "node_E": node,
        "size_token_R": token,
    }  # fmt: skip
    wanted = _filled(
        targets,
        rows,
        padding,
        blocks=_padded_blocks(targets.blocks, {**rows, "Z": sizes["later"]}, token, sizes),
        candidates=_padded_candidates(targets.candidates, sizes, edge, token),
        chosen=_filled(targets.chosen, rows, dict.fromkeys(names, NOT_A_TARGET)),
    )
    return larger.carrying(wanted)


def _padded_candidates(
    candidates: TrainingCandidates, sizes: Mapping[str, int], edge: int, token: int
) -> TrainingCandidates:
    pairs, softmax = candidates.codes_P4.shape[0], candidates.chosen_G.shape[0]
    near, far = {"P": sizes["pairs"]}, {"P": sizes["block_pairs"]}
    near_P, far_P = candidates.softmax_P.split((pairs, candidates.block_codes_P.shape[0]))
    softmaxes = [_rows(near_P, near["P"], softmax), _rows(far_P, far["P"], softmax)]
    moved_G = candidates.chosen_G + (candidates.chosen_G >= pairs) * (near["P"] - pairs)
    return _filled(
        candidates,
        {**near, "G": sizes["softmaxes"]},
        {"padding_G": 1.0},
        tokens=_filled(candidates.tokens, near, {"decision_P": edge, "candidate_P": token}),
        blocks=_filled(candidates.blocks, far, {"decision_P": edge}),
        block_codes_P=_rows(candidates.block_codes_P, far["P"], 0),
        softmax_P=torch.cat(softmaxes),
        # The last pair of blocks is padding.
        chosen_G=_rows(moved_G, sizes["softmaxes"], near["P"] + far["P"] - 1),
    )


def _padded_blocks(
    blocks: AttentionBlocks, rows: Mapping[str, int], token: int, sizes: Mapping[str, int]
) -> AttentionBlocks:
    """Return blocks of which the first ones are as wide as the others, whatever the graphs."""
    (graphs, width), full, graph = blocks.first.query_Zb.shape, blocks.block, rows["B"]
    slot_T = torch.where(
        blocks.slot_T < graphs * width,
        blocks.slot_T // width * full + blocks.slot_T % width,
        blocks.slot_T - graphs * width + graph * full,
    )
    own_Bw = F.pad(blocks.first.query_Zb, (0, full - width), value=token)
    own_Bw = _rows(own_Bw, graph, token)
    columns = (0, sizes["pooled"] - blocks.pooled_Zz.shape[1])
    return _filled(
        blocks,
        rows,
        {"of_T": blocks.num_blocks},
        slot_T=_rows(slot_T, rows["T"], graphs * full),
        first=AttentionWindow(own_Bw, own_Bw),
        later=_filled(blocks.later, rows, {"query_Zb": token, "key_Zw": token}),
        pooled_Zz=_rows(F.pad(blocks.pooled_Zz, columns), rows["Z"], 0),
        pooled_valid_Zz=_rows(F.pad(blocks.pooled_valid_Zz, columns), rows["Z"], False),
    )


def _filled(
    part: Part, rows: Mapping[str, int], padding: Mapping[str, int | float], **given: object
) -> Part:
    """Return a dataclass whose tensors have as many rows as the letters in their names say.

    Rows behind a tensor's own hold the ``padding`` of its name, or 0; fields that are ``given`` are
    taken as they are.
    """
    own: Any = part
    for name in (field.name for field in fields(own) if field.name not in given):
        letter = name.rpartition("_")[2][:1]
        if letter in rows:
            given[name] = _rows(getattr(part, name), rows[letter], padding.get(name, 0))
    return replace(own, **given)


def _rows(value: Tensor, rows: int, padding: int | float) -> Tensor:
    """Return a tensor with so many rows; those behind its own hold ``padding``."""
    larger = value.new_full((rows, *value.shape[1:]), padding)
    larger[: value.shape[0]] = value
    return larger
