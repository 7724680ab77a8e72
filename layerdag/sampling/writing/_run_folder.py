"""The folder that the processes of one run fill together."""

import contextlib
import re
import time
from collections.abc import Iterator
from pathlib import Path

from layerdag._runtime import LOCK, locked, strangers
from layerdag.datasets.samples import RUN, SampleRun, is_run
from layerdag.errors import DataError, UsageError

_KNOWN = re.compile(
    r"samples\.json|part-\d{6,}\.(tar|parquet|json)"
    r"|\.(samples|part-\d{6,})\.(tar|parquet|json)\.draft"
)
_PATIENCE_S, _PAUSE_S = 60.0, 0.05


def open_run(out: Path, run: SampleRun, *, overwrite: bool) -> None:
    """Make ``out`` a folder of ``run``; parts of the same run that lie there stay.

    A run may be made longer. Several processes may open one run at once.

    Args:
        out: The folder.
        run: What it is to hold.
        overwrite: Whether the samples of another run that lie there may be discarded.

    Raises:
        UsageError: If something lies there that may not be discarded.
    """
    if out.is_file():
        raise UsageError(f"{out}: is a file; name a folder for samples.")
    with _alone(out):
        doubt = _doubt(out)
        if doubt:
            raise UsageError(
                f"{out}: {doubt}, so no samples are written there; name an empty or a new folder."
            )
        found = SampleRun.read(out) if is_run(out) else None
        difference = "" if found is None else _difference(found, run)
        if difference and not overwrite:
            raise UsageError(
                f"{out}: holds samples with {difference}; repeat their settings to go on, name "
                "another folder, or discard them with overwrite=true."
            )
        if difference:
            _discard(out)
        if found is None or difference or found.num < run.num:
            run.write(out)


def _doubt(out: Path) -> str:
    """Return why a folder is neither empty nor provably one of samples in parts, or ""."""
    doubt = strangers(out, lambda name: bool(_KNOWN.fullmatch(name)))
    if doubt:
        return doubt
    if is_run(out):
        try:
            SampleRun.read(out)
        except DataError:
            return f"has a {RUN} that is not of samples"
        return ""
    part = next((path.name for path in sorted(out.glob("part-*"))), None)
    return "" if part is None else f"holds '{part}' without {RUN}"


def _discard(out: Path) -> None:
    """Remove the parts, and then the file that proves what they are."""
    for path in out.glob("part-*"):
        path.unlink()
    (out / RUN).unlink()


def _difference(found: SampleRun, run: SampleRun) -> str:
    """Return how a run differs from the wanted one, "" if it is the same or a shorter one."""
    was = {**found.request, **_sizes(found)}
    now = {**run.request, **_sizes(run)}
    for key in sorted(was.keys() | now.keys()):
        if was.get(key) != now.get(key):
            return f"{key} {was.get(key)}, not {now.get(key)}"
    return f"num {found.num}, more than {run.num}" if found.num > run.num else ""


def _sizes(run: SampleRun) -> dict[str, object]:
    """Return what fixes which sample lies in which file."""
    return {"seed": run.seed, "part_size": run.part_size, "format": run.file_format}


@contextlib.contextmanager
def _alone(out: Path) -> Iterator[None]:
    """Hold the lock of the folder; waits for another process of the run that opens it, too."""
    until = time.monotonic() + _PATIENCE_S
    while True:
        try:
            held = locked(out / LOCK, guarded=out)
            held.__enter__()
            break
        except UsageError:
            if time.monotonic() > until:
                raise
            time.sleep(_PAUSE_S)
    with contextlib.ExitStack() as stack:
        stack.push(held)
        yield
