"""Settings of a release, the time that is left of it, and its two folders, public and private.

The two folders of a release: what may be given away, and what stays with the owner.

``OUT`` holds what may be published, or the report of why nothing may. ``OUT.private`` holds what
must not leave the owner: the trained weights, the split, all drawn graphs, the hashes of real ones,
and the full report. Each stage leaves a mark there, so that a run that was stopped goes on.
"""

import contextlib
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, final

from layerdag.datasets.discovery import FoundJobs, read_folder
from layerdag.errors import DataError, UsageError
from layerdag.graph.formats import program_json
from layerdag.runtime.files import (
    LOCK,
    FolderKind,
    atomic_folder,
    file_lock,
    require_replaceable,
    unexpected_files,
    write_text,
)

MANIFEST = "release.json"
REPORT, FIGURES, VERDICT = "report.html", "report.json", "verdict.txt"
CARD, TABLE, SAMPLES = "croissant.json", "samples.csv", "samples"
REQUEST, NOTES = "request.json", "stages.json"
FOUND, TRAINING, DRAWN, REFUSED, HASHES, FOLDS = (
    "read.json",
    "training",
    "drawn",
    "refused-samples",
    "hashes.json",
    "folds",
)
READ_ME, PUBLIC_READ_ME = "README.txt", "README.md"
_PUBLIC = {
    PUBLIC_READ_ME,
    MANIFEST,
    REPORT,
    FIGURES,
    VERDICT,
    CARD,
    TABLE,
    SAMPLES,
}
_PRIVATE = {
    *(REQUEST, NOTES, FOUND, TRAINING, DRAWN, REFUSED, HASHES, FOLDS),
    *(READ_ME, REPORT, FIGURES),
}
_WARNING = (
    "This folder stays with the owner of the traces. It holds what was learned from them:\n"
    "weights, which graphs were trained on, hashes of real graphs, all drawn graphs.\n"
    "Publish the folder beside it, never this one. It may be deleted; then a release starts anew.\n"
)


