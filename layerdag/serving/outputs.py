"""Files of a serving run: a table of requests, a timeline, a picture."""

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from layerdag.runtime.files import atomic_path, require_name, write_text
from layerdag.serving.result import ServingResult

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
    """Yield queue with prompt, and answer, of each request, on the first lane that is free."""
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
