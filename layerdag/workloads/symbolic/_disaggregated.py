"""Inference whose prompts are computed by some ranks and whose tokens are made by others."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, final

import numpy as np

from layerdag._runtime import did_you_mean
from layerdag.errors import ConfigError, UsageError
from layerdag.traces import Trace, Workload
from layerdag.workloads.ranks import RankTraces
from layerdag.workloads.symbolic._caches import CacheRoutes, Side
from layerdag.workloads.symbolic._job import figures_of, job
from layerdag.workloads.symbolic.costs import Costs, rank_memory
from layerdag.workloads.symbolic.passes import stage_trace
from layerdag.workloads.symbolic.plans import PEERS, ROLES, Grid, Plan, Step, check_fit
from layerdag.workloads.symbolic.shapes import ModelShape, model


@dataclass(frozen=True)
class _Classes:
    """Programs of all ranks.

    Attributes:
        programs: Each distinct program once.
        class_R: Program of each rank.
        slots: Ranks that each rank exchanges the cache with.
    """

    programs: tuple[Trace, ...]
    class_R: tuple[int, ...]
    slots: tuple[list[int], ...]


@final
@dataclass(frozen=True)
class DisaggregatedJob:
    """A batch of prompts that some ranks compute and others continue.

    Ranks that prefill come first. The keys and values of a layer are sent as soon as it is
    computed; a decoding rank computes its first token layer by layer as they arrive.

    Attributes:
        shape: The model.
        prefill: How it is split over the ranks that compute prompts.
        decode: How it is split over the ranks that make tokens.
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
    def _classes(self) -> _Classes:
        """The programs; ranks of a stage with the same messages share one."""
        routes = CacheRoutes(*(Side(costs) for costs in self.sides.values()))
        known: dict[Any, int] = {}
        programs: list[Trace] = []
        class_R: list[int] = []
        slots: list[list[int]] = []
        for side, costs in self.sides.items():
            for at in Side(costs).coordinates():
                transfer, ranks = routes.of(at, sends=side == "prefill")
                messages = {**transfer.sent, **transfer.received}
                key = (side, at.stage, tuple(messages.items()))
                if key not in known:
                    known[key] = len(programs)
                    programs.append(_of_side(side, stage_trace(costs, at.stage, transfer)))
                class_R.append(known[key])
                other = self.prefill.ranks if side == "prefill" else 0
                slots.append([other + rank for rank in ranks])
        return _Classes(tuple(programs), tuple(class_R), tuple(slots))

    def workload(self) -> Workload:
        """Return the traces of all ranks with their groups; each is made when it is asked for."""
        made = self._classes
        slots_RS = np.zeros((self.ranks, max(map(len, made.slots))), dtype=np.int64)
        for rank, slots in enumerate(made.slots):
            slots_RS[rank, : len(slots)] = slots
        neighbors = [self._neighbor_R(peer) for peer in PEERS]
        traces = RankTraces(
            made.programs,
            np.array(made.class_R),
            dict(self._groups(made.programs)),
            [*neighbors, *slots_RS.T],
        )
        return Workload(traces, traces.groups, self.shape.name)

    def _neighbor_R(self, peer: str) -> np.ndarray:
        first, second = Grid(self.prefill).peer_R(peer), Grid(self.decode).peer_R(peer)
        return np.concatenate([first, second + self.prefill.ranks])

    def _groups(self, programs: tuple[Trace, ...]) -> Iterator[tuple[str, np.ndarray]]:
        used = {text for trace in programs for text in trace.strings}
        plans = {"prefill": (self.prefill, 0), "decode": (self.decode, self.prefill.ranks)}
        for side, (plan, first) in plans.items():
            for role in ROLES:
                if f"{side}_{role}" in used:
                    yield f"{side}_{role}", Grid(plan).groups(role) + first

    def summary(self) -> dict[str, Any]:
        """Return the figures that ``layerdag workload --json`` prints; see ``SymbolicJob``."""
        made = self._classes
        counts = np.bincount(made.class_R, minlength=len(made.programs)).tolist()
        memory = [
            {"side": side, "stage": stage, "total": held.total, **asdict(held)}
            for side, costs in self.sides.items()
            for stage in range(costs.plan.pipeline)
            for held in (rank_memory(costs, stage),)
        ]
        step = self.step
        return {
            "model": self.shape.name,
            "parameters": self.shape.parameters,
            "active_parameters": self.shape.active_parameters,
            "plan": {side: asdict(costs.plan) for side, costs in self.sides.items()},
            "step": {side: asdict(costs.step) for side, costs in self.sides.items()},
            "ranks": self.ranks,
            **figures_of(made.programs, counts),
            "tokens": step.batch * (step.sequence + step.tokens),
            "transfer": self._transfer_figures(),
            "memory": memory,
            "peak_memory": max(entry["total"] for entry in memory),
        }

    def _transfer_figures(self) -> dict[str, int]:
        """Return messages and bytes of keys and values, and the bytes of the cache itself."""
        made = self._classes
        figures = [_received_cache(trace) for trace in made.programs]
        messages, moved = zip(*(figures[kind] for kind in made.class_R), strict=True)
        step = self.sides["prefill"].step
        elements = step.batch * step.sequence * self.shape.layers * self.shape.cached_width
        return {
            "messages": sum(messages),
            "bytes": sum(moved),
            "cache_bytes": elements * step.numbers.weights,
        }


