"""What a simulated serving run was like: latencies, rates, goodput, caches, batches; its files."""

import csv
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from layerdag.runtime.files import atomic_path, require_name, write_text
from layerdag.runtime.notes import Note
from layerdag.serving.run import ServingRun
from layerdag.serving.settings import ServingSettings

NOT_MODELED = (
    "speculative decoding",
    "pipeline parallelism of an instance",
    "unequal lengths and unequal load of experts inside one kernel",
    "limits of power and clock",
    "failures, and requests that are given up",
    "offload of caches to host memory or disk",
)
"""What no simulated serving time has."""
PERCENTILES = (50, 90, 99)


@dataclass(frozen=True)
class ServiceLimits:
    """Times to the first token and per further token within which a request counts; 0 for any."""

    ttft_ms: float = 0.0
    tpot_ms: float = 0.0


@dataclass(frozen=True, eq=False)
class ServingResult:
    """A simulated serving run.

    Attributes:
        model: Name of the model.
        settings: The cluster.
        run: Times of requests and iterations.
        limits: For goodput.
        told: What a reader of the times should know, one sentence each.
        notes: What was not understood of the files that were read.
    """

    model: str
    settings: ServingSettings
    run: ServingRun
    limits: ServiceLimits
    told: tuple[str, ...] = ()
    notes: tuple[Note, ...] = ()

    @cached_property
    def served(self) -> np.ndarray:
        """Places of the requests that were answered, int64 (S,)."""
        return np.flatnonzero(np.isfinite(self.run.finish_s))

    @cached_property
    def ttft_s(self) -> np.ndarray:
        """Time to the first token of each answered request, (S,)."""
        at = self.served
        return self.run.first_token_s[at] - self.run.requests.arrival_s[at]

    @cached_property
    def latency_s(self) -> np.ndarray:
        """Time to the last token, (S,)."""
        at = self.served
        return self.run.finish_s[at] - self.run.requests.arrival_s[at]

    @cached_property
    def tpot_s(self) -> np.ndarray:
        """Time per token after the first one, (S,); NaN for answers of one token."""
        at = self.served
        rest = self.run.requests.output_tokens[at] - 1
        made = np.full(len(at), np.nan)
        spent = self.run.finish_s[at] - self.run.first_token_s[at]
        return np.divide(spent, rest, out=made, where=rest > 0)

    @property
    def duration_s(self) -> float:
        """From the first arrival to the last token."""
        if not len(self.served):
            return 0.0
        return float(self.run.finish_s[self.served].max() - self.run.requests.arrival_s.min())

    @cached_property
    def kept(self) -> np.ndarray:
        """Whether each answered request kept the limits, bool (S,)."""
        kept = np.ones(len(self.served), dtype=bool)
        if self.limits.ttft_ms:
            kept &= self.ttft_s * 1e3 <= self.limits.ttft_ms
        if self.limits.tpot_ms:
            kept &= ~(self.tpot_s * 1e3 > self.limits.tpot_ms)
        return kept

    def summary(self) -> dict[str, Any]:
        """Return all figures as plain JSON types; times in ms, rates per second."""
        run, at = self.run, self.served
        lasted = self.duration_s or 1.0
        outputs = int(run.requests.output_tokens[at].sum())
        inputs = int(run.requests.input_tokens[at].sum())
        parts = [part for part in run.iterations if len(part.seconds)]
        between_tokens: dict[str, float] = {}
        if parts:
            seconds = np.concatenate([part.seconds for part in parts]) * 1e3
            weights = np.concatenate([part.decodes for part in parts]).astype(np.float64)
            between_tokens = _spread(seconds, weights)
        figures: dict[str, Any] = {
            "model": self.model,
            "devices": self.settings.devices,
            "requests": len(run.requests),
            "answered": len(at),
            "refused": int(run.refused.sum()),
            "duration_s": self.duration_s,
            "ttft_ms": _spread(self.ttft_s * 1e3),
            "tpot_ms": _spread(self.tpot_s[np.isfinite(self.tpot_s)] * 1e3),
            "itl_ms": between_tokens,
            "latency_ms": _spread(self.latency_s * 1e3),
            "requests_per_s": len(at) / lasted,
            "input_tokens_per_s": inputs / lasted,
            "output_tokens_per_s": outputs / lasted,
            "output_tokens_per_s_per_device": outputs / lasted / self.settings.devices,
            "preemptions": run.preemptions,
            "reused_tokens": run.reused_tokens,
            "instances": [self._instance(number) for number in range(len(run.iterations))],
            "settings": asdict(self.settings),
            "told": list(self.told),
            "not_modeled": list(NOT_MODELED),
        }
        if self.limits.ttft_ms or self.limits.tpot_ms:
            figures["goodput"] = {
                "limits": asdict(self.limits),
                "requests_per_s": int(self.kept.sum()) / lasted,
                "share": float(self.kept.mean()) if len(at) else 0.0,
            }
        return figures

    def _instance(self, number: int) -> dict[str, Any]:
        found = self.run.iterations[number]
        blocks = self.run.blocks[number]
        busy = float(found.seconds.sum())
        if not busy:
            return {"iterations": 0, "busy": 0.0, "kv_blocks": blocks}

        def over_time(values: np.ndarray) -> float:
            return float((values * found.seconds).sum() / busy)

        tokens = found.prefill_tokens + found.decodes
        return {
            "iterations": len(found.seconds),
            "busy": busy / (self.duration_s or busy),
            "sequences": {"mean": over_time(found.sequences), "most": int(found.sequences.max())},
            "tokens": {"mean": float(tokens.mean()), "most": int(tokens.max())},
            "waiting": {"mean": over_time(found.waiting), "most": int(found.waiting.max())},
            "kv_blocks": blocks,
            "kv_held": {
                "mean": over_time(found.held) / blocks,
                "most": float(found.held.max()) / blocks,
            },
        }

    def rows(self) -> Mapping[str, np.ndarray]:
        """Return the requests as columns, NaN for what never came."""
        run, asked = self.run, self.run.requests
        rest = np.maximum(asked.output_tokens - 1, 1)
        return {
            "request": np.arange(len(asked)),
            "arrival_s": asked.arrival_s,
            "input_tokens": asked.input_tokens,
            "output_tokens": asked.output_tokens,
            "first_token_s": run.first_token_s,
            "finish_s": run.finish_s,
            "ttft_ms": (run.first_token_s - asked.arrival_s) * 1e3,
            "tpot_ms": (run.finish_s - run.first_token_s) / rest * 1e3,
            "instance": run.instance,
        }


