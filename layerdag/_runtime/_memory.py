"""How much memory this process may still take."""

import os
from pathlib import Path

# Where nothing says how much is free.
_UNKNOWN = 4 << 30


def memory_left() -> int:
    """Return the bytes that this process can still take without swapping or being refused.

    The least of what the machine has free, what the control group (container) allows and what the
    process's own limits (``ulimit -v``, ``ulimit -d``) allow.
    """
    known = [found for found in (_free(), _group_left(), *_process_left()) if found is not None]
    return max(0, min(known, default=_UNKNOWN))


def _free() -> int | None:
    """Return the memory that the machine can give without swapping."""
    found = _table(Path("/proc/meminfo")).get("MemAvailable")
    if found is not None:
        return found
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None


def _group_left() -> int | None:
    """Return what is left to a control group with a limit."""
    root = Path("/sys/fs/cgroup")
    for most, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        limit, taken = _number(root / most), _number(root / used)
        if limit is not None and taken is not None:
            return limit - taken
    return None


def _process_left() -> list[int]:
    """Return what is left of the process's own limits."""
    try:
        import resource
    except ImportError:  # Windows
        return []
    status = _table(Path("/proc/self/status"))
    left = []
    for kind, used in ((resource.RLIMIT_AS, "VmSize"), (resource.RLIMIT_DATA, "VmData")):
        limit = resource.getrlimit(kind)[0]
        if limit != resource.RLIM_INFINITY:
            left.append(limit - status.get(used, 0))
    return left


def _table(path: Path) -> dict[str, int]:
    """Return the lines ``name: n kB`` of a file of the kernel, in bytes."""
    try:
        rows = (line.split() for line in path.read_text().splitlines())
        return {row[0][:-1]: int(row[1]) << 10 for row in rows if row[2:] == ["kB"]}
    except (OSError, ValueError):
        return {}


def _number(path: Path) -> int | None:
    """Return the number in a file of the kernel; None for "max" or no such file."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
