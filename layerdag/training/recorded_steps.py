"""Training steps as CUDA graphs, recorded once and repeated for every batch.

Graphs of jobs are small, so the host takes ten times as long to launch the kernels of a step as a
GPU takes to run them. A recorded step is one launch. Its shapes and addresses are fixed: batches
are padded to a few sizes (``DAGModel.padded``) and copied into the same memory.

Batches fall into classes by the powers of two of their sizes; the sizes of a class grow with what
it has met, and with every growth its step is recorded anew. What a model derives from graphs takes
the host longer than a GPU takes for the step, so a thread makes batches ahead, and they are kept on
the device for the next epoch.
"""

import math
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from layerdag.dag.dag import DAGBatch, tensors_of, with_each
from layerdag.models.base import DAGModel
from layerdag.training.batches import BatchSource, MicroBatch
from layerdag.training.parts import use_one_processor

ROOM = 1.1
"""How much larger than what they have met the sizes of a class become when they grow."""

AHEAD = 8
"""Batches that are made ahead."""


@dataclass(frozen=True, eq=False)
class LossGradients:
    """What one micro-batch gives."""

    mean_O: Float[Tensor, " O"]  # mean loss of each objective that is still trained
    gradients: Sequence[Tensor | None]  # of the parameters that are still trained


Recorder = Callable[
    [Callable[[], LossGradients], torch.Generator], tuple[LossGradients, Callable[[], None]]
]
"""Takes work and the generator of its noise; returns its result and what computes it again."""


@dataclass(frozen=True, eq=False)
class PaddedBatch:
    """A batch, padded to the sizes of its class, with its decisions by objective."""

    batch: DAGBatch
    number: Hashable  # of the class
    sizes: Mapping[str, int]
    counts: Mapping[str, float]

    @property
    def tensors(self) -> list[Tensor]:
        """All tensors of the batch and of what was derived from it."""
        return [*tensors_of(self.batch), *tensors_of(self.batch.derived)]


class PaddedBatches:
    """Micro-batches, padded, on a device, in order; some are made ahead by a thread.

    Sizes depend on the batches before, so one thread makes batches in order. A batch that came
    before is made anew only if there was no room to keep it, or if its sizes have grown since.
    """

    def __init__(
        self,
        model: DAGModel,
        source: BatchSource,
        batches: Iterator[MicroBatch],
        device: torch.device,
        most_bytes: int,
    ) -> None:
        self._model, self._source, self._batches = model, source, batches
        self._device, self._free = device, most_bytes
        self._kept: dict[int, PaddedBatch] = {}
        self._classes: dict[Hashable, Mapping[str, int]] = {}
        self._ahead: deque[tuple[MicroBatch, Future[PaddedBatch]]] = deque()
        self._thread = ThreadPoolExecutor(1, "batches", use_one_processor)

    def close(self) -> None:
        """Let go of the thread."""
        self._thread.shutdown(cancel_futures=True)

    def next(self) -> tuple[MicroBatch, PaddedBatch]:
        """Return the next micro-batch; a fault of the thread is raised in its turn."""
        while len(self._ahead) < AHEAD:
            batch = next(self._batches)
            self._ahead.append((batch, self._thread.submit(self._made, batch)))
        batch, made = self._ahead.popleft()
        return batch, self._on_device(batch.first, made.result())

    def _made(self, batch: MicroBatch) -> PaddedBatch:
        """Return a batch on the host, or the one that is kept."""
        kept = self._kept.get(batch.first)
        if kept is not None and self._classes[kept.number] == kept.sizes:
            return kept
        derived = self._model.derived(self._source.load(batch.graphs_G))
        own = self._model.padded_sizes(derived)
        number = tuple(math.frexp(size)[1] for size in (own["nodes"], sum(own.values())))
        known = self._classes.get(number, {})
        if any(size > known.get(name, 0) for name, size in own.items()):
            self._classes[number] = {
                name: max(known.get(name, 0), math.ceil(ROOM * size)) for name, size in own.items()
            }
        sizes = self._classes[number]
        padded = self._model.padded(derived, sizes)
        return PaddedBatch(padded, number, sizes, self._model.decisions(derived))

    def _on_device(self, first: int, made: PaddedBatch) -> PaddedBatch:
        old = self._kept.get(first)
        if old is made:
            return made
        there = replace(made, batch=made.batch.to(self._device))
        self._free += 0 if old is None else _bytes(old)
        self._kept.pop(first, None)
        if _bytes(there) <= self._free:
            self._free -= _bytes(there)
            self._kept[first] = there
        return there


def _bytes(padded: PaddedBatch) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in padded.tensors)


@dataclass(frozen=True, eq=False)
class _Recording:
    made_for: tuple[Mapping[str, int], Hashable]
    memory: PaddedBatch  # what batches are copied into
    result: LossGradients
    again: Callable[[], None]


class RecordedSteps:
    """Repeats for each batch what was recorded of the first one of its sizes.

    ``work`` takes a batch on the device, numbers that change from step to step, and a generator.
    """

    def __init__(
        self,
        work: Callable[[DAGBatch, Tensor, torch.Generator], LossGradients],
        numbers: int,
        device: torch.device,
        record: Recorder,
    ) -> None:
        self._work, self._record, self._device = work, record, device
        self._generator = torch.Generator(device)
        self._numbers = torch.zeros(numbers, device=device)
        self._recorded: dict[Hashable, _Recording] = {}
        self.recordings = 0

    def run(
        self, padded: PaddedBatch, key: Hashable, numbers: list[float], noise_seed: int
    ) -> LossGradients:
        """Return what the work returns for a batch; the next call overwrites these tensors.

        Whatever else the work depends on is in ``key``: for another one, it is recorded anew.
        """
        found = self._recording(padded, key)
        host = torch.tensor(numbers, pin_memory=self._device.type == "cuda")
        self._numbers.copy_(host, non_blocking=True)
        torch._foreach_copy_(found.memory.tensors, padded.tensors)
        self._generator.manual_seed(noise_seed)
        found.again()
        return found.result

    def _recording(self, padded: PaddedBatch, key: Hashable) -> _Recording:
        made_for, number = (padded.sizes, key), padded.number
        if number in self._recorded and self._recorded[number].made_for == made_for:
            return self._recorded[number]
        # The memory of older ones is free before the new one takes its own.
        for other, old in list(self._recorded.items()):
            if other == number or old.made_for[1] != key:
                del self._recorded[other]
        own = with_each(padded.batch, Tensor.clone)
        memory = own.carrying(with_each(padded.batch.derived, Tensor.clone))

        def work() -> LossGradients:
            # A new batch each time: one keeps what it has computed of itself.
            fresh = memory.carrying(memory.derived)
            return self._work(fresh, self._numbers, self._generator)

        recording = self._record(work, self._generator)
        self._recorded[number] = _Recording(made_for, replace(padded, batch=memory), *recording)
        self.recordings += 1
        return self._recorded[number]