def _spread(values: np.ndarray, weights: np.ndarray | None = None) -> dict[str, float]:
    """Return mean and percentiles, by nearest rank; {} of no values."""
    if not len(values) or (weights is not None and not weights.sum()):
        return {}
    counts = np.ones(len(values)) if weights is None else weights
    order = np.argsort(values)
    below = np.cumsum(counts[order])
    made = {"mean": float((values * counts).sum() / counts.sum())}
    for percent in PERCENTILES:
        at = np.searchsorted(below, percent / 100 * below[-1])
        made[f"p{percent}"] = float(values[order][min(at, len(values) - 1)])
    return made


_LANES = 32
"""Requests of an instance that a timeline shows side by side, at most."""


def write_requests(result: ServingResult, path: str | Path) -> None:
    """Write one row for each request, .csv or .jsonl; empty (null) for what never came.

    Raises:
        UsageError: If the path has another ending.
    """
    ending = require_name(path, (".csv", ".jsonl"))
    columns = {name: values.tolist() for name, values in result.rows().items()}
    rows = [
        [None if value != value else value for value in row]
        for row in zip(*columns.values(), strict=True)
    ]
    if ending == ".jsonl":
        lines = [json.dumps(dict(zip(columns, row, strict=True))) for row in rows]
        write_text(path, "\n".join(lines) + "\n")
        return
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    write_text(path, file.getvalue())


