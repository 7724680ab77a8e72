"""Folders of samples while they are filled: what is finished stays if the run is stopped.

A file or folder for each sample: they are written to ``<out>.partial`` with one line each in a
journal, and the folder is put in its place when the manifest is written. A run that was stopped,
even killed, goes on from the journal when the same is asked for again. Samples in parts are written
where they belong, and those that are whole stay.
"""

import contextlib
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from layerdag.codec.recognition import RUN
from layerdag.errors import DataError, UsageError
from layerdag.runtime.files import (
    LOCK,
    FolderKind,
    atomic_folder,
    file_lock,
    install_folder,
    require_replaceable,
    unexpected_files,
    write_text,
)
from layerdag.samples.manifest import ENDINGS, MANIFEST, NAME, SampleRun, is_run, sample_name

JOURNAL = "unfinished.jsonl"
# A sample's file or folder in an unfinished folder, or the draft of one.
_PIECE = re.compile(r"sample-\d{5,9}(\.graphml|(\.program)?\.json)?|\.sample-\d{5,9}\.\w+\.draft")


def why_not_samples(folder: Path) -> str:
    """Return why a folder is not provably one that sampling wrote, or ""."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        names = {str(entry["name"]) for entry in manifest["samples"]}
        proved = {"layerdag_version", "checkpoint_sha256", "format"} <= manifest.keys()
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return f"has no {MANIFEST} of samples"
    if not proved or not all(map(NAME.fullmatch, names)):
        return f"has a {MANIFEST} that is not of samples"
    files = {f"{name}{suffix}" for name in names for suffix in ENDINGS.values()}
    doubt = unexpected_files(folder, (names | files | {MANIFEST, JOURNAL}).__contains__)
    inside = (
        unexpected_files(folder / n, _is_trace_of(n))
        for n in sorted(names)
        if (folder / n).is_dir()
    )
    return doubt or next(filter(None, inside), "")


def why_not_sampled_jobs(folder: Path) -> str:
    """Return why a folder is not provably one of sampled jobs without a manifest, or ""."""
    names = sorted(path.name for path in folder.iterdir() if path.is_dir())
    doubt = unexpected_files(folder, lambda name: bool(NAME.fullmatch(name)) and name in names)
    inside = (unexpected_files(folder / name, _is_trace_of(name)) for name in names)
    return doubt or next(filter(None, inside), "")


SAMPLES = FolderKind("samples", why_not_samples)

Noted = tuple[dict[str, Any], bool]
"""What a journal says of a sample, and whether the sample is there."""


class SampleFolder:
    """An unfinished folder of samples, held by this process; made by ``open_sample_folder``.

    ``entries`` and ``missing`` are what the manifest will say of finished samples and of those that
    cannot be made, in order.
    """

    def __init__(self, path: Path, out: Path, noted: Sequence[Noted]) -> None:
        self.path = path
        self.entries = [entry for entry, there in noted if there]
        self.missing = [entry for entry, there in noted if not there]
        self._out = out

    @property
    def done(self) -> int:
        """Number of samples that are finished or missing."""
        return len(self.entries) + len(self.missing)

    def add(self, entry: Mapping[str, Any]) -> None:
        """Note that the files of the next sample are written."""
        self._note({"entry": dict(entry), "sha256": _digest(self.path, str(entry["name"]))})
        self.entries.append(dict(entry))

    def skip(self, entry: Mapping[str, Any]) -> None:
        """Note that the next sample cannot be made."""
        self._note({"missing": dict(entry)})
        self.missing.append(dict(entry))

    def _note(self, line: Mapping[str, Any]) -> None:
        with (self.path / JOURNAL).open("a", encoding="utf-8") as journal:
            journal.write(json.dumps(line) + "\n")

    def install(self, facts: Mapping[str, Any], *, overwrite: bool) -> None:
        """Write the manifest, facts and samples, and put the folder in its place."""
        missing = {"missing": self.missing} if self.missing else {}
        manifest = {**facts, **missing, "samples": self.entries}
        write_text(self.path / MANIFEST, json.dumps(manifest, indent=1) + "\n")
        install_folder(self.path, self._out, SAMPLES, overwrite=overwrite)
        # The journal goes last: without it, a finished folder could not be told from a torn one.
        (self._out / JOURNAL).unlink(missing_ok=True)


@contextlib.contextmanager
def open_sample_folder(
    out: Path, request: Mapping[str, Any], num: int, *, overwrite: bool
) -> Iterator[SampleFolder]:
    """Yield the unfinished folder of ``out``, with what an earlier run of ``request`` finished.

    The request is all that determines the samples, as JSON. Older samples, or those of another
    unfinished run, are replaced only with ``overwrite``. Raises UsageError if something stands at
    ``out`` that may not be replaced, the unfinished run was another one, or another process is
    sampling into ``out``, and KeyboardInterrupt as it came, with a sentence on what is kept.
    """
    real = Path(os.path.realpath(out))
    partial = real.with_name(f"{real.name}.partial")
    require_replaceable(out, SAMPLES, overwrite=overwrite)
    with file_lock(real.with_name(f".{real.name}.lock"), guarded=out):
        folder = SampleFolder(partial, real, _opened(partial, request, num, overwrite=overwrite))
        try:
            yield folder
        except KeyboardInterrupt as stop:
            raise type(stop)(
                f"{folder.done} of {num} samples are finished and kept in "
                f"{out.with_name(partial.name)}; the same command goes on from there."
            ) from None
        finally:
            if not folder.entries:
                shutil.rmtree(partial, ignore_errors=True)


def _opened(partial: Path, request: Mapping[str, Any], num: int, *, overwrite: bool) -> list[Noted]:
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
    # With its journal from the first moment: it proves what the folder is.
    replaced = FolderKind("samples", lambda folder: "")
    with atomic_folder(partial, replaced, overwrite=True) as draft:
        (draft / JOURNAL).write_text(json.dumps({"request": wanted}) + "\n")
    return []


def _goes_on(
    partial: Path, wanted: Mapping[str, Any], finished: int, num: int, *, overwrite: bool
) -> bool:
    """Return whether an unfinished run is the wanted one; False if it is to be discarded.

    Raises UsageError if it is another one, and may not be discarded.
    """
    found = _header(partial)
    doubt = f"has no {JOURNAL} of an unfinished sampling"
    if found is not None:
        doubt = unexpected_files(
            partial, lambda name: name in (MANIFEST, JOURNAL) or bool(_PIECE.fullmatch(name))
        )
    if found is None or doubt:
        raise UsageError(f"{partial}: {doubt}; move it away.")
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
    try:
        with (folder / JOURNAL).open(encoding="utf-8") as journal:
            request = json.loads(journal.readline())["request"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return request if isinstance(request, dict) else None


def _finished(folder: Path) -> list[Noted]:
    entries: list[Noted] = []
    for line in (folder / JOURNAL).read_text(encoding="utf-8").splitlines()[1:]:
        try:
            noted = json.loads(line)
            there, name = "missing" not in noted, sample_name(len(entries))
            entry = noted["entry" if there else "missing"]
            if entry["name"] != name or (there and noted["sha256"] != _digest(folder, name)):
                break
        except (ValueError, KeyError, TypeError, OSError):
            break
        entries.append((entry, there))
    return entries


def _tidy(folder: Path, entries: Sequence[Noted]) -> None:
    kept = {JOURNAL} | {path.name for e, there in entries if there
            for path in _pieces(folder, str(e["name"]))}  # fmt: skip
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
    paths = (folder / f"{name}{suffix}" for suffix in ("", *ENDINGS.values()))
    return [path for path in paths if path.exists()]


def _digest(folder: Path, name: str) -> str:
    digest = hashlib.sha256()
    for piece in _pieces(folder, name):
        files = sorted(piece.iterdir()) if piece.is_dir() else [piece]
        for file in files:
            content = hashlib.sha256(file.read_bytes()).hexdigest()
            digest.update(f"{file.relative_to(folder)} {content}\n".encode())
    return digest.hexdigest()


def _is_trace_of(name: str) -> Callable[[str], bool]:
    pattern = re.compile(re.escape(name) + r"\.(\d{1,9}\.et|comm_group\.json|program\.json)")
    return lambda found: bool(pattern.fullmatch(found))


_KNOWN = re.compile(
    r"samples\.json|part-\d{6,}\.(tar|parquet|json)"
    r"|\.(samples|part-\d{6,})\.(tar|parquet|json)\.draft"
)
_PATIENCE_S, _PAUSE_S = 60.0, 0.05


def open_run(out: Path, run: SampleRun, *, overwrite: bool) -> None:
    """Make ``out`` a folder of ``run``; parts of the same run that lie there stay.

    A run may be made longer. Several processes may open one run at once. The samples of another run
    are discarded only with ``overwrite``. Raises UsageError if something lies there that may not be
    discarded.
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
            for path in sorted(out.glob("part-*")):  # .json comes before .parquet and .tar
                path.unlink()
            (out / RUN).unlink()
        if found is None or difference or found.num < run.num:
            run.write(out)


def _doubt(out: Path) -> str:
    doubt = unexpected_files(out, lambda name: bool(_KNOWN.fullmatch(name)))
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


def _difference(found: SampleRun, run: SampleRun) -> str:
    was, now = (
        {**each.request, "seed": each.seed, "part_size": each.part_size, "format": each.file_format}
        for each in (found, run)
    )
    for key in sorted(was.keys() | now.keys()):
        if was.get(key) != now.get(key):
            return f"{key} {was.get(key)}, not {now.get(key)}"
    return f"num {found.num}, more than {run.num}" if found.num > run.num else ""


@contextlib.contextmanager
def _alone(out: Path) -> Iterator[None]:
    """Hold the lock of the folder; wait for another process of the run that opens it, too."""
    until = time.monotonic() + _PATIENCE_S
    while True:
        try:
            held = file_lock(out / LOCK, guarded=out)
            held.__enter__()
            break
        except UsageError:
            if time.monotonic() > until:
                raise
            time.sleep(_PAUSE_S)
    with contextlib.ExitStack() as stack:
        stack.push(held)
        yield
