"""Batches made by threads of the host while the device computes."""

import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType

import torch
from torch import Tensor

from layerdag.dag.dag import DAGBatch
from layerdag.models.base import DAGModel
from layerdag.training.batches import BatchSource
from layerdag.training.recorded_steps import PackedBatch, SizeClass, SizeClasses, pack


@dataclass(frozen=True, eq=False)
class MicroBatch:
    """A micro-batch by the numbers of its graphs, and the place in the data behind it.

    Attributes:
        graphs_G: Numbers of the graphs.
        noise_seed: Of its noise.
        epoch: Epoch that the next one comes from.
        position: Its position there.
    """

    graphs_G: Tensor
    noise_seed: int
    epoch: int
    position: int


def host_threads() -> int:
    """Return how many threads make batches: beyond eight they wait for Python's lock."""
    return max(1, min(8, (os.cpu_count() or 1) - 1))


class Lookahead:
    """Micro-batches, padded and packed, in order; some are made ahead.

    The sizes to which batches are padded depend on those before, so they are settled in order: the
    same run pads the same batches alike, however many threads there are.

    Args:
        model: Derives what it needs from the graphs.
        source: Loads graphs.
        batches: What to make.
        pinned: Whether the memory is such that a GPU can read it on its own.
        threads: How many.
    """

    def __init__(
        self,
        model: DAGModel,
        source: BatchSource,
        batches: Iterator[MicroBatch],
        *,
        pinned: bool,
        threads: int,
    ) -> None:
        self._model, self._source, self._batches, self._pinned = model, source, batches, pinned
        self._classes = SizeClasses()
        self._depth = 2 * threads
        self._pool = ThreadPoolExecutor(threads, "batches", torch.set_num_threads, (1,))
        self._derived: deque[tuple[MicroBatch, Future[DAGBatch]]] = deque()
        self._packed: deque[tuple[MicroBatch, Future[PackedBatch]]] = deque()

    def __enter__(self) -> "Lookahead":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pool.shutdown(cancel_futures=True)

    def next(self) -> tuple[MicroBatch, PackedBatch]:
        """Return the next micro-batch."""
        while len(self._derived) + len(self._packed) < self._depth:
            batch = next(self._batches)
            self._derived.append((batch, self._pool.submit(self._derive, batch)))
        while self._derived and (not self._packed or _succeeded(self._derived[0][1])):
            batch, derived = self._derived.popleft()
            found = derived.result()
            to = self._classes.holding(self._model.sizes_to_pad(found))
            self._packed.append((batch, self._pool.submit(self._pack, found, to)))
        batch, packed = self._packed.popleft()
        return batch, packed.result()

    def _derive(self, batch: MicroBatch) -> DAGBatch:
        """Load a micro-batch."""
        return self._model.derived(self._source.load(batch.graphs_G))

    def _pack(self, derived: DAGBatch, to: SizeClass) -> PackedBatch:
        """Pad and pack one."""
        return pack(self._model, derived, to, pinned=self._pinned)


def _succeeded(made: Future[DAGBatch]) -> bool:
    """Return whether something is made; what failed is raised in its turn."""
    return made.done() and made.exception() is None
