"""Gradients of training steps as CUDA graphs, recorded once and repeated for every batch.

Graphs of jobs are small, so the host takes ten times as long to launch the kernels of a step as a
GPU takes to run them. A recorded step is one launch. Its shapes and addresses are fixed: batches
are padded to a few sizes (``DAGModel.padding``) and copied into the same memory.

Batches fall into classes by the powers of two of their scales; the sizes of a class grow with what
it has met, and with every growth its step is recorded anew.
"""

import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch import Tensor

from layerdag.dag.dag import DAGBatch, tensors_of, with_each
from layerdag.models.base import BatchPadding, BatchSizes
from layerdag.models.cuda_graphs import DEVICE_CALLS

ROOM = 1.1
"""How much larger than what they have met the sizes of a class become when they grow."""

_ALIGNMENT = 64

T = TypeVar("T")

Recorder = Callable[[Callable[[], T], torch.Generator], tuple[T, Callable[[], None]]]
"""Takes work and the generator of its noise; returns its result and what computes it again."""


@dataclass(frozen=True)
class SizeClass:
    """Sizes to which batches are padded; batches of another class have others."""

    number: tuple[int, ...]  # the powers of two of a batch's scales
    sizes: BatchSizes  # that hold the batches met so far


class SizeClasses:
    """The sizes to which batches are padded, by the powers of two of their scales."""

    def __init__(self) -> None:
        self._classes: dict[tuple[int, ...], SizeClass] = {}

    def holding(self, needed: BatchSizes) -> SizeClass:
        """Return sizes that hold ``needed``, the same as often as possible."""
        number = tuple(math.frexp(scale)[1] for scale in needed.scales)
        known = self._classes.get(number)
        if known is None or not known.sizes.hold(needed):
            before = needed if known is None else known.sizes
            self._classes[number] = SizeClass(number, before.grown(needed, ROOM))
        return self._classes[number]

    def has(self, found: SizeClass) -> bool:
        """Return whether the sizes of a class are still these."""
        return self._classes.get(found.number) == found


@dataclass(frozen=True, eq=False)
class PackedBatch:
    """A padded batch as one piece of memory, which one copy brings to the device."""

    # the batch with what was derived from it, on the device "meta": shapes without content
    form: DAGBatch
    padded_to: SizeClass  # its sizes
    data: Tensor  # its tensors end to end, bytes, on the host or the device
    counts: Mapping[str, float]  # its decisions by objective

    def batch_in(self, memory: Tensor) -> DAGBatch:
        """Return a batch of this form whose tensors lie in ``memory``."""
        tensors = _tensors(self.form)
        views = iter(_views(memory, tensors, _places(tensors)[0]))
        batch = with_each(self.form, lambda _: next(views))
        return batch.carrying(with_each(self.form.derived, lambda _: next(views)))


def pack(padding: BatchPadding, derived: DAGBatch, to: SizeClass, *, pinned: bool) -> PackedBatch:
    """Return a batch, padded, in memory that a device can read on its own if ``pinned``."""
    batch = padding.padded(derived, to.sizes)
    form = batch.to("meta")
    _, total = _places(_tensors(form))
    with DEVICE_CALLS:
        data = torch.empty(total, dtype=torch.uint8, pin_memory=pinned)
    packed = PackedBatch(form, to, data, padding.counts(derived))
    for view, tensor in zip(_tensors(packed.batch_in(data)), _tensors(batch), strict=True):
        view.copy_(tensor)
    return packed


def _tensors(batch: DAGBatch) -> list[Tensor]:
    return [*tensors_of(batch), *tensors_of(batch.derived)]


def _places(tensors: list[Tensor]) -> tuple[list[int], int]:
    places, end = [], 0
    for tensor in tensors:
        places.append(end)
        end += -(-tensor.numel() * tensor.element_size() // _ALIGNMENT) * _ALIGNMENT
    return places, end


def _views(data: Tensor, like: list[Tensor], places: list[int]) -> list[Tensor]:
    return [
        data[place : place + tensor.numel() * tensor.element_size()]
        .view(tensor.dtype)
        .view(tensor.shape)
        for tensor, place in zip(like, places, strict=True)
    ]


class RecordedSteps(Generic[T]):
    """Runs a function of batches by repeating what it did on the first batch of its sizes.

    Args:
        work: Returns tensors from a batch on the device, numbers that change from step to step,
            and a generator of noise.
        numbers: How many numbers.
        device: Where.
        record: Records work.
    """

    def __init__(
        self,
        work: Callable[[DAGBatch, Tensor, torch.Generator], T],
        numbers: int,
        device: torch.device,
        record: Recorder[T],
    ) -> None:
        self._work, self._record, self._device = work, record, device
        self._generator = torch.Generator(device)
        self._numbers = torch.zeros(numbers, device=device)
        self._recorded: dict[tuple[int, ...], _Recording[T]] = {}
        self.recordings = 0

    def run(self, packed: PackedBatch, key: Hashable, numbers: list[float], noise_seed: int) -> T:
        """Return what the work returns for a batch; the next call overwrites these tensors.

        Args:
            packed: The batch.
            key: Of what else the work depends on; another one is recorded anew.
            numbers: That change from step to step.
            noise_seed: Of the generator.
        """
        found = self._recording(packed, key)
        host = torch.tensor(numbers, pin_memory=self._device.type == "cuda")
        self._numbers.copy_(host, non_blocking=True)
        found.memory.copy_(packed.data, non_blocking=True)
        self._generator.manual_seed(noise_seed)
        found.again()
        return found.result

    def _recording(self, packed: PackedBatch, key: Hashable) -> "_Recording[T]":
        made_for, number = (packed.padded_to, key), packed.padded_to.number
        if number in self._recorded and self._recorded[number].made_for == made_for:
            return self._recorded[number]
        # The memory of older ones is free before the new one takes its own.
        for other, old in list(self._recorded.items()):
            if other == number or old.made_for[1] != key:
                del self._recorded[other]
        self._recorded[number] = self._record_anew(packed, made_for)
        self.recordings += 1
        return self._recorded[number]

    def _record_anew(
        self, packed: PackedBatch, made_for: tuple[SizeClass, Hashable]
    ) -> "_Recording[T]":
        memory = packed.data.to(self._device)
        batch = packed.batch_in(memory)

        def work() -> T:
            # A new batch each time: one keeps what it has computed of itself.
            fresh = batch.carrying(batch.derived)
            return self._work(fresh, self._numbers, self._generator)

        return _Recording(made_for, memory, *self._record(work, self._generator))


@dataclass(frozen=True, eq=False)
class _Recording(Generic[T]):
    made_for: tuple[SizeClass, Hashable]
    memory: Tensor
    result: T
    again: Callable[[], None]