def _of_side(side: str, trace: Trace) -> Trace:
    """Return a program whose groups are named for their side."""
    named = {role: f"{side}_{role}" for role in ROLES}
    return replace(trace, strings=tuple(named.get(text, text) for text in trace.strings))


def _received_cache(trace: Trace) -> tuple[int, int]:
    """Return number and bytes of the receives of keys and values in a program."""
    size_N, _ = trace.integers("comm_size")
    of_text = np.array([text.startswith("recv_kv.") for text in trace.strings])
    sizes = size_N[of_text[trace.name_N]].tolist()
    return len(sizes), sum(sizes)


def workload(name: str | Path | ModelShape, **settings: Any) -> Workload:
    """Return the traces of one step of a transformer on all its ranks; see ``layerdag.workload``.

    Args:
        name: A model of ``PRESETS``, a ``config.json`` of Hugging Face, or a shape.
        **settings: Fields of ``Plan`` and ``Step``; with ``phase="disaggregated"`` those of
            ``disaggregated_job``.

    Raises:
        UsageError: If there is no such model or setting, or numbers do not fit together.
    """
    if settings.get("phase") == "disaggregated":
        return disaggregated_job(name, **settings).workload()
    return job(name, **settings).workload()


def disaggregated_job(name: str | Path | ModelShape, **settings: Any) -> DisaggregatedJob:
    """Return a step whose prompts some ranks compute and whose tokens others make.

    Args:
        name: A model of ``PRESETS``, a ``config.json`` of Hugging Face, or a shape.
        **settings: ``batch``, ``sequence``, ``tokens``, ``precision``, ``causal`` and ``attention``
            of both sides; ``data``, ``tensor``, ``pipeline``, ``expert`` and ``micro_batches`` of
            each, with ``prefill_`` or ``decode_`` before them; ``prefill_sequence_parallel``.

    Raises:
        UsageError: If there is no such model or setting, or numbers do not fit together.
    """
    settings.pop("phase", None)
    _require_known(settings)
    shape = name if isinstance(name, ModelShape) else model(name)
    plans = {
        side: {
            word: settings[f"{side}_{word}"]
            for word in (*_OF_PLANS, *_OF_PREFILL)
            if f"{side}_{word}" in settings
        }
        for side in ("prefill", "decode")
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
    """Refuse settings that a disaggregated step does not have."""
    sides = [f"{side}_{word}" for side in ("prefill", "decode") for word in _OF_PLANS]
    known = (*_OF_STEP, "attention", *sides, *(f"prefill_{word}" for word in _OF_PREFILL))
    ordinary = {f.name for kind in (Plan, Step) for f in fields(kind)}
    for word in settings:
        if word in known:
            continue
        if f"prefill_{word}" in known:
            raise UsageError(
                f"A disaggregated step has two plans: give prefill_{word} and decode_{word} in "
                f"place of {word}."
                if word in _OF_PLANS
                else f"Give prefill_{word} in place of {word}: decode has one token to split."
            )
        if word in ordinary:
            raise UsageError(f"A disaggregated step has no {word}; leave it out.")
        raise UsageError(
            f"workload() has no setting '{word}' in a disaggregated step."
            f"{did_you_mean(word, known)} Known: {', '.join(known)}."
        )


_OF_PLANS = ("data", "tensor", "pipeline", "expert", "micro_batches")
_OF_PREFILL = ("sequence_parallel",)
_OF_STEP = ("batch", "sequence", "tokens", "precision", "causal")
