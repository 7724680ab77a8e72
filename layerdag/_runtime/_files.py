"""Files and folders are written whole: as a draft beside the target, then renamed over it.

The draft of ``out`` lies in the hidden folder ``.out.draft`` beside it, which is locked while a
process is at work. What a killed process left there is cleared by the next one that writes or
resumes; an older folder that was just being replaced is put back in its place.
"""

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from layerdag._runtime._locks import LOCK, locked
from layerdag.errors import UsageError

# What desktops leave in any folder that they show.
_DROPPINGS = {".DS_Store", "Thumbs.db", "desktop.ini"}


@dataclass(frozen=True)
class FolderKind:
    """A kind of folder that layerdag writes as a whole.

    Attributes:
        name: What such a folder holds, for messages: "a checkpoint", "samples".
        doubt: Returns why a folder is not provably of this kind ("holds 'x', which ..."), or "".
    """

    name: str
    doubt: Callable[[Path], str]


@contextlib.contextmanager
def atomic_path(target: str | Path) -> Iterator[Path]:
    """Yield a temporary path for a file; rename it to ``target`` on success.

    On an exception whatever was written is removed and an older ``target`` stays untouched. A
    target such as ``/dev/stdout`` is written directly.

    Raises:
        UsageError: If ``target`` is a folder, or another process is just writing it.
        OSError: If the disk is full, or the place cannot be written; names ``target``.
    """
    target = Path(target)
    if target.is_dir():
        raise UsageError(f"{target}: is a folder; name a file.")
    if target.exists() and not target.is_file():
        yield target
        return
    real = Path(os.path.realpath(target))
    with _named(target, real), _holder(real) as holder:
        draft = holder / real.name
        yield draft
        if real.exists():
            from layerdag._runtime._swap import (
                sync,  # only who replaces something waits for the disk
            )

            sync(draft)
        os.replace(draft, real)


@contextlib.contextmanager
def atomic_folder(target: str | Path, kind: FolderKind, *, overwrite: bool) -> Iterator[Path]:
    """Yield an empty temporary folder; put it in the place of ``target`` on success.

    On an exception whatever was written is removed and an older ``target`` stays untouched.

    Args:
        target: The folder to make.
        kind: Of the folder.
        overwrite: Whether an older one of the same kind may be replaced.

    Raises:
        UsageError: If ``target`` may not be replaced (``require_replaceable``), or another process
            is just writing it.
        OSError: If the disk is full, or the place cannot be written; names ``target``.
    """
    require_replaceable(Path(target), kind, overwrite=overwrite)
    real = Path(os.path.realpath(target))
    with _named(Path(target), real), _holder(real) as holder:
        require_replaceable(Path(target), kind, overwrite=overwrite)  # recovered, perhaps
        draft = holder / real.name
        draft.mkdir()
        yield draft
        _install(draft, real, holder)


def install_folder(made: Path, target: str | Path, kind: FolderKind, *, overwrite: bool) -> None:
    """Put the finished folder ``made``, a neighbor of ``target``, in its place.

    Raises:
        UsageError: As ``atomic_folder``.
        OSError: As ``atomic_folder``; then ``made`` stays where it is.
    """
    real = Path(os.path.realpath(target))
    with _named(Path(target), real), _holder(real) as holder:
        require_replaceable(Path(target), kind, overwrite=overwrite)
        _install(made, real, holder)


def require_replaceable(target: Path, kind: FolderKind, *, overwrite: bool) -> None:
    """Raise UsageError unless a folder of ``kind`` may be put at ``target``.

    It may if nothing is there or an empty folder, or if what is there is provably of the same kind
    and the user allows its loss.
    """
    if not os.path.lexists(target):
        return
    if not target.is_dir():
        raise UsageError(f"{target}: is a file; name a folder for {kind.name}.")
    if not any(target.iterdir()):
        return
    doubt = kind.doubt(target)
    if doubt:
        raise UsageError(
            f"{target}: {doubt}, so it is never replaced by {kind.name}; name an empty or a new "
            "folder."
        )
    if not overwrite:
        raise UsageError(
            f"{target}: holds {kind.name} already; name another folder, or allow that it is "
            "replaced (overwrite=true; --overwrite in commands with dashes)."
        )


