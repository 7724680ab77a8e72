"""Loggers of training: JSON Lines, console, Weights & Biases."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from layerdag.errors import ConfigError, DataError
from layerdag.runtime.files import write_text


@runtime_checkable
class Logger(Protocol):
    """Takes the figures and pictures of a run."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Take figures by name."""
        ...

    def picture(self, step: int, name: str, file: Path) -> None:
        """Log an image file."""
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
    """One readable line per validation; other figures are left to the file."""

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
    """Return the lines of an earlier run up to ``step``; a torn last line is dropped.

    Raises:
        DataError: If another line is not of a log.
    """
    if step == 0 or not file.is_file():
        return []
    kept = []
    lines = file.read_bytes().split(b"\n")
    for number, line in enumerate(lines, start=1):
        try:
            at = json.loads(line)["step"]
            if at <= step:
                kept.append(line.decode() + "\n")
        except (ValueError, TypeError, KeyError, RecursionError):
            if number < len(lines):  # the last one ends without a line feed
                raise DataError(
                    f"{file}, line {number}: is not of the log of a run; move the file away to go "
                    "on with a new log."
                ) from None
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


DISABLED = "disabled"
WANDB_MODES = (DISABLED, "offline", "online")
# YAML reads off, false and no as the boolean, null as None.
_OFF = (False, None, "off", "false", "no", "none", "")
# What the client would add by itself: host, user, git state, command line, system load, output.
# Names differ between versions of wandb; those that the installed one lacks are left out.
_QUIET: Mapping[str, Any] = {
    "silent": True,
    "console": "off",
    "disable_code": True,
    "disable_git": True,
    "disable_job_creation": True,
    "finish_timeout": 60.0,
    "host": "private",
    "x_disable_machine_info": True,
    "x_disable_meta": True,
    "x_disable_stats": True,
}


def wandb_mode(value: object) -> str:
    """Return the mode that ``logger.wandb`` means: one of ``WANDB_MODES``.

    Raises:
        ConfigError: If it means none, or a mode is asked for and wandb is not installed.
    """
    mode = DISABLED if value in _OFF else value
    if mode == "auto":
        raise ConfigError(
            "logger.wandb=auto is gone, because it sent figures wherever a key was set; write "
            "logger.wandb=online or logger.wandb=offline, or leave it out to keep it disabled."
        )
    if not isinstance(mode, str) or mode not in WANDB_MODES:
        raise ConfigError(f"logger.wandb is one of {', '.join(WANDB_MODES)}; found {value!r}.")
    if mode != DISABLED and find_spec("wandb") is None:
        raise ConfigError(
            f"logger.wandb={mode} needs the package wandb; install it with "
            "pip install wandb, or leave the setting out."
        )
    return mode


class WandbLogger:
    """Weights & Biases. The first error of its client ends the logger, not the run."""

    def __init__(
        self,
        directory: Path,
        project: str,
        run_config: Mapping[str, Any],
        mode: str,
        write: Callable[[str], object],
    ) -> None:
        self._write = write
        self._client: Any = None
        self._run: Any = None
        write(_announcement(directory, project, mode))
        self._guarded(lambda: self._start(directory, project, run_config, mode))

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Hand figures over."""
        if self._run is not None:
            self._guarded(lambda: self._run.log(dict(values), step=step))

    def picture(self, step: int, name: str, file: Path) -> None:
        """Hand a picture over."""
        if self._run is not None:
            self._guarded(lambda: self._run.log({name: self._client.Image(str(file))}, step=step))

    def close(self) -> None:
        """Finish; the client gets a minute for what is still to be sent."""
        if self._run is not None:
            self._guarded(lambda: self._run.finish())

    def _start(
        self, directory: Path, project: str, run_config: Mapping[str, Any], mode: str
    ) -> None:
        import wandb

        known = getattr(wandb.Settings, "model_fields", {})
        quiet = {name: value for name, value in _QUIET.items() if name in known}
        self._client = wandb
        self._run = wandb.init(
            project=project,
            dir=str(directory),
            config=dict(run_config),
            mode="online" if mode == "online" else "offline",
            settings=wandb.Settings(**quiet),
        )

    def _guarded(self, action: Callable[[], object]) -> None:
        """Do it; whatever the client raises, figures are not worth the run."""
        try:
            action()
        except Exception as error:
            self._run = None
            reason = " ".join(str(error).split())[:200] or "no reason given"
            self._write(
                f"warning: Weights & Biases failed ({type(error).__name__}: {reason}); "
                "training goes on without it, and train.jsonl holds every figure.\n"
            )


def _announcement(directory: Path, project: str, mode: str) -> str:
    what = "figures, settings and pictures of sampled graphs"
    if mode == "online":
        return f"wandb: sends {what} to project '{project}', and keeps them in {directory}/wandb\n"
    return f"wandb: writes {what} to {directory}/wandb; nothing is sent (wandb sync would)\n"


def open_loggers(
    settings: LoggerSettings,
    directory: Path,
    config: Mapping[str, Any],
    write: Callable[[str], object],
) -> list[Logger]:
    """Return the loggers of a run beside its JSONL file."""
    loggers: list[Logger] = [ConsoleLogger(write)] if settings.console else []
    if settings.wandb != DISABLED:
        loggers.append(WandbLogger(directory, settings.project, config, settings.wandb, write))
    return loggers
