"""The folder of samples while it is filled: what is finished stays if the run is stopped.

Samples are written to ``<out>.partial`` with one line each in a journal, and the folder is put in
its place when the manifest is written. A run that was stopped, even killed, goes on from the
journal when the same is asked for again.
"""

import contextlib
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from layerdag._runtime import (
    FolderKind,
    install_folder,
    locked,
    require_replaceable,
    strangers,
    write_text,
)
from layerdag.errors import UsageError
from layerdag.sampling import sample_name

MANIFEST, JOURNAL = "manifest.json", "unfinished.jsonl"
_NAME = re.compile(r"sample-\d{5,9}")
# A sample's file or folder in an unfinished folder, or the draft of one.
_PIECE = re.compile(r"sample-\d{5,9}(\.graphml|\.json)?|\.sample-\d{5,9}\.\w+\.draft")


def doubt_samples(folder: Path) -> str:
    """Return why a folder is not provably one that sampling wrote, or ""."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        names = {str(entry["name"]) for entry in manifest["samples"]}
        proved = {"layerdag_version", "checkpoint_sha256", "format"} <= manifest.keys()
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return f"has no {MANIFEST} of samples"
    if not proved or not all(map(_NAME.fullmatch, names)):
        return f"has a {MANIFEST} that is not of samples"
    files = {f"{name}{suffix}" for name in names for suffix in (".graphml", ".json")}
    doubt = strangers(folder, (names | files | {MANIFEST, JOURNAL}).__contains__)
    inside = (
        strangers(folder / n, _is_trace_of(n)) for n in sorted(names) if (folder / n).is_dir()
    )
    return doubt or next(filter(None, inside), "")


def doubt_sampled_jobs(folder: Path) -> str:
    """Return why a folder is not provably one of sampled jobs without a manifest, or ""."""
    names = sorted(path.name for path in folder.iterdir() if path.is_dir())
    doubt = strangers(folder, lambda name: bool(_NAME.fullmatch(name)) and name in names)
    inside = (strangers(folder / name, _is_trace_of(name)) for name in names)
    return doubt or next(filter(None, inside), "")


def _doubt_unfinished(folder: Path) -> str:
    """Return why a folder is not provably one that a stopped sampling left, or ""."""
    if _header(folder) is None:
        return f"has no {JOURNAL} of an unfinished sampling"
    return strangers(
        folder, lambda name: name in (MANIFEST, JOURNAL) or bool(_PIECE.fullmatch(name))
    )


SAMPLES = FolderKind("samples", doubt_samples)


class SampleFolder:
    """An unfinished folder of samples, held by this process; made by ``filling``.

    Attributes:
        path: The folder.
        entries: What the manifest will say of each finished sample, in order.
    """

    def __init__(self, path: Path, out: Path, entries: list[dict[str, Any]]) -> None:
        self.path, self.entries = path, entries
        self._out = out

    def add(self, entry: Mapping[str, Any]) -> None:
        """Note that the files of the next sample are written."""
        line = {"entry": dict(entry), "sha256": _digest(self.path, str(entry["name"]))}
        with (self.path / JOURNAL).open("a", encoding="utf-8") as journal:
            journal.write(json.dumps(line) + "\n")
        self.entries.append(dict(entry))

    def install(self, manifest: Mapping[str, Any], *, overwrite: bool) -> None:
        """Write the manifest and put the folder in its place."""
        write_text(self.path / MANIFEST, json.dumps(manifest, indent=1) + "\n")
        install_folder(self.path, self._out, SAMPLES, overwrite=overwrite)
        # The journal goes last: without it, a finished folder could not be told from a torn one.
        (self._out / JOURNAL).unlink(missing_ok=True)


@contextlib.contextmanager
def filling(
    out: Path, request: Mapping[str, Any], num: int, *, overwrite: bool
) -> Iterator[SampleFolder]:
    """Yield the unfinished folder of ``out``, with what an earlier run of ``request`` finished.

    Args:
        out: Where the samples shall lie in the end.
        request: All that determines the samples, as JSON-serializable data.
        num: Number of samples wanted.
        overwrite: Whether older samples, or those of another unfinished run, may be replaced.

    Raises:
        UsageError: If something stands at ``out`` that may not be replaced, the unfinished run was
            another one, or another process is sampling into ``out``.
        KeyboardInterrupt: As it came, with a sentence on what is kept.
    """
    real = Path(os.path.realpath(out))
    partial = real.with_name(f"{real.name}.partial")
    require_replaceable(out, SAMPLES, overwrite=overwrite)
    with locked(real.with_name(f".{real.name}.lock"), guarded=out):
        entries = _opened(partial, request, num, overwrite=overwrite)
        folder = SampleFolder(partial, real, entries)
        try:
            yield folder
        except KeyboardInterrupt as stop:
            raise type(stop)(
                f"{len(folder.entries)} of {num} samples are finished and kept in "
                f"{out.with_name(partial.name)}; the same command goes on from there."
            ) from None
        finally:
            if not folder.entries:
                shutil.rmtree(partial, ignore_errors=True)


def _opened(
    partial: Path, request: Mapping[str, Any], num: int, *, overwrite: bool
) -> list[dict[str, Any]]:
    """Return the finished entries of the unfinished folder, which is made or tidied."""
    wanted = json.loads(json.dumps(request))
    if partial.is_dir() and any(partial.iterdir()):
        if (partial / JOURNAL).exists():
            entries = _finished(partial)
            if _goes_on(partial, wanted, len(entries), num, overwrite=overwrite):
                _tidy(partial, entries)
                return entries
        else:
            # A run that was killed while it replaced older samples leaves the older ones here.
            require_replaceable(partial, SAMPLES, overwrite=overwrite)
        shutil.rmtree(partial)
    partial.mkdir(parents=True, exist_ok=True)
    write_text(partial / JOURNAL, json.dumps({"request": wanted}) + "\n")
    return []


def _goes_on(
    partial: Path, wanted: Mapping[str, Any], finished: int, num: int, *, overwrite: bool
) -> bool:
    """Return whether an unfinished run is the wanted one; False if it is to be discarded.

    Raises:
        UsageError: If it is another one, and may not be discarded.
    """
    doubt = _doubt_unfinished(partial)
    if doubt:
        raise UsageError(f"{partial}: {doubt}; move it away.")
    found = _header(partial) or {}
    differing = sorted(k for k in found.keys() | wanted.keys() if found.get(k) != wanted.get(k))
    if not differing and finished <= num:
        return True
    if overwrite:
        return False
    key = differing[0] if differing else "num"
    was, now = (found.get(key), wanted.get(key)) if differing else (f"at least {finished}", num)
    raise UsageError(
        f"{partial}: holds {finished} samples of an unfinished run with {key} {was}, not {now}; "
        "repeat its settings to go on, name another folder, or discard them with overwrite=true."
    )


def _header(folder: Path) -> dict[str, Any] | None:
    """Return the request that an unfinished folder answers, None if there is none to be read."""
    try:
        with (folder / JOURNAL).open(encoding="utf-8") as journal:
            request = json.loads(journal.readline())["request"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return request if isinstance(request, dict) else None


def _finished(folder: Path) -> list[dict[str, Any]]:
    """Return the entries whose files are whole, up to the first that is torn or was changed."""
    entries: list[dict[str, Any]] = []
    for line in (folder / JOURNAL).read_text(encoding="utf-8").splitlines()[1:]:
        try:
            noted = json.loads(line)
            entry, name = noted["entry"], sample_name(len(entries))
            if entry["name"] != name or noted["sha256"] != _digest(folder, name):
                break
        except (ValueError, KeyError, TypeError, OSError):
            break
        entries.append(entry)
    return entries


def _tidy(folder: Path, entries: list[dict[str, Any]]) -> None:
    """Remove what belongs to no finished sample, and the journal's lines about it."""
    kept = {JOURNAL} | {path.name for e in entries for path in _pieces(folder, str(e["name"]))}
    for path in folder.iterdir():
        if path.name in kept:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    lines = (folder / JOURNAL).read_text(encoding="utf-8").splitlines()
    write_text(folder / JOURNAL, "".join(line + "\n" for line in lines[: 1 + len(entries)]))


def _pieces(folder: Path, name: str) -> list[Path]:
    """Return the folder or the file of a sample."""
    paths = (folder / f"{name}{suffix}" for suffix in ("", ".graphml", ".json"))
    return [path for path in paths if path.exists()]


def _digest(folder: Path, name: str) -> str:
    """Return a hash of the names and contents of all files of a sample."""
    digest = hashlib.sha256()
    for piece in _pieces(folder, name):
        files = sorted(piece.iterdir()) if piece.is_dir() else [piece]
        for file in files:
            content = hashlib.sha256(file.read_bytes()).hexdigest()
            digest.update(f"{file.relative_to(folder)} {content}\n".encode())
    return digest.hexdigest()


def _is_trace_of(name: str) -> Callable[[str], bool]:
    """Return a test for the file names of one sampled job."""
    pattern = re.compile(re.escape(name) + r"\.(\d{1,9}\.et|comm_group\.json)")
    return lambda found: bool(pattern.fullmatch(found))
