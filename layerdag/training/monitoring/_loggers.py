"""Where the figures of a run go: a JSONL file always, and a console."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from layerdag._runtime import write_text


@runtime_checkable
class Logger(Protocol):
    """Takes the figures and pictures of a run."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Take figures by name."""
        ...

    def picture(self, step: int, name: str, file: Path) -> None:
        """Take a picture that lies in ``file``."""
        ...

    def close(self) -> None:
        """Let go of files and connections."""
        ...


class JsonlLogger:
    """One JSON object a line in ``file``; lines after ``resumed_step`` are dropped on resuming."""

    def __init__(self, file: Path, resumed_step: int = 0) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, "".join(_lines_until(file, resumed_step)))
        self._folder = file.parent
        self._stream = file.open("a", encoding="utf-8")

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Write one line, at once; null for what is no number."""
        plain = {name: value if math.isfinite(value) else None for name, value in values.items()}
        self._stream.write(json.dumps({"step": step, **plain}) + "\n")
        self._stream.flush()

    def picture(self, step: int, name: str, file: Path) -> None:
        """Write where the picture lies, seen from the log."""
        inside = file.is_relative_to(self._folder)
        path = file.relative_to(self._folder).as_posix() if inside else file.name
        self._stream.write(json.dumps({"step": step, "picture": name, "file": path}) + "\n")
        self._stream.flush()

    def close(self) -> None:
        """Close the file."""
        self._stream.close()


class ConsoleLogger:
    """One readable line per validation; other figures are left to the file.

    Args:
        write: Takes the text, such as ``sys.stderr.write``.
    """

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Write the line if the values are those of a validation."""
        shown = {k.removeprefix("validation/"): v for k, v in values.items() if "validation/" in k}
        if shown:
            text = "  ".join(f"{name} {value:.4g}" for name, value in shown.items())
            self._write(f"step {step}: {text}\n")

    def picture(self, step: int, name: str, file: Path) -> None:
        """Say where the picture lies."""
        self._write(f"step {step}: {name} in {file}\n")

    def close(self) -> None:
        """There is nothing to let go of."""


def _lines_until(file: Path, step: int) -> list[str]:
    """Return the lines of an earlier run up to ``step``; a torn last line is dropped."""
    if step == 0 or not file.is_file():
        return []
    kept = []
    for line in file.read_text(encoding="utf-8").splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict) and entry.get("step", 0) <= step:
            kept.append(line + "\n")
    return kept


@dataclass(frozen=True)
class LoggerSettings:
    """Where figures go, beside the JSONL file that is always written.

    Attributes:
        console: One line per validation on standard error.
        wandb: "disabled", "offline" or "online".
        project: Weights & Biases project.
        sample_graphs: Graphs sampled at each validation, for validity, speed and pictures.
    """

    console: bool = True
    wandb: str = "disabled"
    project: str = "layerdag"
    sample_graphs: int = 4
