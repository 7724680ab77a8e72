"""Tables of training steps that somebody measured: rows, and the jobs that they describe.

A row is one step: the model's shape, the plan, the device, and how long it took. The columns are
those of ``COLUMNS``; what a table leaves empty is assumed only where ``ASSUMPTIONS`` says so, and
told. What cannot be expressed as a job keeps its reason.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from layerdag.errors import LayerdagError, UsageError
from layerdag.hardware.devices import DataSheet, data_sheet
from layerdag.plan import CHOICES, PRECISIONS, Plan, Step
from layerdag.runtime.settings import did_you_mean, shorten
from layerdag.runtime.tables import read_table
from layerdag.workloads.transformer.job import SymbolicJob
from layerdag.workloads.transformer.shapes import Latent, ModelShape

COLUMNS = (
    "source", "row", "model", "layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab",
    "gated", "experts", "experts_per_token", "shared_experts", "expert_ffn", "tied", "seq",
    "global_batch", "micro_batch", "data", "tensor", "pipeline", "virtual_pipeline", "context",
    "expert", "zero", "recompute", "precision", "attention", "compiled", "device", "devices",
    "devices_per_node", "step_s", "tokens_per_s_per_device", "model_tflops_per_device",
    "memory_gib", "memory_kind", "notes", "software",
)  # fmt: skip
"""Columns of a table, in any order. Empty is unknown. ``step_s`` in s, ``memory_gib`` the fullest
rank's, ``memory_kind`` "reserved" or "allocated"; ``software`` what trained, by default the source.
"""

_REQUIRED = (
    *("model", "layers", "hidden", "heads", "seq", "global_batch", "device", "devices", "step_s"),
)
ASSUMPTIONS = {
    "recompute": "none",
    "zero": "1",
    "virtual_pipeline": "1",
    "micro_batch": "1",
    "kv_heads": "as many as heads",
    "vocab": "51,200",
    "devices_per_node": "8",
}
"""Assumed values of empty columns."""
MAX_ROWS = 100_000


@dataclass(frozen=True)
class MeasuredStep:
    """A row whose job is known."""

    source: str
    row: str
    software: str  # what trained: names a row of the shipped shares
    sheet: DataSheet
    node: int  # devices that share the fast link
    job: SymbolicJob
    eager: bool  # whether element-wise operators were kernels of their own
    asynchronous: bool  # whether products hid tensor-parallel sums
    step_s: float
    memory_gib: float | None  # peak of the fullest rank, None if unknown
    memory_kind: str  # "reserved" or "allocated", "" if unknown
    assumed: tuple[str, ...]  # columns that were empty and got the value of a usual run


@dataclass(frozen=True)
class LeftOutRow:
    """A row that cannot be expressed as a job, and why."""

    source: str
    row: str
    device: str
    reason: str


@dataclass(frozen=True)
class StepTable:
    """The rows of a table, and its columns that are not known."""

    steps: tuple[MeasuredStep, ...]
    left_out: tuple[LeftOutRow, ...]
    unknown_columns: tuple[str, ...]


def read_steps(path: str | Path) -> StepTable:
    """Read a table of measured steps.

    Raises:
        UsageError: If it is no such table: a column is missing, or it has no rows.
    """
    table = read_table(path, _REQUIRED, error=UsageError)
    if not table.cells or len(table.cells) > MAX_ROWS:
        raise UsageError(f"{path}: has {len(table.cells):,} rows; 1 to {MAX_ROWS:,} are read.")
    strange = (name for name in table.names if name not in COLUMNS)
    unknown = tuple(f"'{name}'{did_you_mean(name, COLUMNS)}" for name in strange)
    steps, left_out = [], []
    for number, cells in table.rows():
        name = cells.get("row") or f"line {number}"
        source = cells.get("source") or Path(path).stem
        try:
            steps.append(_step(source, name, _Row(cells)))
        except LayerdagError as error:
            device = shorten(cells.get("device", ""), 40)
            left_out.append(LeftOutRow(source, name, device, str(error)))
    return StepTable(tuple(steps), tuple(left_out), unknown)


_MAY_BE_0 = ("experts", "shared_experts", "head_dim", "ffn", "gated", "tied", "zero")


class _Row:
    """The cells of a row, each checked where it is read."""

    def __init__(self, cells: Mapping[str, str]) -> None:
        self._cells = cells
        self.assumed: list[str] = []

    def text(self, name: str) -> str:
        """Return a cell, "" where it is empty."""
        return self._cells.get(name, "")

    def real(self, name: str) -> float | None:
        """Return a positive number, None where the cell is empty."""
        text = self.text(name)
        if not text:
            return None
        try:
            value = float(text)
        except ValueError:
            raise UsageError(f"{name} is '{text:.40}'; it must be a number.") from None
        if not 0 <= value < math.inf:
            raise UsageError(f"{name} is {text:.40}; it must be a number from 0 up.")
        return value

    def whole(self, name: str, default: int | None = None) -> int:
        """Return a whole number; the default where the cell is empty."""
        value = self.real(name)
        if value is None:
            if default is None:
                raise UsageError(f"{name} is empty")
            if name in ASSUMPTIONS:
                self.assumed.append(name)
            return default
        if value != int(value):
            raise UsageError(f"{name} is {self.text(name):.40}; it must be a whole number.")
        if not value and name not in _MAY_BE_0:
            raise UsageError(f"{name} is 0; it must be at least 1.")
        return int(value)


def _step(source: str, name: str, row: _Row) -> MeasuredStep:
    notes = row.text("notes")
    for word, what in (
        ("hybrid Mamba", "some layers are state-space layers, not attention"),
        ("not a plain transformer", "its attention is sparse and compressed"),
    ):
        if word in notes:
            raise UsageError(f"the model is no plain transformer: {what}")
    seconds = row.real("step_s")
    if not seconds:
        raise UsageError("step_s is empty")
    sheet = data_sheet(row.text("device"))
    shape = _shape(row, notes)
    software = row.text("software") or software_of(source, notes)
    job = _job(row, shape, software)
    devices = row.whole("devices")
    if job.plan.ranks != devices:
        raise UsageError(
            f"data x tensor x pipeline x context = {job.plan.ranks} are not the {devices} devices"
        )
    return MeasuredStep(
        source=source,
        row=name,
        software=software,
        sheet=sheet,
        node=row.whole("devices_per_node", 8),
        job=job,
        eager=row.text("compiled") in ("0", "0.0"),
        asynchronous="async TP" in notes,
        step_s=seconds,
        memory_gib=row.real("memory_gib") or None,
        memory_kind=row.text("memory_kind"),
        assumed=tuple(row.assumed),
    )


_RELEASE = re.compile(r"(\d\d\.\d\d)(?:\.\d\d)? NeMo Container")
_SOFTWARE = {
    "llm-foundry": "llm-foundry",
    "torchtitan": "torchtitan",
    "megatron-bridge": "megatron",
    "nemo": "nemo",
    "nemo-long": "nemo",
    "maxtext": "maxtext",
}


def software_of(source: str, notes: str = "") -> str:
    """Return what trained, by the source of a row; "" where it is not known.

    Megatron-Bridge runs mixtures much faster from container 26.06 on, which has a name of its own.
    """
    if source.startswith("mlperf"):
        return "mlperf"
    found = _SOFTWARE.get(source, "")
    release = _RELEASE.search(notes)
    if found == "megatron" and release and float(release[1]) >= 26.06:
        return "megatron-26.06"
    return found


_LATENT = re.compile(
    r"latent attention \(q_rank (\d+); kv_rank (\d+); nope (\d+); rope (\d+); value (\d+)\)"
)
_DENSE = re.compile(r"first (\d+) layers dense")
_WINDOW = re.compile(r"every other layer slides over (\d+) tokens")


def _shape(row: _Row, notes: str) -> ModelShape:
    """Return the shape; the notes have what the columns lack."""
    experts, gated = row.whole("experts", 0), bool(row.whole("gated", 1))
    latent, dense, window = (p.search(notes) for p in (_LATENT, _DENSE, _WINDOW))
    heads, ffn = row.whole("heads"), row.whole("expert_ffn" if experts else "ffn")
    settings: dict[str, Any] = {}
    if experts:
        first = int(dense[1]) if dense else 0
        settings = {
            "experts": experts,
            "experts_per_token": row.whole("experts_per_token"),
            "shared_experts": row.whole("shared_experts", 0),
            "dense_layers": first,
            "dense_feed_forward": row.whole("ffn") if first else 0,
        }
    if latent:
        query, rank, nope, rope, value = map(int, latent.groups())
        settings["latent"] = Latent(rank, nope, rope, value, query)
    else:
        settings["kv_heads"] = row.whole("kv_heads", heads)
        settings["head_size"] = row.whole("head_dim", 0)
    tied = bool(row.whole("tied", 0))
    plain = not gated and not experts  # GPT: biases, layer norms
    return ModelShape(
        row.text("model") or "model",
        row.whole("layers"),
        row.whole("hidden"),
        heads,
        ffn,
        row.whole("vocab", 51_200),
        positions=row.whole("seq") if plain and tied else 0,
        gated=gated,
        norm="layer" if plain else "rms",
        biases="all" if plain else "none",
        tied=tied,
        window=int(window[1]) if window else 0,
        **settings,
    )


def _job(row: _Row, shape: ModelShape, software: str) -> SymbolicJob:
    precision = row.text("precision")
    if not precision:
        raise UsageError("precision is empty")
    if precision not in PRECISIONS:
        raise UsageError(f"there is no precision '{precision:.40}'")
    tensor, pipeline = row.whole("tensor"), row.whole("pipeline")
    context, data = row.whole("context", 1), row.whole("data")
    chunks, expert = row.whole("virtual_pipeline", 1), row.whole("expert", 1)
    batch, size = row.whole("global_batch"), row.whole("micro_batch", 1)
    if batch % data:
        raise UsageError(f"global_batch {batch} is no multiple of data {data}")
    count = max(batch // data // size, 1)
    while batch // data % count:  # no whole micro-batches: as many equal ones as are needed
        count += 1
    recompute, stages = row.text("recompute"), pipeline * chunks
    if not recompute:
        row.assumed.append("recompute")
        recompute = "none"
    elif recompute not in CHOICES["recompute"]:
        known = ", ".join(CHOICES["recompute"])
        raise UsageError(f"there is no recompute '{recompute:.40}'; it is one of {known}")
    elif recompute == "selective" and software == "torchtitan":
        recompute = "alternate"  # its selective modes compute every second layer, or product, again
    plan = Plan(
        data=data,
        tensor=tensor,
        pipeline=pipeline,
        context=context,
        expert=expert,
        sequence_parallel=tensor > 1,
        zero=row.whole("zero", 1),
        virtual_stages=chunks,
        recompute=recompute,
        expert_tensor=1 if shape.experts and tensor > 1 else 0,
        ends_as_layers=bool(shape.layers % stages) and not (shape.layers + 2) % stages,
    )
    step = Step(
        batch=batch,
        sequence=row.whole("seq"),
        micro_batches=count,
        precision=precision,
        causal="half",
    )
    return SymbolicJob(shape, plan, step)