def why_not_release_folder(folder: Path) -> str:
    """Return why a folder is not provably a release, or ""."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        proved = {"layerdag_version", "released", "verdict"} <= manifest.keys()
    except (OSError, ValueError, AttributeError, RecursionError):
        proved = False
    if not proved:
        return f"has no {MANIFEST} of a release"
    return unexpected_files(folder, _PUBLIC.__contains__)


def why_not_private_folder(folder: Path) -> str:
    """Return why a folder is not provably the private part of a release, or ""."""
    if not (folder / REQUEST).is_file():
        return f"has no {REQUEST} of a release"
    return unexpected_files(folder, lambda name: name in _PRIVATE or name.startswith("."))


RELEASE = FolderKind("a release", why_not_release_folder)
PRIVATE = FolderKind("the private part of a release", why_not_private_folder)


class PrivateWorkspace:
    """The private folder, held by this process; made by ``held_work``.

    Attributes:
        path: The folder.
        stages: What each finished stage noted.
        is_resumed: Whether an earlier run of the same request had begun here.
    """

    def __init__(self, path: Path, stages: dict[str, Any], *, is_resumed: bool) -> None:
        self.path, self.stages, self.is_resumed = path, stages, is_resumed

    def note(self, stage: str, facts: Mapping[str, Any]) -> None:
        """Note that a stage is done, with what later ones need of it."""
        self.stages[stage] = dict(facts)
        write_text(self.path / NOTES, json.dumps(self.stages, indent=1) + "\n")

    def inside(self, name: str) -> "PrivateWorkspace":
        """Return a folder inside as one with stages of its own, held as long as this one."""
        path = self.path / name
        path.mkdir(parents=True, exist_ok=True)
        return PrivateWorkspace(path, _noted(path), is_resumed=self.is_resumed)

    def require_same(self, stage: str, key: str, found: str) -> None:
        """Raise UsageError if a fact that an earlier run noted is another one now."""
        noted = self.stages.get(stage, {}).get(key, found)
        if noted != found:
            raise UsageError(
                f"{self.path}: belongs to a release of other traces than there are now; name "
                "another folder with --out, or start anew with --overwrite."
            )


@contextlib.contextmanager
def workspace_lock(
    path: Path, out: Path, request: Mapping[str, Any], *, overwrite: bool
) -> Iterator[PrivateWorkspace]:
    """Hold the private folder for this process; take up what an earlier run of it did.

    Raises:
        UsageError: If it holds something else, another request, or is in use; or if ``out`` holds
            something that may not be replaced.
    """
    wanted = json.loads(json.dumps(request))
    with file_lock(path.with_name(f".{path.name}.lock"), guarded=path):
        if path.is_dir() and any(p.name != LOCK for p in path.iterdir()):
            resumed = _is_same(path, wanted, overwrite=overwrite)
        elif path.exists() and not path.is_dir():
            raise UsageError(f"{path}: is a file; move it away.")
        else:
            resumed = False
        require_replaceable(out, RELEASE, overwrite=overwrite or resumed)
        if not resumed:
            # With its request from the first moment: it proves whose the folder is.
            with atomic_folder(path, PRIVATE, overwrite=True) as draft:
                (draft / REQUEST).write_text(json.dumps(wanted, indent=1) + "\n")
                (draft / READ_ME).write_text(_WARNING)
        yield PrivateWorkspace(path, _noted(path), is_resumed=resumed)


def _is_same(path: Path, wanted: Mapping[str, Any], *, overwrite: bool) -> bool:
    """Return whether an earlier run asked for the same; False if it is to be discarded."""
    doubt = why_not_private_folder(path)
    if doubt:
        raise UsageError(f"{path}: {doubt}, so it is never replaced; name another folder.")
    try:
        found = json.loads((path / REQUEST).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        found = {}
    if found == wanted:
        return not overwrite
    if overwrite:
        return False
    keys = found.keys() | wanted.keys() if isinstance(found, dict) else set(wanted)
    key = next((k for k in sorted(keys) if found.get(k) != wanted.get(k)), "request")
    raise UsageError(
        f"{path}: an earlier run had '{key}' {found.get(key)}, not {wanted.get(key)}; repeat its "
        "settings to go on, name another folder with --out, or start anew with --overwrite."
    )


def _noted(path: Path) -> dict[str, Any]:
    """Return what finished stages noted; a damaged file counts as none."""
    try:
        noted = json.loads((path / NOTES).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return noted if isinstance(noted, dict) else {}


STAGES = ("read", "train", "sample", "evaluate")
LEAST_BUDGET = 20.0
MOST_FOLDS = 20


@dataclass(frozen=True)
class ReleaseSettings:
    """How to make a release.

    Attributes:
        traces: Folder of traces or flow graphs, in any format that is read.
        out: Folder of the release.
        budget: Wall-clock seconds for everything, about.
        num: Samples wanted; fewer are kept if time runs out.
        seed: Of the split, of training and of sampling.
        labels: Label file (CSV, JSON or JSON Lines); None takes what lies beside the traces.
        max_nodes: Larger jobs are left out, and listed.
        steps: Most optimizer steps.
        temperature: Of sampling; None is the model's own.
        best_of: Graphs drawn for each sample; None is the model's own number.
        license: Of the samples, for the data card; an SPDX name or a URL.
        creator: Who publishes the samples, for the data card.
        url: Where they are published, for the data card.
        cite: How to cite them, for the data card.
        cross_fit: Folds of runs that are held out in turn, in each of which a model is trained and
            sampled for the membership attacks. None is 5 (fewer below 40 runs) if there are too
            few runs to tell otherwise and the budget allows; 0 is none.
        until: The last stage of ``STAGES`` to run; the same call goes on from there.
        overwrite: Whether another release, or another unfinished one, may be replaced.

    Raises:
        UsageError: If a value is out of bounds.
    """

    traces: Path
    out: Path
    budget: float = 900.0
    num: int = 200
    seed: int = 0
    labels: Path | None = None
    max_nodes: int = 2000
    steps: int = 1200
    temperature: float | None = None
    best_of: int | None = None
    license: str = ""
    creator: str = ""
    url: str = ""
    cite: str = ""
    cross_fit: int | None = None
    until: str = STAGES[-1]
    overwrite: bool = False

    def __post_init__(self) -> None:
        for name in ("num", "max_nodes", "steps", "best_of"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"'{name}' must be at least 1, found {value}.")
        if not LEAST_BUDGET <= self.budget < float("inf"):
            raise UsageError(
                f"'budget' must be at least {LEAST_BUDGET:.0f} seconds, found {self.budget:g}."
            )
        if self.seed < 0:
            raise UsageError(f"'seed' must not be negative, found {self.seed}.")
        if self.temperature is not None and not 0 < self.temperature <= 10:
            raise UsageError(f"'temperature' must lie in (0, 10], found {self.temperature:g}.")
        if self.until not in STAGES:
            raise UsageError(f"'until' must be one of {', '.join(STAGES)}, found {self.until!r}.")
        if self.cross_fit is not None and not (
            self.cross_fit == 0 or 2 <= self.cross_fit <= MOST_FOLDS
        ):
            raise UsageError(
                f"'cross_fit' must be 0 for none, or from 2 to {MOST_FOLDS}, found "
                f"{self.cross_fit}."
            )
        self._check_places()

    def _check_places(self) -> None:
        traces, out = self.traces.resolve(), self.out.resolve()
        if not traces.is_dir():
            what = "is a file; name the folder that holds it" if traces.exists() else (
                "there is no such folder; check the path"
            )  # fmt: skip
            raise UsageError(f"{self.traces}: {what}.")
        if out == traces or traces in out.parents or out in traces.parents:
            raise UsageError(
                f"{self.out}: the release must lie outside of the traces in {self.traces}; name "
                "another folder with --out."
            )

    @property
    def private(self) -> Path:
        """Folder beside the release that stays with the owner."""
        return self.out.with_name(f"{self.out.name}.private")

    def request(self) -> dict[str, object]:
        """Return what determines the model, besides the traces; a later run may change the rest."""
        return {
            "seed": self.seed,
            "max_nodes": self.max_nodes,
            "steps": self.steps,
        }


def read_jobs(settings: ReleaseSettings) -> FoundJobs:
    """Read everything below the folder of traces of a release; see ``read_folder``.

    Raises:
        DataError: As ``read_folder``, and if it holds forward programs.
    """
    found = read_folder(
        settings.traces, settings.labels, max_nodes=settings.max_nodes, as_jobs=True
    )
    if set(found.graphs[0].categories) == set(program_json.ATTRIBUTES):
        raise DataError(
            f"{settings.traces}: holds forward programs, and samples of a release would have their "
            "calls renamed, so that none of them runs. Make traces of the programs ('layerdag "
            "capture FILE.program.json --out PREFIX'), and release those."
        )
    return found


T = TypeVar("T")


@final
class TimeLeft:
    """Runs parts of a stage while there is time, and leaves out those that no longer fit.

    A part cannot be stopped inside. One that can be left out is begun only where as much time is
    left as the longest part took so far.

    Args:
        seconds: That all parts may take together.
    """

    def __init__(self, seconds: float = math.inf) -> None:
        self._end = time.monotonic() + seconds
        self._longest = 0.0
        self._left_out: list[str] = []

    @property
    def left_out(self) -> tuple[str, ...]:
        """What did not fit, in words."""
        return tuple(self._left_out)

    def always(self, part: Callable[[], T]) -> T:
        """Return what a part gives that cannot be left out."""
        began = time.monotonic()
        found = part()
        self._longest = max(self._longest, time.monotonic() - began)
        return found

    def if_time(self, what: str, part: Callable[[], T]) -> T | None:
        """Return what a part gives; None if it does not fit, and it counts as left out.

        Args:
            what: The part in words.
            part: Computes it.
        """
        if time.monotonic() + self._longest >= self._end:
            self._left_out.append(what)
            return None
        return self.always(part)