def strangers(folder: Path, known: Callable[[str], bool]) -> str:
    """Return a word on the first entry of ``folder`` that ``known`` does not name, or ""."""
    ours = _DROPPINGS | {LOCK}
    names = sorted(path.name for path in folder.iterdir() if path.name not in ours)
    strange = next((name for name in names if not known(name)), None)
    return "" if strange is None else f"holds '{strange}', which layerdag did not write there"


def recover(target: str | Path) -> None:
    """Clear what a killed process left beside ``target``, and put an older one back in its place.

    Raises:
        UsageError: If another process is just writing ``target``.
    """
    real = Path(os.path.realpath(target))
    if _holder_path(real).is_dir():
        with _holder(real):
            pass


def write_bytes(target: str | Path, data: bytes) -> None:
    """Write ``data`` to ``target``, whole or not at all. Raises as ``atomic_path``."""
    with atomic_path(target) as draft:
        draft.write_bytes(data)


_FEW_FILES = 100  # more are written to the disk at once, which takes a fraction of one by one


def write_files(
    prefix: str | Path, files: Iterable[tuple[Path, bytes]], replaced: Iterable[Path] = ()
) -> None:
    """Write files that lie beside each other; none is put in its place before all are written.

    Args:
        prefix: Path that their names begin with; names the lock.
        files: Path and content of each, in the order in which they are put in their places.
        replaced: Older files that are removed before that.

    Raises:
        UsageError: If another process is just writing this prefix.
        OSError: If the disk is full, or the place cannot be written; names the file.
    """
    target = Path(prefix)
    real = Path(os.path.realpath(target.parent)) / target.name
    with _named(target, real), _holder(real) as holder:
        drafts = holder / real.name
        drafts.mkdir()
        names = []
        for path, data in files:
            (drafts / path.name).write_bytes(data)
            names.append(path.name)
        if any(real.with_name(name).exists() for name in names):
            from layerdag._runtime._swap import sync_tree  # as in atomic_path

            if len(names) < _FEW_FILES:
                sync_tree(drafts)
            else:
                os.sync()
        for path in replaced:
            path.unlink(missing_ok=True)
        for name in names:
            os.replace(drafts / name, real.with_name(name))


def write_text(target: str | Path, text: str) -> None:
    """Write ``text`` as UTF-8 to ``target``, whole or not at all. Raises as ``atomic_path``."""
    write_bytes(target, text.encode())


def _install(made: Path, target: Path, holder: Path) -> None:
    """Write ``made`` to the disk and put it in the place of ``target``."""
    from layerdag._runtime._swap import swap, sync_tree

    sync_tree(made)
    swap(made, target, _aside(target, holder))


def _holder_path(target: Path) -> Path:
    """Return the hidden folder in which the draft of ``target`` lies."""
    return target.with_name(f".{target.name}.draft")


def _aside(target: Path, holder: Path) -> Path:
    """Return where the folder that ``target`` was lies while it is replaced."""
    return holder / f"{target.name}.old"


@contextlib.contextmanager
def _holder(target: Path) -> Iterator[Path]:
    """Yield the locked folder for the draft of ``target``, cleared before and after."""
    holder = _holder_path(target)
    if holder.is_dir() and not (holder / LOCK).is_file() and any(holder.iterdir()):
        raise UsageError(
            f"{holder}: is in the way of a draft, and not provably one of layerdag's; look at what "
            "it holds and move it away."
        )
    try:
        with locked(holder / LOCK, guarded=target):
            _clear(target, holder)
            try:
                yield holder
            finally:
                _clear(target, holder)
    finally:
        with contextlib.suppress(OSError):  # not empty: another writer is at work
            holder.rmdir()


def _clear(target: Path, holder: Path) -> None:
    """Remove drafts; a folder that was set aside goes back first if nothing is in its place."""
    import shutil  # slow to import, and most commands only read

    from layerdag._runtime._swap import put_back

    aside = _aside(target, holder)
    put_back(aside, target)
    for path in (holder / target.name, aside):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def _named(shown: Path, target: Path) -> Iterator[None]:
    """Have errors of the system name the target instead of nothing or the draft."""
    holder = str(_holder_path(target))
    try:
        yield
    except OSError as error:
        if not error.filename or str(error.filename).startswith(holder):
            error.filename, error.filename2 = str(shown), None
        raise
