"""The folder of a run: held by one process, and replaced only where it is provably a run."""

import contextlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from layerdag.errors import CheckpointError, UsageError
from layerdag.runtime.files import LOCK, discard_folder, file_lock, recover, require_replaceable
from layerdag.training.checkpoint import BEST, CHECKPOINT, LAST, LOG, META, PICTURES, RUN_FILE
from layerdag.training.loggers import JsonlLogger
from layerdag.training.run_file import write_run_file

_PICTURE = re.compile(r"samples-\d{6,}\.png")


@contextlib.contextmanager
def hold_run(directory: Path, *, overwrite: bool, goes_on: bool = False) -> Iterator[None]:
    """Hold a run's folder for this process, and put in order what a killed one left there.

    ``goes_on`` says that this is the run that was left there.

    Raises:
        UsageError: If another process is training there, it is a file, or it holds what may not be
            replaced.
        CheckpointError: If there is no run to go on with.
    """
    if directory.exists() and not directory.is_dir():
        raise UsageError(f"{directory}: is a file; name a folder for the run with out=...")
    try:
        with file_lock(directory / LOCK, guarded=directory):
            for name in (BEST, LAST, LOG, RUN_FILE):
                recover(directory / name)
            if goes_on:
                require_resumable(directory)
            else:
                require_free(directory, overwrite=overwrite)
            yield
    finally:
        with contextlib.suppress(OSError):  # not empty: the usual case
            directory.rmdir()


def run_of(path: Path) -> Path:
    """Return the folder of the run that ``path`` names: the folder itself, or its ``last``."""
    inside = path.name in (BEST, LAST) and not (path / LAST).is_dir()
    return path.parent if inside else path


def require_resumable(directory: Path) -> None:
    """Raise CheckpointError unless a run was left in ``directory``."""
    if not (directory / LAST / META).is_file():
        raise CheckpointError(
            f"{directory}: holds no run to go on with ({LAST}/{META} is missing); name the folder "
            "of a run, or start one with out=..."
        )


def require_free(directory: Path, *, overwrite: bool) -> None:
    """Raise UsageError if a new run in ``directory`` would replace what it may not.

    What an older run left there may be replaced if the user allows it and it is provably one.
    Other files are not in the way: a run leaves them alone.
    """
    names = [name for name in (BEST, LAST, *_PROOFS) if (directory / name).exists()]
    if names and not overwrite:
        on = f"go on with it (resume={directory}), " if LAST in names else ""
        raise UsageError(
            f"{directory}: holds a run already ({', '.join(names)}); {on}name another folder with "
            "out=..., or allow that it is replaced with overwrite=true."
        )
    for name in (BEST, LAST):
        require_replaceable(directory / name, CHECKPOINT, overwrite=True)
    for name, proof in _PROOFS.items():
        if name in names and not proof(directory / name):
            raise UsageError(
                f"{directory / name}: was not written by a run of layerdag, so it is never "
                "replaced; name another folder with out=..."
            )


def begin_run(
    directory: Path, record: Mapping[str, Any], resumed_step: int | None = None
) -> JsonlLogger:
    """Remove what an older run left, write what is on record, and return the log.

    ``resumed_step`` is None for a new run; an empty record writes no ``run.json``.
    """
    if resumed_step is None:
        clear_run(directory)
    if record:
        write_run_file(directory, record)
    return JsonlLogger(directory / LOG, resumed_step or 0)


def clear_run(directory: Path) -> None:
    """Remove what an older run left in ``directory``, after ``require_free``."""
    for name in (BEST, LAST):
        discard_folder(directory / name)
    for name in _PROOFS:
        (directory / name).unlink(missing_ok=True)
    if (directory / PICTURES).is_dir():
        for path in (directory / PICTURES).iterdir():
            if _PICTURE.fullmatch(path.name):
                path.unlink()


def _is_log(file: Path) -> bool:
    try:
        with file.open(encoding="utf-8") as lines:
            first = lines.readline(1_000_000)
        return not first or "step" in json.loads(first)
    except (OSError, ValueError, TypeError, RecursionError):
        return False


def _is_run_file(file: Path) -> bool:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(content, dict) and {"notice", "config"} <= content.keys()


_PROOFS: dict[str, Callable[[Path], bool]] = {LOG: _is_log, RUN_FILE: _is_run_file}
