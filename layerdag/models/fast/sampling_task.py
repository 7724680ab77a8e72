"""Inputs of a sampling round: a request with what the model knows of it, and numbers of rows.

Shape letters: B graphs, P pairs, Q decisions, R rows.
Pairs are candidates of graphs, decisions those of rows of the encoder.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from layerdag.models.base import SampleRequest
from layerdag.models.fast.sampling_inputs import CodeMasks, Guidance, SamplerModules
from layerdag.models.fast.tokens import ConditionVectors


@dataclass(frozen=True, eq=False)
class SamplingTask:
    """What rounds work on.

    Attributes:
        modules: Of the model.
        request: What to sample.
        guidance: Of the request.
        vectors: Condition vectors of every sample, under guidance then without conditions.
        masks: Codes that the nodes of each sample can have.
        options: Candidates for each node.
        max_parents: The largest in-degree that a node may have.
        hold_every: Nodes after which a row waits for the host; 0 is never.
    """

    modules: SamplerModules
    request: SampleRequest
    guidance: Guidance
    vectors: ConditionVectors
    masks: CodeMasks
    options: int
    max_parents: int
    hold_every: int


@dataclass(frozen=True)
class Extent:
    """For how much there is room.

    Attributes:
        rows: Graphs side by side.
        tokens: Tokens of each, whole attention blocks.
        edges: Edges of each.
        block: Tokens of an attention block.
    """

    rows: int
    tokens: int
    edges: int
    block: int

    @property
    def pooled(self) -> int:
        """Attention blocks that can be seen as one mean: all but the newest two."""
        return max(self.tokens // self.block - 2, 0)


@dataclass(frozen=True, eq=False)
class RowNumbers:
    """Which rows belong together.

    Attributes:
        row_B: Number of each graph's row.
        row_R: Number of each row of the encoder.
        row_P: Row of each candidate's graph.
        row_Q: Row of the encoder of each candidate's states.
    """

    row_B: Int[Tensor, " B"]
    row_R: Int[Tensor, " R"]
    row_P: Int[Tensor, " P"]
    row_Q: Int[Tensor, " Q"]

    @classmethod
    def of(cls, task: SamplingTask, extent: Extent, device: torch.device) -> "RowNumbers":
        """Return the numbers of so many rows."""
        row_R = torch.arange(task.guidance.passes * extent.rows, device=device)
        row_Q = row_R.repeat_interleave(task.options)
        candidates = extent.rows * task.options
        return cls(row_R[: extent.rows], row_R, row_Q[:candidates], row_Q)
