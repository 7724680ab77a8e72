"""Files and folders written whole: as a draft beside the target, then renamed over it.

The draft of ``out`` is in the hidden folder ``.out.draft`` beside it, which is locked while a
process writes. The next process that writes or resumes clears what a killed one left, and puts back
an older folder that was being replaced. The next process that reads or writes several files that
were being moved to their places finishes the move.
"""

import contextlib
import ctypes
import errno
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from layerdag.errors import DataError, UsageError

LOCK = "layerdag.lock"
"""Name of the lock in a folder that one process may write at a time."""

# File systems without locks, such as some network mounts: there, nothing is guarded.
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}
_ATTEMPTS = 100
_DRAFT = ".draft"


@contextlib.contextmanager
def file_lock(file: Path, guarded: Path) -> Iterator[None]:
    """Hold the lock ``file`` for this process inside the block; its folder is made if missing.

    The lock is one of the system's (``flock``), which a killed process gives up. The file is
    removed at the end. ``guarded`` is what it guards, for the message.

    Raises:
        UsageError: If another process holds it.
        OSError: If the file cannot be written.
    """
    descriptor = _acquire(file, guarded)
    try:
        yield
    finally:
        try:
            # Removed while it is held: whoever has opened it meanwhile sees that it is gone.
            file.unlink(missing_ok=True)
        finally:
            os.close(descriptor)


def _acquire(file: Path, guarded: Path) -> int:
    for attempt in range(_ATTEMPTS):
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
        except (FileExistsError, FileNotFoundError):
            if attempt < _ATTEMPTS - 1:
                continue  # its holder has just removed the folder
            raise
        try:
            _lock(descriptor, guarded)
            if _is_still(descriptor, file):
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
    raise UsageError(f"{guarded}: other processes keep writing here; name another folder.")


def _lock(descriptor: int, guarded: Path) -> None:
    try:
        import fcntl
    except ImportError:  # not a POSIX system
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.pread(descriptor, 20, 0).decode(errors="replace").strip()
        who = f"process {owner}" if owner.isdigit() else "another process"
        raise UsageError(
            f"{guarded}: {who} is writing here; wait until it ends, or name another folder."
        ) from None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise


def _is_still(descriptor: int, file: Path) -> bool:
    """Return whether the open file still has that name."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(file))
    except FileNotFoundError:
        return False


# What desktops leave in any folder that they show.
_DROPPINGS = {".DS_Store", "Thumbs.db", "desktop.ini"}


@dataclass(frozen=True)
class FolderKind:
    """A kind of folder that layerdag writes as a whole.

    Attributes:
        name: Its content, for messages: "a checkpoint", "samples".
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
            sync(draft)
        os.replace(draft, real)


@contextlib.contextmanager
def atomic_folder(target: str | Path, kind: FolderKind, *, overwrite: bool) -> Iterator[Path]:
    """Yield an empty temporary folder; put it in the place of ``target`` on success.

    On an exception whatever was written is removed and an older ``target`` stays untouched.

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


def discard_folder(target: Path) -> None:
    """Remove a folder with all it holds, if it is there.

    It is moved away first and then removed, so that a killed process leaves no part of it that
    could be taken for the whole.

    Raises:
        UsageError: If another process is just writing ``target``.
    """
    real = Path(os.path.realpath(target))
    if real.is_dir():
        with _holder(real) as holder:
            os.rename(real, holder / real.name)


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


def unexpected_files(folder: Path, known: Callable[[str], bool]) -> str:
    """Return a sentence on the first entry of ``folder`` that ``known`` refuses, or "".

    A draft that a killed process left counts by its name.
    """
    ours = _DROPPINGS | {LOCK}
    names = sorted(
        path.name.removeprefix(".").removesuffix(_DRAFT) if _is_holder(path) else path.name
        for path in folder.iterdir()
        if path.name not in ours
    )
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


_ORDER = ".order.json"  # of the files that go to their places
_FEW_FILES = 100  # more are written to the disk at once, which takes a fraction of one by one


def write_files(
    prefix: str | Path, files: Iterable[tuple[Path, bytes]], replaced: Iterable[Path] = ()
) -> None:
    """Write files of one folder: all of them or none, even if the process is killed.

    They are written to a draft folder, which is renamed when it is complete. From then on they
    count as written, and the next reader (`settle`) or writer of the prefix finishes a move that
    was cut short. For other programs, which need the last file, its older version is removed before
    anything else changes, and the new one comes last, so that they see no mixture either.

    Args:
        prefix: Beginning of their paths; names the lock.
        files: Path and content of each, in the order of their moves.
        replaced: Older files that are removed first.

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
        others = [path.name for path in replaced if path.name not in names]
        if len(names) == 1 and not others:
            if real.with_name(names[0]).exists():  # as in atomic_path
                sync(drafts / names[0])
            os.replace(drafts / names[0], real.with_name(names[0]))
            return
        (drafts / _ORDER).write_text(json.dumps({"placed": names, "removed": others}))
        if any(real.with_name(name).exists() for name in (*names, *others)):
            if len(names) < _FEW_FILES:
                sync_tree(drafts)
            else:
                os.sync()
        os.rename(drafts, _whole(real, holder))
        _place(real, holder)


