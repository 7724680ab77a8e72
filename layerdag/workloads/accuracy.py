"""Accuracy of predicted step times, against measured steps and two baselines."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from layerdag.errors import UsageError
from layerdag.runtime.rng import numpy_generator
from layerdag.runtime.settings import did_you_mean
from layerdag.statistics import kendall
from layerdag.version import __version__
from layerdag.workloads.measured_steps import (
    ASSUMPTIONS,
    LeftOutRow,
    MeasuredStep,
    StepTable,
    read_steps,
)
from layerdag.workloads.step_efficiency import (
    FittedEfficiency,
    StackedSteps,
    calibrated,
    fit_shares,
    read_efficiency,
    shipped_efficiency,
)
from layerdag.workloads.transformer.memory import peak_memory

PUBLIC_STEPS = Path(__file__).with_name("public_steps.csv")
"""The public rows that the package ships, and to which the shipped shares are fitted."""


@dataclass(frozen=True)
class ErrorFigures:
    """Errors of predictions, |predicted / measured - 1|.

    ``bias`` is the median of predicted / measured - 1, ``tau`` Kendall's of measured and predicted
    figures: None of fewer than three rows, or where one of them does not vary.
    """

    median: float
    p90: float
    bias: float
    tau: float | None


@dataclass(frozen=True)
class GroupAccuracy:
    """Errors of the rows of one group, which has a value of each key.

    Attributes:
        step: Of the step time, with tau of tokens/s.
        constant_mfu: Of one model FLOPs utilization for all rows.
        sheet: Of the data sheet: the model's operations at the peak rate.
        low: Median error that a tenth of the draws were below, as ``high`` above; None without.
    """

    group: dict[str, str]
    rows: int
    step: ErrorFigures
    tau_mfu: float | None
    constant_mfu: ErrorFigures
    sheet: ErrorFigures
    memory_rows: int = 0
    memory: ErrorFigures | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class StepPrediction:
    """One row of a table and what was predicted; no peak memory where none was measured."""

    source: str
    row: str
    device: str
    measured_s: float
    predicted_s: float
    measured_gib: float | None
    predicted_gib: float | None


@dataclass(frozen=True)
class Accuracy:
    """The figures of ``layerdag accuracy``; ``shares`` are those that predicted."""

    groups: tuple[GroupAccuracy, ...]
    predictions: tuple[StepPrediction, ...]
    left_out: tuple[LeftOutRow, ...]
    notes: tuple[str, ...]
    shares: FittedEfficiency

    def summary(self) -> dict[str, Any]:
        """Return what ``--json`` prints."""
        return {
            "layerdag": __version__,
            "groups": [asdict(group) for group in self.groups],
            "predictions": [asdict(one) for one in self.predictions],
            "left_out": [asdict(row) for row in self.left_out],
            "notes": list(self.notes),
        }

    def __repr__(self) -> str:
        """Return how many rows were judged; ``summary`` has more."""
        return f"Accuracy({len(self.predictions):,} rows, {len(self.left_out):,} left out)"


def accuracy(
    table: str | Path | None = None,
    *,
    calibrate: str | Path | int | None = None,
    by: Sequence[str] = ("source", "device"),
    draws: int = 50,
    seed: int = 0,
    refit: bool = False,
) -> Accuracy:
    """Compare predicted steps with measured ones.

    Args:
        table: CSV file of measured steps (see ``layerdag.workloads.measured_steps.COLUMNS``); by
            default the public rows that the package ships.
        calibrate: What the shipped shares are calibrated with: a CSV file of rows of one's own
            machines, a file of fitted shares (.json), or a number of rows, drawn at random for each
            device and software, which then are not judged. By default nothing.
        by: What rows are grouped by: "source", "device", "software", "model", "precision".
        draws: How often rows are drawn, where ``calibrate`` is a number.
        seed: Seed of the draws.
        refit: Where ``calibrate`` is a number: fit all shares anew to a random half of the groups
            of equal plan, draw the rows from that half, and judge the other. The honest figure for
            the public rows, to which the shipped shares are fitted.

    Raises:
        UsageError: If a file is no such table, a key is unknown, or no row can be expressed.
    """
    for key in by:
        if key not in _KEYS:
            raise UsageError(
                f"rows are not grouped by '{key}'.{did_you_mean(key, _KEYS)} Known: "
                f"{', '.join(_KEYS)}."
            )
    keys = list(dict.fromkeys(by))
    source = Path(table) if table is not None else PUBLIC_STEPS
    found = read_steps(source)
    if not found.steps:
        reasons = Counter(row.reason for row in found.left_out)
        reason, count = reasons.most_common(1)[0]
        raise UsageError(f"{source}: no row can be expressed; of {count:,} the reason is: {reason}")
    rows, notes = StackedSteps.of(found.steps), _notes(found)
    if isinstance(calibrate, int):
        return _drawn(rows, found, keys, notes, calibrate, draws, seed, refit)
    shares, more = _shares(calibrate)
    predicted = rows.predicted(shares)
    groups = [
        _group(keys, rows, members, predicted, None) for members in _members(rows.steps, keys)
    ]
    sheets = {step.sheet.name: step.sheet for step in rows.steps}
    kin_notes = (
        f"{name}: never fitted; shares of {', '.join(shares.kin(sheet)) or 'all devices'} and its "
        "own data sheet"
        for name, sheet in sheets.items()
        if not shares.knows(sheet)
    )
    notes += (*more, *kin_notes)
    return Accuracy(tuple(groups), _predictions(rows, predicted), found.left_out, notes, shares)


def _shares(calibrate: str | Path | None) -> tuple[FittedEfficiency, tuple[str, ...]]:
    if calibrate is None:
        return shipped_efficiency(), ("shares as shipped, not calibrated",)
    if str(calibrate).endswith(".json"):
        return read_efficiency(calibrate), (f"shares of {calibrate}",)
    table = read_steps(calibrate)
    if not table.steps:
        raise UsageError(
            f"{calibrate}: no row can be expressed, so that nothing can be calibrated; the first: "
            f"{table.left_out[0].reason}"
        )
    note = f"calibrated with {len(table.steps):,} rows of {calibrate}"
    note += f", {len(table.left_out):,} left out" if table.left_out else ""
    return calibrated(shipped_efficiency(), StackedSteps.of(table.steps)), (note,)


def _notes(table: StepTable) -> tuple[str, ...]:
    count = Counter(name for step in table.steps for name in step.assumed)
    notes = [
        f"{name} is empty in {number:,} rows and taken as {ASSUMPTIONS[name]}"
        for name, number in count.most_common()
    ]
    if table.unknown_columns:
        notes.append(f"columns not understood: {', '.join(table.unknown_columns)}")
    unknown = Counter(step.source for step in table.steps if not step.software)
    notes += [
        f"source '{name}' names no known software ({number:,} rows): shares of all software"
        for name, number in unknown.items()
    ]
    return tuple(notes)


_KEYS: Mapping[str, Callable[[MeasuredStep], str]] = {
    "source": lambda step: step.source,
    "device": lambda step: step.sheet.name,
    "software": lambda step: step.software,
    "model": lambda step: step.job.shape.name,
    "precision": lambda step: step.job.step.precision,
}


def _members(steps: Sequence[MeasuredStep], keys: Sequence[str]) -> list[list[int]]:
    found: dict[tuple[str, ...], list[int]] = {}
    for number, step in enumerate(steps):
        found.setdefault(tuple(_KEYS[key](step) for key in keys), []).append(number)
    return [found[name] for name in sorted(found)]


def _group(
    keys: Sequence[str],
    rows: StackedSteps,
    members: list[int],
    predicted: np.ndarray,
    mfu: np.ndarray | None,
) -> GroupAccuracy:
    """Return the figures of a group.

    ``mfu`` is the constant utilization for each of its rows; by default the median of these rows
    themselves, which flatters that baseline.
    """
    part = rows.take(members)
    operations = model_operations(part.steps)
    peaks = np.array([_peak(step) for step in part.steps])
    reached = operations / part.seconds / peaks
    constant = np.median(reached) if mfu is None else mfu[members]
    tokens = np.array([step.job.tokens for step in part.steps])
    made = predicted[members]
    known = [step for step in part.steps if step.memory_gib]
    measured = np.array([step.memory_gib for step in known])
    held = np.array([_held(step) for step in known])
    return GroupAccuracy(
        group={key: _KEYS[key](part.steps[0]) for key in keys},
        rows=len(members),
        step=_errors(made, part.seconds, _tau(tokens / made, tokens / part.seconds)),
        tau_mfu=_tau(operations / made / peaks, reached),
        constant_mfu=_errors(operations / peaks / constant, part.seconds),
        sheet=_errors(operations / peaks, part.seconds),
        memory_rows=len(measured),
        memory=_errors(held, measured, _tau(held, measured)) if len(measured) else None,
    )


def model_operations(steps: Sequence[MeasuredStep]) -> np.ndarray:
    """Return the operations of a step for each of its devices, as papers count them.

    Six for each parameter that a token passes and each token, and 12 x layers x sequence x width of
    the heads for attention, the square counted in full.
    """
    found = []
    for step in steps:
        job, shape = step.job, step.job.shape
        passed = shape.active_parameters - shape.embedding_parameters - shape.output_parameters
        passed += shape.vocabulary * shape.hidden
        attention = 12 * shape.layers * job.step.sequence * shape.query_width
        found.append((6 * passed + attention) * job.tokens / job.plan.ranks)
    return np.array(found, dtype=np.float64)


def _peak(step: MeasuredStep) -> float:
    sheet, products = step.sheet, step.job.step.numbers.products
    rates = {"": sheet.bf16, "fp8": sheet.fp8, "mxfp8": sheet.fp8, "nvfp4": sheet.fp4}
    return float(rates[products])


def _held(step: MeasuredStep) -> float:
    peak = peak_memory(step.job, eager=step.eager)
    if step.memory_kind == "allocated":
        return peak.allocated / 2**30
    return peak.reserved(step.sheet.memory_gib) / 2**30


def _errors(predicted: np.ndarray, measured: np.ndarray, tau: float | None = None) -> ErrorFigures:
    off = predicted / measured - 1
    median, p90 = np.median(np.abs(off)), np.quantile(np.abs(off), 0.9)
    return ErrorFigures(float(median), float(p90), float(np.median(off)), tau)


def _tau(first: np.ndarray, second: np.ndarray) -> float | None:
    """Return Kendall's tau-b, None where it means nothing."""
    if len(first) < 3:
        return None
    (tau,) = kendall(first[None], second[None], np.ones((1, len(first))))
    return None if np.isnan(tau) else float(tau)


