"""What all baselines share: their interface, random orders inside layers, and the training loop.

Shape letters: B graphs, N nodes.
"""

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from layerdag.dag.dag import DAG
from layerdag.datasets.dataset import GraphDataset


class Fitted(Protocol):
    """A generator that was fitted.

    Attributes:
        parameters: Number of learned numbers, 0 for what keeps the graphs themselves.
        steps: Optimizer steps.
    """

    parameters: int
    steps: int

    def sample(self, num: int, seed: int) -> list[DAG | None]:
        """Return graphs; None where what was drawn is no graph."""
        ...


class Fit(Protocol):
    """How a generator is fitted: on the training part, with processor seconds and a seed."""

    def __call__(self, data: GraphDataset, seconds: float, seed: int, **settings: Any) -> Fitted:
        """Return the fitted generator."""
        ...


class Orders:
    """Training graphs in layer order, each time in another random order inside the layers."""

    def __init__(self, dags: Sequence[DAG], rng: np.random.Generator) -> None:
        self.dags, self.rng = dags, rng

    def draw(self, count: int) -> list[DAG]:
        """Return graphs drawn without replacement, or all."""
        count = min(count, len(self.dags))
        chosen = self.rng.choice(len(self.dags), size=count, replace=False)
        return [in_random_order(self.dags[i], self.rng) for i in chosen]


def in_random_order(dag: DAG, rng: np.random.Generator) -> DAG:
    """Return the same graph, its nodes by layer and in random order inside a layer."""
    key_N = dag.layer_N.double() + torch.from_numpy(rng.random(dag.num_nodes))
    return dag.permuted(torch.argsort(key_N))


def train(
    model: nn.Module, loss: Callable[[], Tensor], seconds: float, learning_rate: float
) -> int:
    """Minimize the loss for so long, with a cosine schedule; return the number of steps.

    Args:
        model: Its parameters are trained.
        loss: Draws a batch and returns its loss.
        seconds: Of the processor.
        learning_rate: Peak rate of AdamW.
    """
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=0.01)
    began, steps = time.process_time(), 0
    while (used := (time.process_time() - began) / seconds) < 1 or steps == 0:
        warm = min((steps + 1) / 50, 1.0)
        rate = learning_rate * warm * (0.1 + 0.45 * (1 + math.cos(math.pi * min(used, 1.0))))
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        loss().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        steps += 1
    model.eval()
    return steps


def parameters_of(model: nn.Module) -> int:
    """Return the number of parameters."""
    return sum(parameter.numel() for parameter in model.parameters())


def padded(dags: Sequence[DAG], length: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return kinds, edges and mask of graphs as dense tensors.

    Returns:
        Kinds of shape (B, N), 0 where there is no node; edges of shape (B, N, N), row the child and
        column the parent; whether there is a node, (B, N).
    """
    kind_BN = torch.zeros(len(dags), length, dtype=torch.int64)
    edge_BNN = torch.zeros(len(dags), length, length)
    mask_BN = torch.zeros(len(dags), length, dtype=torch.bool)
    for row, dag in enumerate(dags):
        kind_BN[row, : dag.num_nodes] = dag.x_NA[:, 0]
        edge_BNN[row, dag.edge_index_2E[1], dag.edge_index_2E[0]] = 1
        mask_BN[row, : dag.num_nodes] = True
    return kind_BN, edge_BNN, mask_BN


def dag_of(kind_N: Tensor, edge_NN: Tensor) -> DAG | None:
    """Return the graph of dense tensors (row the child, column the parent), None if it is empty."""
    if kind_N.shape[0] == 0:
        return None
    child_E, parent_E = edge_NN.nonzero(as_tuple=True)
    edge_index_2E = torch.stack([parent_E, child_E])
    return DAG.build(kind_N[:, None].clone(), edge_index_2E).in_layer_order()


def most_nodes(data: GraphDataset) -> int:
    """Return the nodes of the largest training graph."""
    return max(dag.num_nodes for dag in data.graphs["train"])


CELLS = 420_000
"""Pairs of nodes of a batch at most: 16 graphs of 160 nodes."""


def graphs_within(data: GraphDataset, count: int, cells: int = CELLS) -> int:
    """Return so many graphs, or fewer where the pairs of their nodes are too many for memory."""
    return max(min(count, cells // most_nodes(data) ** 2), 1)
