"""The demo's folder: a second run replaces what the first wrote there, and nothing else."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

from layerdag._runtime import LOCK, FolderKind, locked, require_replaceable
from layerdag.errors import UsageError
from layerdag.report import require_replaceable_report
from layerdag.sampling import doubt_sampled_jobs
from layerdag.training import BEST, LAST, require_free

TRAINING, SAMPLES, REPORT = "training", "samples", "report.html"
DEMO_SAMPLES = FolderKind("samples of the demo", doubt_sampled_jobs)
MARK = {"demo": True}
"""What the configuration of a demo's checkpoints says."""


@contextlib.contextmanager
def held_demo(out: Path) -> Iterator[None]:
    """Hold the demo's folder for this process, after a look at what lies there.

    Raises:
        UsageError: If something there that would be replaced is not provably of a demo, or another
            process is at work there.
    """
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out}: is a file; name a folder with --out.")
    with locked(out / LOCK, guarded=out):
        require_free(out / TRAINING, overwrite=True)
        for name in (BEST, LAST):
            _require_of_a_demo(out / TRAINING / name)
        require_replaceable(out / SAMPLES, DEMO_SAMPLES, overwrite=True)
        _require_own_report(out / REPORT)
        yield


def _require_of_a_demo(checkpoint: Path) -> None:
    """Raise UsageError if a checkpoint is there that another training made."""
    if not checkpoint.is_dir() or not any(checkpoint.iterdir()):
        return
    try:
        run = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))["run"]
        made = MARK.items() <= run.items()
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        made = False
    if not made:
        raise UsageError(
            f"{checkpoint}: was not made by the demo, so it is never replaced by it; name another "
            "folder with --out."
        )


def _require_own_report(page: Path) -> None:
    """Raise UsageError if a page is there that has no figures of the demo beside it."""
    require_replaceable_report(page)
    if page.exists() and not page.with_suffix(".json").exists():
        raise UsageError(
            f"{page}: has no figures beside it, so it is not the demo's and never replaced; name "
            "another folder with --out."
        )
