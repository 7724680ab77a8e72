"""The plans of the embedded corpus' training runs, in the words of ``layerdag.plan``."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from layerdag.errors import DataError
from layerdag.runtime.json_shape import found_value, from_json, parse_json, require_known
from layerdag.runtime.reading import read_parsed
from layerdag.schema.plan_tables import SINGLE, PlannedStep, Setting
from layerdag.traces.chakra.corpus import INDEX, RunRecord, read_index

CORPUS_OPTIMIZERS: Mapping[str, str] = {
    "sgd": "sgd-forloop",
    "momentum": "sgd-momentum-foreach",
    "adam": "adam-forloop",
    "adamw_foreach": "adamw-foreach",
    "adamw_fused": "adamw-fused",
    "adagrad": "adagrad-forloop",
    "rmsprop": "rmsprop-foreach",
}
"""Optimizers of the corpus by the names of ``layerdag.plan``."""
MEASURED_OPTIMIZERS: Mapping[str, str] = {
    "adamw_fused": "adamw-fused",
    "adamw_foreach": "adamw-foreach",
    "sgd_momentum": "sgd-momentum-foreach",
}
"""Optimizers of the steps that were measured on a GPU, likewise."""
_DEGREES: Mapping[str, str] = {"ddp": "data", "fsdp2": "fsdp", "tp": "tensor", "pp": "pipeline"}
"""Strategies of the corpus and the degree of each; of others no step can be derived."""
_CLIP = 1.0
_STRATEGIES = {degree: strategy for strategy, degree in _DEGREES.items()}


def corpus_strategy(strategy: str) -> str:
    """Return how a corpus calls the strategy of a plan: "ddp" for "data", "tp" for "tensor"."""
    return "+".join(_STRATEGIES.get(part, part) for part in strategy.split("+"))


def run_plans(corpus: Path) -> dict[str, PlannedStep]:
    """Return the plan of each training run of a corpus and of its further runs, by name.

    Runs that exchange experts or embeddings are left out, as no step derives them. A folder without
    an index has none.
    """
    folders = [folder for folder in (corpus, corpus / "further") if (folder / INDEX).is_file()]
    return {
        record.run: plan
        for folder in folders
        for record in read_index(folder)
        if record.phase == "training" and (plan := _plan(record)) is not None
    }


STEPS = "steps.jsonl"
"""File beside programs of steps that were measured on a GPU: their plans, times and memory."""


@dataclass(frozen=True)
class _Row:
    """A line of the file."""

    run: str
    family: str
    settings: Mapping[str, str]
    precision: str
    step_times_s: tuple[float, ...]
    peak_bytes: int


@dataclass(frozen=True)
class MeasuredStep:
    """A training step that was measured on a GPU.

    The precision is "fp32", "tf32" or "bf16" (casts of autocast are calls of the program), the time
    the least of the measured ones (s), the memory the most that was allocated.
    """

    plan: PlannedStep
    precision: str
    step_time_s: float
    peak_bytes: int


def measured_steps(folder: Path) -> dict[str, MeasuredStep]:
    """Return the measured steps beside the programs of a folder, by run; none without its file.

    Raises DataError if a line of the file is damaged.
    """
    path = folder / STEPS
    if not path.is_file():
        return {}
    found = {}
    for number, line in enumerate(read_parsed(path).splitlines(), start=1):
        where = f"{path}: line {number}"
        try:
            run, step = _measured_step(parse_json(line))
        except (ValueError, RecursionError) as error:
            raise DataError(f"{where} is no measured step: {error}.") from error
        found[run] = step
    return found


def _measured_step(data: Any) -> tuple[str, MeasuredStep]:
    row = from_json(_Row, data)
    require_known(data, (field.name for field in fields(_Row)))
    require_known(row.settings, ("optimizer",))
    optimizer, known = row.settings.get("optimizer"), MEASURED_OPTIMIZERS.values()
    if optimizer not in known:
        raise ValueError(f"its optimizer is {found_value(optimizer)}, none of {', '.join(known)}")
    times, peak = row.step_times_s, row.peak_bytes
    if not times or not all(0 < number < math.inf for number in (*times, peak)):
        raise ValueError("'step_times_s' and 'peak_bytes' must be above 0")
    plan = PlannedStep(row.family, SINGLE, dict(row.settings))
    return row.run, MeasuredStep(plan, row.precision, min(times), peak)


def _plan(record: RunRecord) -> PlannedStep | None:
    """Return the plan of a run; None if no step of it can be derived."""
    if record.strategy == "single":
        return PlannedStep(record.family, SINGLE, dict(_settings(record)))
    degree = _DEGREES.get(record.strategy)
    if degree is None:
        return None
    settings = {degree: record.world_size, **dict(_settings(record))}
    return PlannedStep(record.family, degree, settings)


def _settings(record: RunRecord) -> Iterator[tuple[str, Setting]]:
    hyper = record.hyper
    # Runs of the corpus were collected before the setting got its American spelling.
    yield "optimizer", CORPUS_OPTIMIZERS[str(hyper.get("optimizer", hyper.get("optimiser")))]
    yield "clip", _CLIP if hyper["clip"] else 0
    if record.strategy == "pp":
        yield "schedule", str(hyper["schedule"])
        yield "micro_batches", int(hyper["microbatches"])
    else:
        yield "accumulate", int(hyper["accumulate"])
    if record.strategy == "ddp":
        yield "bucket_bytes", int(float(hyper["bucket_mb"]) * 2**20)
