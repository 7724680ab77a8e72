"""The two folders of a release: what may be given away, and what stays with the owner.

``OUT`` holds what may be published, or the report of why nothing may. ``OUT.private`` holds what
must not leave the owner: the trained weights, the split, all drawn graphs, the hashes of real ones,
and the full report. Each stage leaves a mark there, so that a run that was stopped goes on.
"""

import contextlib
import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from layerdag._runtime import (
    LOCK,
    FolderKind,
    locked,
    require_replaceable,
    strangers,
    write_text,
)
from layerdag.errors import UsageError

MANIFEST = "release.json"
REPORT, FIGURES, VERDICT = "report.html", "report.json", "verdict.txt"
CARD, TABLE, SAMPLES = "croissant.json", "samples.csv", "samples"
WEIGHTS, MODEL_CARD = "weights", "weights.md"
REQUEST, NOTES = "request.json", "stages.json"
FOUND, TRAINING, DRAWN, REFUSED, HASHES, STUDENT, SHADOWS, FOLDS = (
    "read.json",
    "training",
    "drawn",
    "refused-samples",
    "hashes.json",
    "student",
    "shadows",
    "folds",
)
READ_ME = "README.txt"
_PUBLIC = {MANIFEST, REPORT, FIGURES, VERDICT, CARD, TABLE, SAMPLES, WEIGHTS, MODEL_CARD}
_PRIVATE = {
    *(REQUEST, NOTES, FOUND, TRAINING, DRAWN, REFUSED, HASHES, STUDENT, SHADOWS, FOLDS),
    *(READ_ME, REPORT, FIGURES),
}
_WARNING = (
    "This folder stays with the owner of the traces. It holds what was learned from them:\n"
    "weights, which graphs were trained on, hashes of real graphs, all drawn graphs.\n"
    "Publish the folder beside it, never this one. It may be deleted; then a release starts anew.\n"
)


def doubt_release(folder: Path) -> str:
    """Return why a folder is not provably a release, or ""."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        proved = {"layerdag_version", "released", "verdict"} <= manifest.keys()
    except (OSError, ValueError, AttributeError, RecursionError):
        proved = False
    if not proved:
        return f"has no {MANIFEST} of a release"
    return strangers(folder, _PUBLIC.__contains__)


def doubt_private(folder: Path) -> str:
    """Return why a folder is not provably the private part of a release, or ""."""
    if not (folder / REQUEST).is_file():
        return f"has no {REQUEST} of a release"
    return strangers(folder, lambda name: name in _PRIVATE or name.startswith("."))


RELEASE = FolderKind("a release", doubt_release)
PRIVATE = FolderKind("the private part of a release", doubt_private)


class Work:
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

    def inside(self, name: str) -> "Work":
        """Return a folder inside as one with stages of its own, held as long as this one."""
        path = self.path / name
        path.mkdir(parents=True, exist_ok=True)
        return Work(path, _noted(path), is_resumed=self.is_resumed)

    def require_same(self, stage: str, key: str, found: str) -> None:
        """Raise UsageError if a fact that an earlier run noted is another one now."""
        noted = self.stages.get(stage, {}).get(key, found)
        if noted != found:
            raise UsageError(
                f"{self.path}: belongs to a release of other traces than there are now; name "
                "another folder with --out, or start anew with --overwrite."
            )


@contextlib.contextmanager
def held_work(
    path: Path, out: Path, request: Mapping[str, Any], *, overwrite: bool
) -> Iterator[Work]:
    """Hold the private folder for this process; take up what an earlier run of it did.

    Raises:
        UsageError: If it holds something else, another request, or is in use; or if ``out`` holds
            something that may not be replaced.
    """
    wanted = json.loads(json.dumps(request))
    with locked(path.with_name(f".{path.name}.lock"), guarded=path):
        if path.is_dir() and any(p.name != LOCK for p in path.iterdir()):
            resumed = _is_same(path, wanted, overwrite=overwrite)
        elif path.exists() and not path.is_dir():
            raise UsageError(f"{path}: is a file; move it away.")
        else:
            resumed = False
        require_replaceable(out, RELEASE, overwrite=overwrite or resumed)
        if not resumed:
            shutil.rmtree(path, ignore_errors=True)
            path.mkdir(parents=True)
            write_text(path / REQUEST, json.dumps(wanted, indent=1) + "\n")
            write_text(path / READ_ME, _WARNING)
        yield Work(path, _noted(path), is_resumed=resumed)


def _is_same(path: Path, wanted: Mapping[str, Any], *, overwrite: bool) -> bool:
    """Return whether an earlier run asked for the same; False if it is to be discarded."""
    doubt = doubt_private(path)
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
