"""Operators that a training step and a sampling position hand to the device, and those that wait.

    python benchmarks/operator_counts.py

Small graphs leave a GPU idle while Python prepares the next operator, and each operator whose
result the host must see before it goes on drains the queue. Both can be counted on a processor, in
every run alike. One JSON: the corpus model (default settings), and the shipped checkpoint at the
defaults of ``layerdag sample``.
"""

import argparse
import contextlib
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from unittest import mock

import torch
from step_watch import Phase, watched
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from layerdag.cli.main import limit_openmp_spin
from layerdag.dag.dag import DAGBatch
from layerdag.datasets.loading import load_dataset
from layerdag.models.base import DAGModel, SampleRequest, SampleResult
from layerdag.models.fast.model import FastLayerDAG
from layerdag.models.fast.tensor_sampler import PARENTS_PER_ROUND, TensorSampler
from layerdag.models.spec import ModelSpec
from layerdag.sampling.generation import generate
from layerdag.sampling.settings import GenerationSettings
from layerdag.training.checkpoint import (
    LoadedCheckpoint,
    checkpoint_schema,
    load_checkpoint,
    pretrained_checkpoint,
)
from layerdag.training.loop import _Trainer
from layerdag.training.model_spec import spec_for
from layerdag.training.settings import TrainSettings

WAITING = frozenset(
    {
        "_local_scalar_dense",  # item, float, bool, int
        "nonzero",
        "masked_select",
        "bincount",
        "equal",
        "_unique2",
        "unique_dim",
        "unique_consecutive",
    }
)
"""Operators whose result, or its size, the host reads before it goes on."""

VIEWS = frozenset({"_unsafe_view", "lift_fresh"})
"""Views that do not say so."""

READS = {
    Tensor.tolist: "tolist",
    Tensor.numpy: "numpy",
    Tensor.__array__: "numpy",
}
"""Calls that copy a tensor to the host; on a processor there is no operator for it."""


@dataclass
class OperatorCounts:
    """What was counted.

    Attributes:
        operators: Times that each operator was dispatched.
        kernels: The same without views, for which the device has nothing to do.
        waits: Times that the host waited for one, by its name.
        host: Operators that made batches on the host; the others include none of them.
    """

    operators: Counter[str] = field(default_factory=Counter)
    kernels: Counter[str] = field(default_factory=Counter)
    waits: Counter[str] = field(default_factory=Counter)
    host: Counter[str] = field(default_factory=Counter)
    makes_batches: bool = False

    @contextlib.contextmanager
    def of_the_host(self) -> Iterator[None]:
        """Count what runs inside the block as the host's."""
        self.makes_batches = True
        try:
            yield
        finally:
            self.makes_batches = False

    def per(self, times: int, before: "OperatorCounts | None" = None) -> dict[str, float]:
        """Return operators, those that are no views, waits and operators of the host a time.

        Args:
            times: Steps or positions.
            before: Counts to take off, such as those of a shorter run.
        """
        less = before or OperatorCounts()
        return {
            name: (getattr(self, name).total() - getattr(less, name).total()) / times
            for name in ("operators", "kernels", "waits", "host")
        }


class _Dispatched(TorchDispatchMode):
    """Counts operators where they are dispatched, composite ones by their parts."""

    def __init__(self, counts: OperatorCounts) -> None:
        super().__init__()
        self._counts = counts

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        with self:
            parts = func.decompose(*args, **kwargs)
        if parts is not NotImplemented:
            return parts
        name = func._schema.name.removeprefix("aten::")
        if self._counts.makes_batches:
            self._counts.host[name] += 1
            return func(*args, **kwargs)
        self._counts.operators[name] += 1
        if not func.is_view and name not in VIEWS:
            self._counts.kernels[name] += 1
        if name in WAITING or _sized_by_values(name, args, kwargs):
            self._counts.waits[name] += 1
        return func(*args, **kwargs)


def _sized_by_values(name: str, args: Any, kwargs: Mapping[str, Any]) -> bool:
    """Return whether the size of the result follows from the values of a tensor."""
    if name == "repeat_interleave":
        return kwargs.get("output_size") is None
    if name in ("index", "index_put", "index_put_", "_index_put_impl_"):
        return any(x is not None and x.dtype in (torch.bool, torch.uint8) for x in args[1])
    return False


