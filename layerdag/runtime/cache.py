"""Results in the user's cache folder, under a hash of all that they follow from.

The folder may be deleted at any time. An entry is named by the hash of the package's code, of
settings and of the content of files, so that none is ever stale; it is written whole, and the
oldest make room.
"""

import contextlib
import hashlib
import json
import os
import re
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from layerdag.runtime.files import write_bytes

VARIABLE = "LAYERDAG_CACHE"
"""Environment variable: the folder for entries, or "off"."""
_LIBRARIES = ("numpy", "scipy", "scikit-learn", "torch")


def cache_folder(kind: str) -> Path | None:
    """Return the folder of this user's entries of a kind, which may not exist; None for none."""
    named = os.environ.get(VARIABLE)
    if named is not None:
        return None if named in ("", "off") else Path(named)
    caches = os.environ.get("XDG_CACHE_HOME")
    with contextlib.suppress(RuntimeError):  # a user without a home
        return (Path(caches) if caches else Path.home() / ".cache") / "layerdag" / kind
    return None


@cache
def code_hash() -> str:
    """Return the hash of this package's code, and of the versions of what computes with it."""
    found = hashlib.sha256(sys.version.encode())
    package = Path(__file__).parents[1]
    for path in sorted(p for p in package.rglob("*") if p.suffix in (".py", ".so", ".pyd")):
        found.update(path.relative_to(package).as_posix().encode() + path.read_bytes())
    for name in _LIBRARIES:
        with contextlib.suppress(PackageNotFoundError):
            found.update(f"{name} {version(name)}".encode())
    return found.hexdigest()


def content_hash(path: str | Path) -> str:
    """Return the hash of a file, or of the names and files of a folder and those below it.

    Raises:
        OSError: If a file cannot be read.
    """
    path, found = Path(path), hashlib.sha256()
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    for file in files:
        name = file.relative_to(path).as_posix() if path.is_dir() else "."
        found.update(json.dumps(name).encode())
        if file.is_file():
            with file.open("rb") as stream:
                found.update(hashlib.file_digest(stream, "sha256").digest())
    return found.hexdigest()


def read_cached(kind: str, name: str) -> bytes | None:
    """Return the content of an entry; None if there is none."""
    folder = cache_folder(kind)
    if folder is not None:
        with contextlib.suppress(OSError):
            return (folder / name).read_bytes()
    return None


def write_cached(kind: str, name: str, content: bytes, most: int) -> None:
    """Write an entry if possible; the oldest entries make room for it.

    Args:
        kind: Of the entry.
        name: A hash as 64 hexadecimal digits, and a suffix that only entries of this kind have.
        content: Of the file.
        most: Entries of this kind that stay.
    """
    folder = cache_folder(kind)
    if folder is None:
        return
    own = re.compile(r"[0-9a-f]{64}" + re.escape(Path(name).suffix))
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_bytes(folder / name, content)
        (folder / name).chmod(0o600)
        # A folder that the variable names may hold files of others: they are not touched.
        found = [path for path in folder.iterdir() if own.fullmatch(path.name)]
        for path in sorted(found, key=lambda path: path.stat().st_mtime)[:-most]:
            path.unlink(missing_ok=True)
