"""The two folders of a release: what may be given away, and what stays with the owner.

``OUT`` holds what may be published, or the report of why nothing may. ``OUT.private`` holds what
must not leave the owner: the trained weights, the split, all drawn graphs, the hashes of real ones,
and the full report. Each stage leaves a mark there, so that a run that was stopped goes on.
"""

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from layerdag.errors import UsageError
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
