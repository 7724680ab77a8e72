"""Disaggregated serving: ranks that compute prompts and ranks that continue them."""

import itertools
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np

from layerdag.codec.placement import RankTraces
from layerdag.errors import ConfigError, UsageError
from layerdag.plan import FORMULAS, SIDE_SETTINGS, SIDES, Plan, Step, StepSettings
from layerdag.runtime.notes import Note
from layerdag.runtime.settings import did_you_mean
from layerdag.traces.trace import Trace, Workload
from layerdag.workloads.transformer.costs import Costs, rank_memory
from layerdag.workloads.transformer.fit import check_fit
from layerdag.workloads.transformer.hugging_face import model
from layerdag.workloads.transformer.job import job_figures
from layerdag.workloads.transformer.mesh import PEERS, ROLES, peer_R, rank_groups
from layerdag.workloads.transformer.pipeline_stage import Message, Transfer, stage_trace
from layerdag.workloads.transformer.schedule import layers_of_chunks
from layerdag.workloads.transformer.shapes import ModelShape

_TOKEN_BYTES = 8  # a token is a 64-bit integer
_OF_PREFILL = ("sequence_parallel",)
_OF_STEP = ("batch", "sequence", "tokens", "precision", "causal")


class Coordinates(NamedTuple):
    """A rank of a plan."""

    stage: int
    data: int
    tensor: int