def _predictions(rows: StackedSteps, predicted: np.ndarray) -> tuple[StepPrediction, ...]:
    return tuple(
        StepPrediction(
            step.source, step.row, step.sheet.name, step.step_s, float(time),
            step.memory_gib, _held(step) if step.memory_gib else None,
        )
        for step, time in zip(rows.steps, predicted, strict=True)
    )  # fmt: skip


def _drawn(
    rows: StackedSteps,
    table: StepTable,
    keys: Sequence[str],
    notes: tuple[str, ...],
    count: int,
    draws: int,
    seed: int,
    refit: bool,
) -> Accuracy:
    if count < 1 or draws < 1:
        raise UsageError(f"{count} rows and {draws} draws; both must be at least 1.")
    operations = model_operations(rows.steps)
    reached = operations / rows.seconds / np.array([_peak(step) for step in rows.steps])
    made: list[np.ndarray] = []
    constants: list[np.ndarray] = []
    for draw in range(draws):
        generator = numpy_generator(seed, "accuracy", draw)
        open_R = _open_half(rows.steps, generator) if refit else np.ones(len(rows.steps), bool)
        shares = fit_shares(rows.take(np.flatnonzero(open_R))) if refit else shipped_efficiency()
        drawn = _drawn_rows(rows.steps, open_R, count, generator)
        shares = calibrated(shares, rows.take(drawn)) if len(drawn) else shares
        predicted, constant = rows.predicted(shares), np.full(len(rows.steps), np.nan)
        for members in _members(rows.steps, ("source", "device")):
            fitting = [row for row in members if row in set(drawn.tolist())] or members
            constant[members] = np.median(reached[fitting])
        predicted[open_R if refit else drawn] = np.nan
        made.append(predicted)
        constants.append(constant)
    made_DR, constant_DR = np.array(made), np.array(constants)
    judged_R = ~np.isnan(made_DR).all(axis=0)
    groups = []
    for members in _members(rows.steps, keys):
        kept = [row for row in members if judged_R[row]]
        if not kept:
            continue
        parts = [
            _group(keys, rows, here, made_DR[draw], constant_DR[draw])
            for draw in range(draws)
            if (here := [row for row in kept if not np.isnan(made_DR[draw, row])])
        ]
        groups.append(_over_draws(parts, len(kept)))
    with np.errstate(all="ignore"):
        middle = np.array([np.nanmedian(made_DR[:, r]) if judged_R[r] else np.nan
                           for r in range(len(rows.steps))])  # fmt: skip
    note = f"{draws} draws of {count} rows for each device and software calibrate; the others are "
    if refit:
        note += "judged, shares fitted anew to the half of the plans from which rows are drawn"
    else:
        note += "judged; the shipped shares were fitted to the public rows"
    kept_rows = rows.take(np.flatnonzero(judged_R))
    return Accuracy(
        tuple(groups), _predictions(kept_rows, middle[judged_R]), table.left_out, (*notes, note),
        shipped_efficiency(),
    )  # fmt: skip


