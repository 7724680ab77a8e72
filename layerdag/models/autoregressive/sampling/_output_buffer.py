"""Collecting sampled nodes and edges step by step, and splitting them into graphs at the end.

Shape letters: A node attributes, B graphs, E edges, N nodes, X selected graphs.
"""

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from layerdag.models import SampleResult
from layerdag.models.autoregressive.sampling._slots import RandomSlot
from layerdag.models.draws import assemble_dags, bin_positions, slot_uniforms


class OutputBuffer:
    """Nodes and edges of all samples, in the order of sampling.

    The last sample is the *padding sample*: rows of finished graphs write to it, and it is dropped.
    """

    def __init__(self, seed_B: np.ndarray, device: torch.device) -> None:
        self.seed_B = seed_B
        self.truncated_B = torch.zeros(seed_B.shape[0], dtype=torch.bool)
        empty = torch.zeros(0, dtype=torch.int64, device=device)
        self.nodes: list[tuple[Tensor, Tensor, Tensor]] = []
        self.edges: list[tuple[Tensor, ...]] = [(empty, empty, empty, empty)]

    def add_nodes(
        self, sample_B: Int[Tensor, " B"], x_BA: Int[Tensor, "B A"], layer_B: Int[Tensor, " B"]
    ) -> None:
        """Append the newest node of the samples ``sample_B``."""
        self.nodes.append((sample_B, x_BA, layer_B))

    def add_edges(
        self,
        sample_X: Int[Tensor, " X"],
        parent_X: Int[Tensor, " X"],
        child_X: Int[Tensor, " X"],
        type_X: Int[Tensor, " X"],
    ) -> None:
        """Append one edge for each of the samples ``sample_X``; positions count from 1."""
        self.edges.append((sample_X, parent_X - 1, child_X - 1, type_X))

    def truncate(self, sample_X: Int[Tensor, " X"]) -> None:
        """Mark the samples ``sample_X`` as truncated by a limit of the request."""
        self.truncated_B[sample_X.cpu()] = True

    def result(self) -> SampleResult:
        """Return the graphs without the padding sample; positions inside bins are uniform.

        Raises:
            ValueError: If a graph has no node, as when weights overflow.
        """
        count = self.seed_B.shape[0] - 1
        if not self.nodes:
            raise ValueError("no graph has a node, as where every probability is NaN")
        samples, codes, layers = zip(*self.nodes, strict=True)
        sample_N, layer_N = torch.cat(samples).cpu(), torch.cat(layers).cpu()
        order_N = torch.argsort(sample_N, stable=True)
        nodes_B = torch.bincount(sample_N, minlength=count)[:count]
        if not nodes_B.all():
            raise ValueError("a graph has no node, as where every probability is NaN")
        order_N = order_N[: int(nodes_B.sum())]
        x_NA = torch.cat(codes).cpu()[order_N]
        start_B = nodes_B.cumsum(0) - nodes_B
        position_N = torch.arange(order_N.shape[0]) - torch.repeat_interleave(start_B, nodes_B)
        slots = range(RandomSlot.POSITION_IN_BIN, RandomSlot.POSITION_IN_BIN + x_NA.shape[1])
        u_NA = slot_uniforms(self.seed_B[sample_N[order_N].numpy()], position_N.numpy() + 1, slots)
        columns = torch.stack([torch.cat(column).cpu() for column in zip(*self.edges, strict=True)])
        sample_E, parent_E, child_E, type_E = columns[:, columns[0] < count]
        edge_index_2E = torch.stack([parent_E, child_E]) + start_B[sample_E]
        dags = assemble_dags(
            x_NA, bin_positions(u_NA), nodes_B, edge_index_2E, type_E, layer_N[order_N]
        )
        return SampleResult(dags, tuple(self.truncated_B[:count].tolist()))
