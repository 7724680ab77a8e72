"""Figures for Weights & Biases, on request only; no error of its client can end a run."""

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from layerdag.errors import ConfigError

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
    """Weights & Biases. The first error of its client is reported and ends the logger, not the run.

    Args:
        directory: Folder of the run; the client writes below its ``wandb``.
        project: Name of the project.
        run_config: Settings of the run that may be shown.
        mode: "online" or "offline".
        write: Takes lines for the user, such as ``sys.stderr.write``.
    """

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
    """Return what is written and sent, in one line."""
    what = "figures, settings and pictures of sampled graphs"
    if mode == "online":
        return f"wandb: sends {what} to project '{project}', and keeps them in {directory}/wandb\n"
    return f"wandb: writes {what} to {directory}/wandb; nothing is sent (wandb sync would)\n"