def _open_half(steps: Sequence[MeasuredStep], generator: np.random.Generator) -> np.ndarray:
    names = []
    for step in steps:
        job, software = step.job, step.software.partition("-26")[0]
        names.append(repr((job.shape.name, job.plan, job.step, step.sheet.name, software)))
    groups = sorted(set(names))
    kept = set(generator.permutation(groups)[: -(-len(groups) // 2)].tolist())
    return np.array([name in kept for name in names])


def _drawn_rows(
    steps: Sequence[MeasuredStep], open_R: np.ndarray, count: int, generator: np.random.Generator
) -> np.ndarray:
    drawn: list[int] = []
    for members in _members(steps, ("source", "device")):
        inside = [row for row in members if open_R[row]]
        most = len(inside) if not open_R.all() else len(inside) // 2
        drawn += generator.permutation(inside)[: min(count, most)].tolist() if inside else []
    return np.array(sorted(drawn), dtype=np.int64)


def _over_draws(parts: list[GroupAccuracy], rows: int) -> GroupAccuracy:
    def mean(values: list[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return float(np.mean(known)) if known else None

    def errors(name: str) -> ErrorFigures:
        each: list[ErrorFigures] = [getattr(part, name) for part in parts]
        middle, high, bias = np.mean([(e.median, e.p90, e.bias) for e in each], axis=0)
        tau = mean([one.tau for one in each])
        return ErrorFigures(float(middle), float(high), float(bias), tau)

    medians = [part.step.median for part in parts]
    return replace(
        parts[-1],
        rows=rows,
        step=errors("step"),
        tau_mfu=mean([part.tau_mfu for part in parts]),
        constant_mfu=errors("constant_mfu"),
        sheet=errors("sheet"),
        low=float(np.quantile(medians, 0.1)),
        high=float(np.quantile(medians, 0.9)),
    )
