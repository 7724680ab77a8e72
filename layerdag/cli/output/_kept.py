"""Results of earlier calls, kept for the same files, settings and version.

A result is found by a hash of all that it depends on: the content and names of the files read, the
settings, and the code of this package and of the libraries that compute. What is damaged or of
another version is computed again. Entries are JSON; nothing in them is executed. They tell of
private graphs, so that only their owner can read them.
"""

import contextlib
import hashlib
import json
import os
import re
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from layerdag._runtime import write_text

FORMAT = "layerdag-kept-1"
VARIABLE = "LAYERDAG_CACHE"
"""Environment variable: the folder for entries, or "off"."""
MOST_KEPT = 50
_ENTRY = re.compile(r"[0-9a-f]{64}\.json")
_LIBRARIES = ("numpy", "scipy", "scikit-learn", "torch")


def kept_folder() -> Path | None:
    """Return the folder of the entries of this user, which may not exist; None for none."""
    named = os.environ.get(VARIABLE)
    if named is not None:
        return None if named in ("", "off") else Path(named)
    caches = os.environ.get("XDG_CACHE_HOME")
    with contextlib.suppress(RuntimeError):  # a user without a home
        return (Path(caches) if caches else Path.home() / ".cache") / "layerdag" / "audits"
    return None


def key_of(settings: Mapping[str, object], inputs: Iterable[str | Path]) -> str:
    """Return the hash of settings, of the content of files and folders, and of the code.

    Args:
        settings: As JSON.
        inputs: Files and folders that are read; what does not exist counts as missing.

    Raises:
        OSError: If a file cannot be read.
    """
    found = hashlib.sha256(code_hash().encode())
    found.update(json.dumps(settings, sort_keys=True).encode())
    for path in inputs:
        found.update(content_hash(path).encode())
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


@cache
def code_hash() -> str:
    """Return the hash of this package's code, and of the versions of what computes with it."""
    import layerdag

    found = hashlib.sha256(sys.version.encode())
    package = Path(str(layerdag.__file__)).parent
    for path in sorted(p for p in package.rglob("*") if p.suffix in (".py", ".so", ".pyd")):
        found.update(path.relative_to(package).as_posix().encode() + path.read_bytes())
    for name in _LIBRARIES:
        with contextlib.suppress(PackageNotFoundError):
            found.update(f"{name} {version(name)}".encode())
    return found.hexdigest()


def kept(key: str) -> dict[str, object] | None:
    """Return what was kept under a key; None if there is nothing, or it is damaged."""
    folder = kept_folder()
    if folder is None:
        return None
    try:
        content = json.loads((folder / f"{key}.json").read_text(encoding="utf-8"))
        whole = content["format"] == FORMAT and content["key"] == key
        result = content["result"]
        if whole and content["sha256"] == _checksum(result) and isinstance(result, dict):
            return result
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return None


def keep(key: str, result: Mapping[str, object]) -> None:
    """Keep a result; what cannot be written is no fault, and the oldest entries make room."""
    folder = kept_folder()
    if folder is None:
        return
    content = {"format": FORMAT, "key": key, "sha256": _checksum(result), "result": dict(result)}
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        entry = folder / f"{key}.json"
        write_text(entry, json.dumps(content))
        entry.chmod(0o600)
        # A folder that the variable names may hold files of others: they are not touched.
        own = [path for path in folder.glob("*.json") if _ENTRY.fullmatch(path.name)]
        for path in sorted(own, key=lambda path: path.stat().st_mtime)[:-MOST_KEPT]:
            path.unlink(missing_ok=True)


def _checksum(result: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(result, sort_keys=True).encode()).hexdigest()
