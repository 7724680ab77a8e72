"""Files are written whole: to a temporary name beside the target, then renamed over it."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def atomic_path(target: str | Path) -> Iterator[Path]:
    """Yield a temporary path in the target's folder; rename it to ``target`` on success.

    The caller may create a file or a directory at the yielded path. On an exception whatever was
    written is removed and an older ``target`` stays untouched.
    """
    import shutil  # these two are slow to import, and most commands only read
    import tempfile

    target = Path(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    holder = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        draft = holder / target.name
        yield draft
        _replace(draft, target)
    finally:
        shutil.rmtree(holder, ignore_errors=True)


def _replace(draft: Path, target: Path) -> None:
    """Rename ``draft`` over ``target``; a directory that stands there is moved away first."""
    if target.is_dir() and not target.is_symlink():
        doomed = draft.with_name(draft.name + ".old")
        os.rename(target, doomed)
        os.rename(draft, target)
    else:
        os.replace(draft, target)


def write_bytes(target: str | Path, data: bytes) -> None:
    """Write ``data`` to ``target``, whole or not at all."""
    with atomic_path(target) as draft:
        draft.write_bytes(data)


def write_text(target: str | Path, text: str) -> None:
    """Write ``text`` as UTF-8 to ``target``, whole or not at all."""
    write_bytes(target, text.encode())