@final
@dataclass(frozen=True)
class PlanRanks:
    """The ranks of one of the two plans."""

    costs: Costs

    @property
    def parts(self) -> int:
        """Micro-batches of a replica."""
        return self.costs.step.micro_batches

    def coordinates(self) -> Iterator[Coordinates]:
        """Yield the coordinates of each rank, in order."""
        plan = self.costs.plan
        degrees = map(range, (plan.pipeline, plan.data, plan.tensor))
        return itertools.starmap(Coordinates, itertools.product(*degrees))

    def rank(self, at: Coordinates) -> int:
        """Return the rank at these coordinates, counted from 0 on this side."""
        plan = self.costs.plan
        return (at.stage * plan.data + at.data) * plan.tensor + at.tensor

    def layers(self, stage: int) -> range:
        """Return the layers of a stage."""
        return layers_of_chunks(self.costs.shape.layers, self.costs.plan, stage)[0]

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
    """

    prefill: PlanRanks
    decode: PlanRanks

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
        here, there = (self.prefill, self.decode) if sends else (self.decode, self.prefill)
        stages = range(there.costs.plan.pipeline)
        for layer in here.layers(at.stage):
            yield layer, next(stage for stage in stages if layer in there.layers(stage))
        tokens, last = here.costs.shape.layers, self.prefill.costs.plan.pipeline - 1
        if at.stage == (last if sends else 0):  # tokens go from the last stage to the first
            yield tokens, 0 if sends else last

    def _heads(self, tensor: int, sends: bool, layer: int) -> Iterator[tuple[int, int]]:
        there = self.decode if sends else self.prefill
        for other in range(there.costs.plan.tensor):
            source, target = (tensor, other) if sends else (other, tensor)
            each = self._shared(source, target, layer)
            if each:
                yield other, each

    def _shared(self, source: int, target: int, layer: int) -> int:
        costs = self.prefill.costs
        shape, senders, receivers = costs.shape, costs.plan.tensor, self.decode.costs.plan.tensor
        chosen = source == target * senders // receivers
        if layer == shape.layers:
            return _TOKEN_BYTES * chosen
        of_layer = costs.step.sequence * shape.cached_width * costs.number
        if shape.latent:
            return of_layer * chosen
        sent, received = shape.key_heads // senders, shape.key_heads // receivers
        first = max(source * sent, target * received)
        last = min((source + 1) * sent, (target + 1) * received)
        return of_layer // shape.key_heads * max(last - first, 0)


@final
@dataclass(frozen=True)
class DisaggregatedJob:
    """A batch of prompts that some ranks compute and others continue, each with a plan of theirs.

    Ranks that prefill come first. The keys and values of a layer are sent as soon as it is
    computed; a decoding rank computes its first token layer by layer as they arrive.

    Attributes:
        step: The prompts ("prefill"), with the tokens that are made of each.
        decode_micro_batches: Parts into which a decoding replica cuts its share of the batch.

    Raises:
        ConfigError: If a plan cannot split the model; names the side and the numbers.
    """

    shape: ModelShape
    prefill: Plan
    decode: Plan
    step: Step
    decode_micro_batches: int = 1

    def __post_init__(self) -> None:
        if self.shape.image:
            raise ConfigError(
                f"{self.shape.name}: reads images and has no KV cache that ranks could pass on."
            )
        if self.prefill.context > 1 or self.decode.context > 1:
            raise ConfigError(
                "plan: context ranks hold parts of a sequence, which a disaggregated step does not "
                "pass on; leave context out."
            )
        for side, costs in self.sides.items():
            try:
                FORMULAS.check(StepSettings(costs.plan, costs.step))
                check_fit(self.shape, costs.plan, costs.step)
            except ConfigError as error:
                raise ConfigError(f"{side}: {error}") from None

    @cached_property
    def sides(self) -> dict[str, Costs]:
        """Costs of a rank that prefills and of one that decodes, by side."""
        prefill = replace(self.step, phase="prefill")
        decode = replace(self.step, phase="decode", micro_batches=self.decode_micro_batches)
        return {
            "prefill": Costs(self.shape, self.prefill, prefill),
            "decode": Costs(self.shape, self.decode, decode),
        }

    @property
    def ranks(self) -> int:
        """Ranks of both sides."""
        return self.prefill.ranks + self.decode.ranks

    @cached_property
    def _classes(self) -> tuple[tuple[Trace, ...], list[int], list[list[int]]]:
        """The distinct traces, the one of each rank, and whom each rank exchanges the cache with.

        Ranks of a stage with the same messages share a trace.
        """
        routes = CacheRoutes(*(PlanRanks(costs) for costs in self.sides.values()))
        known: dict[Any, int] = {}
        traces: list[Trace] = []
        class_R: list[int] = []
        slots: list[list[int]] = []
        for side, costs in self.sides.items():
            for at in PlanRanks(costs).coordinates():
                transfer, ranks = routes.of(at, sends=side == "prefill")
                messages = {**transfer.sent, **transfer.received}
                key = (side, at.stage, tuple(messages.items()))
                if key not in known:
                    known[key] = len(traces)
                    trace = stage_trace(costs, at.stage, transfer)
                    named = {role: f"{side}_{role}" for role in ROLES}
                    texts = tuple(named.get(text, text) for text in trace.strings)
                    traces.append(replace(trace, strings=texts))
                class_R.append(known[key])
                other = self.prefill.ranks if side == "prefill" else 0
                slots.append([other + rank for rank in ranks])
        return tuple(traces), class_R, slots

    def workload(self) -> Workload:
        """Return the traces of all ranks with their groups; each is made when it is asked for."""
        distinct, class_R, slots = self._classes
        slots_RS = np.zeros((self.ranks, max(map(len, slots))), dtype=np.int64)
        for rank, others in enumerate(slots):
            slots_RS[rank, : len(others)] = others
        first = self.prefill.ranks
        neighbors = [
            np.concatenate([peer_R(self.prefill, peer), peer_R(self.decode, peer) + first])
            for peer in PEERS
        ]
        used = {text for trace in distinct for text in trace.strings}
        groups = {
            f"{side}_{role}": rank_groups(plan, role) + before
            for side, plan, before in (
                ("prefill", self.prefill, 0),
                ("decode", self.decode, first),
            )
            for role in ROLES
            if f"{side}_{role}" in used
        }
        traces = RankTraces(distinct, np.array(class_R), groups, [*neighbors, *slots_RS.T])
        return Workload(traces, traces.groups, self.shape.name, self.notes)

    @property
    def notes(self) -> tuple[Note, ...]:
        """As those of ``SymbolicJob``."""
        length = self.step.sequence + self.step.tokens
        return (*self.shape.notes, *self.shape.beyond_positions(length))

    def summary(self) -> dict[str, Any]:
        """Return the figures that ``layerdag workload --json`` prints; see ``SymbolicJob``."""
        distinct, class_R, _ = self._classes
        counts = np.bincount(class_R, minlength=len(distinct)).tolist()
        memory = [
            rank_memory(costs, stage).row(side=side, stage=stage)
            for side, costs in self.sides.items()
            for stage in range(costs.plan.pipeline)
        ]
        sides = self.sides.items()
        settings = {s: FORMULAS.facts(StepSettings(costs.plan, costs.step)) for s, costs in sides}
        received = []
        for trace in distinct:
            of_text = np.array([text.startswith("recv_kv.") for text in trace.strings])
            received.append(trace.integers("comm_size")[0][of_text[trace.name_N]].tolist())
        sizes = [size for kind in class_R for size in received[kind]]
        step = self.step
        elements = step.batch * step.sequence * self.shape.layers * self.shape.cached_width
        return {
            "model": self.shape.name,
            "parameters": self.shape.parameters,
            "active_parameters": self.shape.active_parameters,
            "plan": {side: each["plan"] for side, each in settings.items()},
            "step": {side: each["step"] for side, each in settings.items()},
            "ranks": self.ranks,
            **job_figures(distinct, counts),
            "tokens": step.batch * (step.sequence + step.tokens),
            "transfer": {
                "messages": len(sizes),
                "bytes": sum(sizes),
                "cache_bytes": elements * step.numbers.weights,
            },
            "memory": memory,
            "peak_memory": max(entry["total"] for entry in memory),
        }


def disaggregated_job(name: str | Path | ModelShape, **settings: Any) -> DisaggregatedJob:
    """Return a step whose prompts some ranks compute and whose tokens others make.

    Settings are ``batch``, ``sequence``, ``tokens``, ``precision``, ``causal`` and ``attention``
    of both sides; ``data``, ``tensor``, ``pipeline``, ``expert`` and ``micro_batches`` of each,
    with ``prefill_`` or ``decode_`` before them; ``prefill_sequence_parallel``.

    Raises:
        UsageError: If there is no such model or setting, or numbers do not fit together.
    """
    settings.pop("phase", None)
    _require_known(settings)
    shape = name if isinstance(name, ModelShape) else model(name)
    plans = {
        side: {
            word: settings[f"{side}_{word}"]
            for word in (*SIDE_SETTINGS, *_OF_PREFILL)
            if f"{side}_{word}" in settings
        }
        for side in SIDES
    }
    parts = {side: plan.pop("micro_batches", 1) for side, plan in plans.items()}
    shares = [plan.get("data", 1) * parts[side] for side, plan in plans.items()]
    common = {word: settings[word] for word in _OF_STEP if word in settings}
    whole = [n for n in shares if type(n) is int and n > 0]
    common.setdefault("batch", int(np.lcm.reduce(whole)) if whole else 1)
    attention = {"attention": settings["attention"]} if "attention" in settings else {}
    return DisaggregatedJob(
        shape,
        Plan(**plans["prefill"], **attention),
        Plan(**plans["decode"], **attention),
        Step(phase="prefill", micro_batches=parts["prefill"], **common),
        parts["decode"],
    )


def _require_known(settings: dict[str, Any]) -> None:
    sides = [f"{side}_{word}" for side in SIDES for word in SIDE_SETTINGS]
    known = (*_OF_STEP, "attention", *sides, *(f"prefill_{word}" for word in _OF_PREFILL))
    for word in settings:
        if word in known:
            continue
        if f"prefill_{word}" in known:
            raise UsageError(
                f"A disaggregated step has two plans: give prefill_{word} and decode_{word} in "
                f"place of {word}."
                if word in SIDE_SETTINGS
                else f"Give prefill_{word} in place of {word}: decode has one token to split."
            )
        if word in (*FORMULAS.plan, *FORMULAS.step):
            raise UsageError(f"A disaggregated step has no {word}; leave it out.")
        raise UsageError(
            f"workload() has no setting '{word}' in a disaggregated step."
            f"{did_you_mean(word, known)} Known: {', '.join(known)}."
        )