def write_serving_timeline(result: ServingResult, path: str | Path) -> None:
    """Write a Chrome trace: a process for each instance, with its iterations, requests and cache.

    Source: the Trace Event Format ("X", "C" and "M" events), which Perfetto and chrome://tracing
    read.
    """
    with atomic_path(path) as draft, draft.open("w", encoding="utf-8") as file:
        file.write('{"displayTimeUnit":"ms","traceEvents":[\n')
        events = (json.dumps(event, separators=(",", ":")) for event in _events(result))
        file.write(",\n".join(events))
        file.write("\n]}\n")


def _events(result: ServingResult) -> Iterator[dict[str, Any]]:
    run = result.run
    for number, found in enumerate(run.iterations):
        yield _name(number, "process_name", f"instance {number}")
        yield _name(number, "thread_name", "iterations", 0)
        columns = (
            found.start_s, found.seconds, found.prefill_tokens, found.decodes, found.held,
            found.waiting,
        )  # fmt: skip
        for start, lasted, prompts, decodes, held, waiting in zip(
            *(column.tolist() for column in columns), strict=True
        ):
            kind = "mixed" if prompts and decodes else "prefill" if prompts else "decode"
            yield {
                "ph": "X", "pid": number, "tid": 0, "name": kind, "ts": start * 1e6,
                "dur": lasted * 1e6, "args": {"prompt_tokens": prompts, "decodes": decodes},
            }  # fmt: skip
            counts = {"held": held / run.blocks[number], "waiting": waiting}
            for name, value in counts.items():
                yield {"ph": "C", "pid": number, "name": name, "ts": start * 1e6,
                       "args": {name: value}}  # fmt: skip
    yield from _requests(result)


def _requests(result: ServingResult) -> Iterator[dict[str, Any]]:
    run = result.run
    lanes: dict[int, list[float]] = {}
    for at in result.served.tolist():
        instance = int(run.instance[at])
        free = lanes.setdefault(instance, [])
        begun, first, last = (
            float(values[at])
            for values in (run.requests.arrival_s, run.first_token_s, run.finish_s)
        )
        lane = next((lane for lane, until in enumerate(free) if until <= begun), len(free))
        if lane >= _LANES:
            continue
        free[lane:] = [last, *free[lane + 1 :]]
        shared = {"ph": "X", "pid": instance, "tid": 1 + lane, "args": {"request": at}}
        yield {**shared, "name": "to first token", "ts": begun * 1e6, "dur": (first - begun) * 1e6}
        yield {**shared, "name": "answer", "ts": first * 1e6, "dur": (last - first) * 1e6}


def _name(process: int, what: str, name: str, thread: int = 0) -> dict[str, Any]:
    return {"ph": "M", "pid": process, "tid": thread, "name": what, "args": {"name": name}}


def draw(result: ServingResult, path: str | Path) -> None:
    """Draw latencies, batches and cache over time, .png or .svg.

    Raises:
        UsageError: If the path has another ending.
    """
    require_name(path, (".png", ".svg"))
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 7), layout="constrained")
    top, middle, bottom = figure.subplots(3, 1)
    for values, name in ((result.ttft_s, "TTFT"), (result.latency_s, "latency")):
        top.plot(np.sort(values), np.linspace(0, 1, len(values)), label=name)
    top.set(xlabel="s", ylabel="share of requests", xscale="log")
    top.legend()
    for number, found in enumerate(result.run.iterations):
        if len(found.start_s):
            middle.plot(found.start_s, found.sequences, lw=0.8, label=f"instance {number}")
            bottom.plot(found.start_s, found.held / result.run.blocks[number], lw=0.8)
    middle.set(ylabel="sequences in the batch")
    middle.legend(fontsize="small")
    bottom.set(xlabel="s", ylabel="share of the KV cache", ylim=(0, 1.02))
    with atomic_path(path) as draft:
        figure.savefig(draft, format=str(path)[-3:])
