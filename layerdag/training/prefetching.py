"""Batches made by threads of the host while the device computes, and kept there for the next epoch.

What a model derives from graphs takes the host several times as long as a GPU takes for the step.
"""

import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType

import torch
from torch import Tensor

from layerdag.dag.dag import DAGBatch
from layerdag.models.base import BatchPadding, DAGModel
from layerdag.training.batches import BatchSource
from layerdag.training.parts import use_one_processor
from layerdag.training.recorded_steps import PackedBatch, SizeClasses, pack


@dataclass(frozen=True, eq=False)
class MicroBatch:
    """A micro-batch by the numbers of its graphs, and the place in the data behind it."""

    graphs_G: Tensor  # numbers of the graphs
    noise_seed: int
    epoch: int  # epoch that the next one comes from
    position: int  # its position there

    @property
    def first(self) -> int:
        """The first of the graphs, which is in no other micro-batch."""
        return int(self.graphs_G[0])


def host_threads() -> int:
    """Return how many threads make batches: more of them wait for Python's lock."""
    return max(1, min(4, (os.cpu_count() or 1) - 1))


class DeviceBatchCache:
    """Packed batches on a device.

    Args:
        device: Which one.
        most_bytes: What would need more is not kept.
    """

    def __init__(self, device: torch.device, most_bytes: int) -> None:
        self._device, self._free = device, most_bytes
        self._batches: dict[int, PackedBatch] = {}

    def get(self, batch: MicroBatch) -> PackedBatch | None:
        """Return a batch if it is kept."""
        return self._batches.get(batch.first)

    def keep(self, batch: MicroBatch, packed: PackedBatch) -> PackedBatch:
        """Return a batch as it is kept, or as it is if there is no room."""
        old = self.get(batch)
        if old is packed:
            return packed
        self._free += 0 if old is None else old.data.numel()
        if packed.data.numel() > self._free:
            self._batches.pop(batch.first, None)
            return packed
        self._free -= packed.data.numel()
        kept = replace(packed, data=packed.data.to(self._device, non_blocking=True))
        self._batches[batch.first] = kept
        return kept


class Prefetcher:
    """Micro-batches, padded and packed, in order; some are made ahead.

    The sizes to which batches are padded depend on those before, so they are settled in order: the
    same run pads the same batches alike, however many threads there are. A batch that came before
    is made anew only if it was not kept, or if its sizes have grown since.

    Args:
        model: Derives what it needs from the graphs.
        padding: The model's.
        source: Loads graphs.
        batches: What to make; those with a graph in common are the same.
        kept: Keeps what was made.
        pinned: Whether the memory is such that a GPU can read it on its own.
        threads: How many.
    """

    def __init__(
        self,
        model: DAGModel,
        padding: BatchPadding,
        source: BatchSource,
        batches: Iterator[MicroBatch],
        kept: DeviceBatchCache,
        *,
        pinned: bool,
        threads: int,
    ) -> None:
        self._model, self._padding, self._source = model, padding, source
        self._batches, self._pinned = batches, pinned
        self._kept, self._classes = kept, SizeClasses()
        self._depth = 2 * threads
        self._pool = ThreadPoolExecutor(threads, "batches", use_one_processor)
        self._derived: deque[tuple[MicroBatch, Future[DAGBatch] | None]] = deque()
        self._packed: deque[tuple[MicroBatch, Future[PackedBatch]]] = deque()

    def __enter__(self) -> "Prefetcher":
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
            new = self._kept.get(batch) is None
            self._derived.append((batch, self._pool.submit(self._derive, batch) if new else None))
        while self._derived and (not self._packed or _is_ready(self._derived[0][1])):
            self._packed.append(self._packing(*self._derived.popleft()))
        batch, packed = self._packed.popleft()
        return batch, self._kept.keep(batch, packed.result())

    def _packing(
        self, batch: MicroBatch, derived: Future[DAGBatch] | None
    ) -> tuple[MicroBatch, Future[PackedBatch]]:
        """Settle the sizes of a batch and have it packed, unless it is kept in these sizes."""
        kept = self._kept.get(batch)
        if kept is not None and self._classes.has(kept.padded_to):
            there: Future[PackedBatch] = Future()
            there.set_result(kept)
            return batch, there
        found = self._derive(batch) if derived is None else derived.result()
        to = self._classes.holding(self._padding.sizes(found))
        packing = partial(pack, self._padding, found, to, pinned=self._pinned)
        return batch, self._pool.submit(packing)

    def _derive(self, batch: MicroBatch) -> DAGBatch:
        return self._model.derived(self._source.load(batch.graphs_G))


def _is_ready(derived: Future[DAGBatch] | None) -> bool:
    """Return whether nothing has to be waited for; what failed is raised in its turn."""
    return derived is None or (derived.done() and derived.exception() is None)