class _Read(TorchFunctionMode):
    """Counts copies to the host that are no operator on a processor."""

    def __init__(self, counts: OperatorCounts) -> None:
        super().__init__()
        self._counts = counts

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func in READS and not self._counts.makes_batches:
            self._counts.waits[READS[func]] += 1
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def counted() -> Iterator[OperatorCounts]:
    """Count inside the block, the backward pass included.

    What makes a batch of training graphs is done on the host, for whatever device, and is counted
    apart. A batch is one part, as on a GPU.
    """
    counts = OperatorCounts()
    prepare = DAGModel.prepared

    def loaded(trainer: _Trainer, graphs_G: Tensor) -> list[DAGBatch]:
        with counts.of_the_host():
            return _whole(trainer, graphs_G)

    def prepared(model: DAGModel, batch: DAGBatch) -> DAGBatch:
        with counts.of_the_host():
            return prepare(model, batch)

    with (
        mock.patch.object(_Trainer, "load_parts", loaded),
        mock.patch.object(DAGModel, "prepared", prepared),
        _Dispatched(counts),
        _Read(counts),
    ):
        yield counts


def training_counts(
    spec: ModelSpec, graphs: DAGBatch, settings: TrainSettings, steps: int = 5
) -> dict[str, float]:
    """Return operators and waits of an optimizer step, the mean over the second few steps.

    Args:
        spec: The model.
        graphs: For training and validation.
        settings: How it is trained; lines of the log are ``steps`` apart.
        steps: To be counted.
    """
    phases = [Phase(), Phase(counted)]
    # The first batch that is counted was loaded before: it would go to threads in two parts.
    with mock.patch.object(_Trainer, "load_parts", _whole):
        *_, last = watched(spec, graphs, replace(settings, log_every=steps), "cpu", phases)
    assert isinstance(last.found, OperatorCounts)
    return last.found.per(last.steps)


def _whole(trainer: _Trainer, graphs_G: Tensor) -> list[DAGBatch]:
    """Return a batch as one part."""
    return [trainer.source.load(graphs_G)]


class _AskedFor(Exception):  # noqa: N818 - no error
    """Carries what a model was asked to sample."""

    def __init__(self, request: SampleRequest) -> None:
        self.request = request


def request_of(checkpoint: LoadedCheckpoint, settings: GenerationSettings) -> SampleRequest:
    """Return the first request that sampling makes of the model; nothing is sampled."""
    model = checkpoint.model

    def asked(request: SampleRequest) -> SampleResult:
        raise _AskedFor(request)

    model.sample = asked  # type: ignore[method-assign]
    try:
        list(generate(model, checkpoint_schema(checkpoint), settings))
    except _AskedFor as found:
        return found.request
    finally:
        del model.sample
    raise AssertionError("generate() asked the model for nothing")


def of_at_most_nodes(request: SampleRequest, nodes: int) -> SampleRequest:
    """Return the request for graphs of at most so many nodes."""
    return replace(request, max_nodes=nodes, max_layers=nodes)


def round_counts(model: FastLayerDAG, request: SampleRequest, rounds: int = 12) -> dict[str, float]:
    """Return operators and waits of a round as on a GPU, counted on a processor.

    On a GPU a round is recorded and is then one launch; the host looks at the rows between, which
    it does not here, so that there must be room for all rounds.
    """
    with torch.inference_mode():
        sampler = TensorSampler(model, request)
        assert rounds < sampler.rounds.extent.tokens
        with counted() as counts:
            for _ in range(rounds):
                sampler.rounds.round(PARENTS_PER_ROUND)
    return counts.per(rounds)


def sampling_counts(
    model: DAGModel, request: SampleRequest, nodes: tuple[int, int] = (8, 24)
) -> dict[str, float]:
    """Return operators and waits of a position, by two runs of as many positions.

    What happens once, such as encoding conditions, is in neither figure.
    """
    first, second = (_sampled(model, of_at_most_nodes(request, count)) for count in nodes)
    return second.per(nodes[1] - nodes[0], first)


def _sampled(model: DAGModel, request: SampleRequest) -> OperatorCounts:
    """Return what sampling a request takes."""
    with counted() as counts:
        model.sample(request)
    return counts


def main() -> int:
    """Count and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num", type=int, default=32, help="graphs sampled side by side")
    options = parser.parse_args()
    limit_openmp_spin()
    data = load_dataset("corpus")
    spec = spec_for(data, "fast", {})
    checkpoint = load_checkpoint(pretrained_checkpoint("pretrained"))
    request = request_of(checkpoint, GenerationSettings(num=options.num))
    assert isinstance(checkpoint.model, FastLayerDAG)
    found = {
        "training_step": training_counts(spec, data.batch("train"), TrainSettings()),
        "sampling_position": sampling_counts(checkpoint.model, request),
        "sampling_round_on_a_gpu": round_counts(checkpoint.model, request),
    }
    json.dump(found, sys.stdout, indent=1)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