def _place(target: Path, holder: Path) -> None:
    """Move complete files to their places; DataError if `write_files` did not write them."""
    import shutil  # slow to import, and most commands only read

    whole = _whole(target, holder)
    if (whole / _ORDER).is_file():
        order = _read_order(whole / _ORDER)
        last = order["placed"][-1]
        if (whole / last).exists():
            target.with_name(last).unlink(missing_ok=True)
        for name in order["removed"]:
            target.with_name(name).unlink(missing_ok=True)
        for name in order["placed"]:
            if (whole / name).exists():
                os.replace(whole / name, target.with_name(name))
        (whole / _ORDER).unlink()
    shutil.rmtree(whole)


def _read_order(file: Path) -> dict[str, list[str]]:
    try:
        found = json.loads(file.read_bytes())
        placed, removed = found["placed"], found["removed"]
        names = [*placed, *removed]
        sound = (
            bool(placed)
            and type(removed) is list
            and all(
                isinstance(name, str) and Path(name).name == name and name not in ("", "..")
                for name in names
            )
        )
    except (ValueError, TypeError, KeyError):
        sound = False
    if not sound:
        raise DataError(
            f"{file}: is no list of files that layerdag left; look at what {file.parent} holds and "
            "move it away."
        )
    return {"placed": placed, "removed": removed}


_PATIENCE_S = 30.0  # files are put in place in far less, unless the disk is busy


def settle(prefix: str | Path) -> None:
    """Finish a move of files that a killed process began; readers call it first.

    Raises:
        UsageError: If another process is moving them and does not end, or the folder cannot be
            written.
        DataError: If they were not written by `write_files`.
    """
    target = Path(prefix)
    holder = _holder_path(target)
    if not _whole(target, holder).is_dir():
        return
    end = time.monotonic() + _PATIENCE_S
    while _whole(target, holder).is_dir():
        try:
            recover(target)
        except (UsageError, FileNotFoundError):  # written, or just removed, by another process
            if time.monotonic() > end:
                raise
            time.sleep(0.05)
        except OSError as error:
            raise UsageError(
                f"{target}: its files were being replaced when the process that wrote them ended, "
                f"which cannot be finished here ({error.strerror}); allow writing in "
                f"{target.parent}, or write them again."
            ) from None


def entries_in(folder: Path) -> list[Path]:
    """Return the sorted entries of a folder without drafts, after `settle`."""
    return sorted(folder / entry.name for entry in _settled(folder))


def entries_below(folder: Path) -> list[Path]:
    """Return the entries of a folder and of the folders in it, as `entries_in`."""
    found: list[Path] = []
    waiting = [folder]
    while waiting:
        at = waiting.pop()
        with contextlib.suppress(PermissionError):
            for entry in _settled(at):
                found.append(at / entry.name)
                waiting += [found[-1]] if entry.is_dir(follow_symlinks=False) else []
    return sorted(found)


def _settled(folder: Path) -> "list[os.DirEntry[str]]":
    entries = list(os.scandir(folder))
    drafts = [entry for entry in entries if _is_draft(entry)]
    for draft in drafts:
        settle(folder / draft.name[1 : -len(_DRAFT)])
    entries = list(os.scandir(folder)) if drafts else entries
    return [entry for entry in entries if not _is_draft(entry)]


def _is_draft(entry: "os.DirEntry[str]") -> bool:
    return entry.name.startswith(".") and entry.name.endswith(_DRAFT) and entry.is_dir()


