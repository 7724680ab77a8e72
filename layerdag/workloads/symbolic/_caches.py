"""Who sends which part of the cache to whom, between the ranks of two plans."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

from layerdag.workloads.symbolic.costs import Costs
from layerdag.workloads.symbolic.passes import Message, Transfer
from layerdag.workloads.symbolic.plans import layers_of_stage

_TOKEN_BYTES = 8  # a token is a 64-bit integer


@dataclass(frozen=True)
class Coordinates:
    """A rank of a plan.

    Attributes:
        stage: Pipeline stage.
        data: Replica.
        tensor: Tensor rank.
    """

    stage: int
    data: int
    tensor: int


@final
@dataclass(frozen=True)
class Side:
    """The ranks of one of the two plans.

    Attributes:
        costs: Costs of its ranks.
    """

    costs: Costs

    @property
    def parts(self) -> int:
        """Micro-batches of a replica."""
        return self.costs.step.micro_batches

    def coordinates(self) -> Iterator[Coordinates]:
        """Yield the coordinates of each rank, in order."""
        plan = self.costs.plan
        for rank in range(plan.ranks):
            rest, tensor = divmod(rank, plan.tensor)
            stage, data = divmod(rest, plan.data)
            yield Coordinates(stage, data, tensor)

    def rank(self, at: Coordinates) -> int:
        """Return the rank at these coordinates, counted from 0 on this side."""
        plan = self.costs.plan
        return (at.stage * plan.data + at.data) * plan.tensor + at.tensor

    def stage_of(self, layer: int) -> int:
        """Return the stage that holds a layer."""
        stages, layers = self.costs.plan.pipeline, self.costs.shape.layers
        return next(s for s in range(stages) if layer in layers_of_stage(layers, s, stages))

    def layers(self, stage: int) -> range:
        """Return the layers of a stage."""
        return layers_of_stage(self.costs.shape.layers, stage, self.costs.plan.pipeline)

    def sequences(self, data: int, part: int) -> range:
        """Return the sequences of a micro-batch."""
        width = self.costs.sequences
        return range((data * self.parts + part) * width, (data * self.parts + part + 1) * width)

    def holders(self, sequences: range) -> Iterator[tuple[int, int, int]]:
        """Yield (replica, micro-batch, sequences) of what holds some of ``sequences``."""
        width = self.costs.sequences
        for number in range(sequences.start // width, (sequences.stop - 1) // width + 1):
            first, last = max(sequences.start, number * width), (number + 1) * width
            yield *divmod(number, self.parts), min(sequences.stop, last) - first


@final
@dataclass(frozen=True)
class CacheRoutes:
    """The transfer of a cache from the ranks of one plan to those of another.

    Every decoding rank receives the sequences, layers and key heads that it holds, each once. What
    is compressed to latent vectors has no heads: each tensor rank receives all of it, from one of
    the tensor ranks that prefill, of which all have it.

    Attributes:
        prefill: Ranks that send.
        decode: Ranks that receive.
    """

    prefill: Side
    decode: Side

    def of(self, at: Coordinates, sends: bool) -> tuple[Transfer, list[int]]:
        """Return what a rank exchanges, and the ranks of the other side by slot."""
        here, there = (self.prefill, self.decode) if sends else (self.decode, self.prefill)
        found: dict[tuple[int, int], list[Message]] = defaultdict(list)
        slots: dict[int, int] = {}
        for layer, stage in self._layers_and_stages(at, sends):
            for part in range(here.parts):
                for data, other, count in there.holders(here.sequences(at.data, part)):
                    sent, received = (part, other) if sends else (other, part)
                    tag = 1 + (layer * self.prefill.parts + sent) * self.decode.parts + received
                    for tensor, each in self._heads(at.tensor, sends, layer):
                        rank = there.rank(Coordinates(stage, data, tensor))
                        slot = slots.setdefault(rank, len(slots))
                        found[layer, part].append(Message(slot, count * each, tag))
        messages = {key: tuple(parts) for key, parts in found.items()}
        transfer = Transfer(sent=messages) if sends else Transfer(received=messages)
        return transfer, list(slots)

    def _layers_and_stages(self, at: Coordinates, sends: bool) -> Iterator[tuple[int, int]]:
        """Yield each layer of a rank and the stage of the other side that holds it, too."""
        here, there = (self.prefill, self.decode) if sends else (self.decode, self.prefill)
        for layer in here.layers(at.stage):
            yield layer, there.stage_of(layer)
        tokens, last = here.costs.shape.layers, self.prefill.costs.plan.pipeline - 1
        if at.stage == (last if sends else 0):  # tokens go from the last stage to the first
            yield tokens, 0 if sends else last

    def _heads(self, tensor: int, sends: bool, layer: int) -> Iterator[tuple[int, int]]:
        """Yield tensor ranks of the other side and the bytes of a sequence that they share."""
        here, there = self.prefill.costs.plan.tensor, self.decode.costs.plan.tensor
        others = there if sends else here
        for other in range(others):
            source, target = (tensor, other) if sends else (other, tensor)
            each = self._shared(source, target, layer)
            if each:
                yield other, each

    def _shared(self, source: int, target: int, layer: int) -> int:
        """Return the bytes of one sequence that go from a tensor rank to another."""
        costs = self.prefill.costs
        shape, senders, receivers = costs.shape, costs.plan.tensor, self.decode.costs.plan.tensor
        chosen = source == target * senders // receivers
        if layer == shape.layers:
            return _TOKEN_BYTES * chosen
        of_layer = costs.step.sequence * shape.cached_width * costs.number
        if shape.latent:
            return of_layer * chosen
        sent, received = shape.key_heads // senders, shape.key_heads // receivers
        first, last = (
            max(source * sent, target * received),
            min((source + 1) * sent, (target + 1) * received),
        )
        return of_layer // shape.key_heads * max(last - first, 0)
