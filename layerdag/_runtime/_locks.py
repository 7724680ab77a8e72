"""One writer for a folder at a time: a lock that ends with its process, however that ends."""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from layerdag.errors import UsageError

LOCK = "layerdag.lock"
"""Name of the lock in a folder that one process may write at a time."""

# File systems without locks, such as some network mounts: there, nothing is guarded.
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}
_ATTEMPTS = 100


@contextlib.contextmanager
def locked(file: Path, guarded: Path) -> Iterator[None]:
    """Hold the lock ``file`` for this process inside the block; its folder is made if missing.

    The lock is one of the system's (``flock``), so that a killed process holds nothing. The file is
    removed at the end.

    Args:
        file: The lock.
        guarded: What it guards, for the message.

    Raises:
        UsageError: If another process holds it.
        OSError: If the file cannot be written.
    """
    descriptor = _acquire(file, guarded)
    try:
        yield
    finally:
        # Removed while it is held: whoever has opened it meanwhile sees that it is gone.
        file.unlink(missing_ok=True)
        os.close(descriptor)


def _acquire(file: Path, guarded: Path) -> int:
    """Return the descriptor of the locked file."""
    for attempt in range(_ATTEMPTS):
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
        except FileNotFoundError:
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
    """Lock the open file, or raise UsageError if another process has."""
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
    """Return whether the open file is the one of that name, not one that was removed since."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(file))
    except FileNotFoundError:
        return False
