"""Runs of a table: what was asked for, what came out, how long it took, and on what."""

import json
import os
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from layerdag.runtime.files import write_text

Figures = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """One row that a table is made of.

    Attributes:
        name: Unique in its table.
        learner: What was fitted.
        seed: Of the fit.
        config: Everything else that the figures depend on, as JSON-serializable data.
    """

    name: str
    learner: str
    seed: int
    config: Mapping[str, Any]


@dataclass(frozen=True)
class Record:
    """A finished run.

    Attributes:
        table: Name of the table.
        run: What was asked for.
        figures: What came out.
        seconds: Wall-clock seconds of the whole run.
        processor_seconds: The same of the process.
        hardware: Machine, cores, threads, versions and load.
    """

    table: str
    run: Run
    figures: Figures
    seconds: float
    processor_seconds: float
    hardware: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_line(cls, line: str) -> "Record":
        """Return the record that a line of a file holds."""
        found = json.loads(line)
        return cls(**{**found, "run": Run(**found["run"])})

    def to_line(self) -> str:
        """Return the record as a line of a file."""
        return json.dumps(asdict(self), sort_keys=True) + "\n"


@dataclass(frozen=True)
class Store:
    """The finished runs of a table, one line each in a file of JSON Lines.

    Attributes:
        table: Name of the table.
        folder: Where the file ``TABLE.jsonl`` lies.
    """

    table: str
    folder: Path

    def records(self) -> list[Record]:
        """Return what is finished, by name."""
        if not self.file.is_file():
            return []
        lines = self.file.read_text(encoding="utf-8").splitlines()
        return sorted(map(Record.from_line, lines), key=lambda record: record.run.name)

    @property
    def file(self) -> Path:
        """The file of the table."""
        return self.folder / f"{self.table}.jsonl"

    def made(self, run: Run, compute: Callable[[Run], Figures]) -> Record:
        """Return the run's record: the finished one if its config is the same, or a new one."""
        records = {record.run.name: record for record in self.records()}
        if run.name in records and _plain(records[run.name].run) == _plain(run):
            return records[run.name]
        began, spent = time.monotonic(), time.process_time()
        figures = compute(run)
        record = Record(
            self.table,
            run,
            figures,
            round(time.monotonic() - began, 1),
            round(time.process_time() - spent, 1),
            hardware(),
        )
        self.folder.mkdir(parents=True, exist_ok=True)
        records[run.name] = record
        write_text(self.file, "".join(records[name].to_line() for name in sorted(records)))
        return record


def hardware() -> dict[str, Any]:
    """Return what figures of time depend on."""
    return {
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "load": [round(load, 1) for load in os.getloadavg()],
    }


def _plain(run: Run) -> object:
    """Return a run as a file gives it back."""
    return json.loads(json.dumps(asdict(run)))
