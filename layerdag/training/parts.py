"""Parts of a micro-batch whose gradients a processor computes side by side.

The operators of a training step are short: two threads inside each of them take longer than one,
while one thread for each half of the graphs takes little more than half of the time. A part has
noise of its own, so that a run of one thread, which computes batches whole, has other noise than a
run of several.

Shape letters: G graphs.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import TypeVar

import numpy as np
import torch

from layerdag.dag.dag import DAGBatch
from layerdag.models.base import DAGModel
from layerdag.training.batches import take_graphs

PART_NODES = 1024
"""Nodes of a part, about: the states of so many fit into the cache of a core."""

T = TypeVar("T")
R = TypeVar("R")


def parts_of(batch: DAGBatch) -> list[DAGBatch]:
    """Return the graphs of a batch in parts of about the same number of nodes.

    They depend on the batch alone, however many processors compute them.
    """
    sizes_G = batch.node_ptr.diff().cpu().numpy()
    count = min(-(-int(sizes_G.sum()) // PART_NODES), len(sizes_G))
    if count < 2:
        return [batch]
    nodes = [0] * count
    parts: list[list[int]] = [[] for _ in range(count)]
    for graph in np.argsort(-sizes_G, kind="stable").tolist():
        smallest = nodes.index(min(nodes))
        parts[smallest].append(graph)
        nodes[smallest] += int(sizes_G[graph])
    return [take_graphs(batch, torch.tensor(sorted(part))) for part in parts]


def threads_for(model: DAGModel) -> int:
    """Return how many batches of a model are computed side by side.

    What a GPU does is handed to it by one thread.
    """
    on_processor = next(model.parameters()).device.type == "cpu"
    return torch.get_num_threads() if on_processor and model.is_sum_over_graphs else 1


class SideBySide:
    """Threads that share the processors which PyTorch may use.

    Args:
        model: Computes on them.
    """

    def __init__(self, model: DAGModel) -> None:
        self._threads = threads_for(model)

    def map(self, function: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """Return what a function returns for each item; each call has its share of the processors.

        One call after the other runs in this thread where there is one item or one processor.
        """
        calls = min(self._threads, len(items))
        if calls < 2:
            return [function(item) for item in items]

        def on_its_share(item: T) -> R:
            torch.set_num_threads(self._threads // calls)
            return function(item)

        return list(self._pool.map(on_its_share, items))

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self._threads, "part")
