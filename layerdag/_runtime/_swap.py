"""Putting one directory in the place of another so that neither can be lost on the way."""

import ctypes
import errno
import os
from pathlib import Path

# linux/fs.h, fcntl.h; sources: renameat2(2).
_RENAME_EXCHANGE = 2
_AT_FDCWD = -100
_CANNOT = {errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP}


def swap(made: Path, target: Path, aside: Path) -> None:
    """Put the directory ``made`` in the place of ``target``, which ends at ``aside`` if it existed.

    Where the system can exchange two names (Linux, most file systems), there is no moment without
    ``target``. Elsewhere ``target`` is moved to ``aside`` first, and moved back if the second
    rename fails; after a kill between the two it is found there (``files.recover``).

    Args:
        made: The new directory, on the same file system.
        target: Its place.
        aside: A free name on the same file system.
    """
    if not os.path.lexists(target):
        os.rename(made, target)
    elif exchange(made, target):
        os.rename(made, aside)
    else:
        try:
            os.rename(target, aside)
            os.rename(made, target)
        except BaseException:
            put_back(aside, target)
            raise
    sync(target.parent)


def put_back(aside: Path, target: Path) -> None:
    """Move what was set aside to its place, if nothing stands there."""
    if os.path.lexists(aside) and not os.path.lexists(target):
        os.rename(aside, target)


def exchange(one: Path, other: Path) -> bool:
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