def write_text(target: str | Path, text: str) -> None:
    """Write ``text`` as UTF-8 to ``target``, whole or not at all. Raises as ``atomic_path``."""
    write_bytes(target, text.encode())


def _install(made: Path, target: Path, holder: Path) -> None:
    sync_tree(made)
    swap(made, target, _aside(target, holder))


def _holder_path(target: Path) -> Path:
    return target.with_name(f".{target.name}{_DRAFT}")


def _is_holder(path: Path) -> bool:
    if not path.name.endswith(_DRAFT) or not path.is_dir():
        return False
    try:
        return (path / LOCK).is_file() or not any(path.iterdir())
    except FileNotFoundError:
        return True  # its writer has just removed it


def _whole(target: Path, holder: Path) -> Path:
    return holder / f"{target.name}.new"


def _aside(target: Path, holder: Path) -> Path:
    return holder / f"{target.name}.old"


@contextlib.contextmanager
def _holder(target: Path) -> Iterator[Path]:
    holder = _holder_path(target)
    if holder.is_dir() and not _is_holder(holder):
        raise UsageError(
            f"{holder}: is in the way of a draft, and not provably one of layerdag's; look at what "
            "it holds and move it away."
        )
    try:
        with file_lock(holder / LOCK, guarded=target):
            _clear(target, holder)
            try:
                yield holder
            finally:
                _clear(target, holder)
    finally:
        with contextlib.suppress(OSError):  # not empty: another writer is at work
            holder.rmdir()


def _clear(target: Path, holder: Path) -> None:
    """Remove drafts; a folder that was set aside goes back if nothing is in its place."""
    import shutil  # slow to import, and most commands only read

    if _whole(target, holder).is_dir():
        _place(target, holder)
    aside = _aside(target, holder)
    restore(aside, target)
    for path in (holder / target.name, aside):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def _named(shown: Path, target: Path) -> Iterator[None]:
    holder = str(_holder_path(target))
    try:
        yield
    except OSError as error:
        if not error.filename or str(error.filename).startswith(holder):
            error.filename, error.filename2 = str(shown), None
        raise


# linux/fs.h, fcntl.h; sources: renameat2(2).
_RENAME_EXCHANGE = 2
_AT_FDCWD = -100
_CANNOT = {errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP}


def swap(made: Path, target: Path, aside: Path) -> None:
    """Put the directory ``made`` in the place of ``target``, which ends at ``aside`` if it existed.

    Where the system can exchange two names (Linux, most file systems), there is no moment without
    ``target``. Elsewhere ``target`` is moved to ``aside`` first, and moved back if the second
    rename fails; after a kill between the two, ``recover`` finds it there.
    """
    if not os.path.lexists(target):
        os.rename(made, target)
    elif swap_names(made, target):
        os.rename(made, aside)
    else:
        try:
            os.rename(target, aside)
            os.rename(made, target)
        except BaseException:
            restore(aside, target)
            raise
    sync(target.parent)


def restore(aside: Path, target: Path) -> None:
    """Move what was set aside to its place, if nothing stands there."""
    if os.path.lexists(aside) and not os.path.lexists(target):
        os.rename(aside, target)


def swap_names(one: Path, other: Path) -> bool:
    """Exchange two existing names in one step; return False where the system cannot.

    Raises:
        OSError: If it can, but failed.
    """
    function = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if function is None:
        return False
    names = (os.fsencode(one), os.fsencode(other))
    if function(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in _CANNOT:
        return False
    raise OSError(code, os.strerror(code), str(one), None, str(other))


def sync_tree(folder: Path) -> None:
    """Have every file and directory in and below ``folder`` written to the disk."""
    for parent, _, names in os.walk(folder):
        for name in names:
            sync(Path(parent, name))
        sync(Path(parent))


def sync(path: Path) -> None:
    """Have a file or the entries of a directory written to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EBADF):  # a file system that cannot
            raise
    finally:
        os.close(descriptor)


def require_name(path: str | Path, endings: tuple[str, ...]) -> str:
    """Return which of the endings a path has.

    Raises:
        UsageError: If it has none of them.
    """
    for ending in endings:
        if str(path).endswith(ending):
            return ending
    raise UsageError(f"'{path}' has another ending than {', '.join(endings)}; choose one of them.")
