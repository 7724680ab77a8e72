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
    """What rounds work on."""

    modules: SamplerModules  # of the model
    request: SampleRequest  # what to sample
    guidance: Guidance  # of the request
    # condition vectors of every sample, under guidance then without conditions
    vectors: ConditionVectors
    masks: CodeMasks  # codes that the nodes of each sample can have
    options: int  # candidates for each node
    max_parents: int  # the largest in-degree that a node may have
    hold_every: int  # nodes after which a row waits for the host; 0 is never


@dataclass(frozen=True)
class Extent:
    """For how much there is room."""

    rows: int  # graphs side by side
    tokens: int  # tokens of each, whole attention blocks
    edges: int
    block: int  # tokens of an attention block

    @property
    def pooled(self) -> int:
        """Attention blocks that can be seen as one mean: all but the newest two."""
        return max(self.tokens // self.block - 2, 0)


@dataclass(frozen=True, eq=False)
class RowNumbers:
    """Which rows belong together."""

    row_B: Int[Tensor, " B"]  # number of each graph's row
    row_R: Int[Tensor, " R"]  # number of each row of the encoder
    row_P: Int[Tensor, " P"]  # row of each candidate's graph
    row_Q: Int[Tensor, " Q"]  # row of the encoder of each candidate's states

    @classmethod
    def of(cls, task: SamplingTask, extent: Extent, device: torch.device) -> "RowNumbers":
        """Return the numbers of so many rows."""
        row_R = torch.arange(task.guidance.passes * extent.rows, device=device)
        row_Q = row_R.repeat_interleave(task.options)
        candidates = extent.rows * task.options
        return cls(row_R[: extent.rows], row_R, row_Q[:candidates], row_Q)
