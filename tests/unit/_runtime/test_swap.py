"""Directories exchanged on systems that can, cannot or fail."""

import ctypes
import errno
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from layerdag._runtime import _swap as swap


def system(monkeypatch: pytest.MonkeyPatch, function) -> None:
    """Let the C library have this ``renameat2``, or none."""
    library = SimpleNamespace() if function is None else SimpleNamespace(renameat2=function)
    monkeypatch.setattr(ctypes, "CDLL", lambda *more, **named: library)


@pytest.mark.parametrize("code", [None, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP])
def test_a_system_that_cannot_exchange_says_so(tmp_path, monkeypatch, code) -> None:
    if code is not None:
        monkeypatch.setattr(ctypes, "get_errno", lambda: code)
    system(monkeypatch, None if code is None else lambda *names: -1)
    assert swap.exchange(tmp_path / "a", tmp_path / "b") is False


def test_an_exchange_that_failed_names_both(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(ctypes, "get_errno", lambda: errno.EACCES)
    system(monkeypatch, lambda *names: -1)
    with pytest.raises(PermissionError) as caught:
        swap.exchange(tmp_path / "a", tmp_path / "b")
    assert (caught.value.filename, caught.value.filename2) == (
        str(tmp_path / "a"), str(tmp_path / "b"),
    )  # fmt: skip


@pytest.mark.parametrize("can_exchange", [True, False])
def test_the_old_directory_ends_aside_and_the_new_one_in_its_place(
    tmp_path: Path, monkeypatch, can_exchange: bool
) -> None:
    made, target, aside = (tmp_path / name for name in ("made", "target", "aside"))
    for folder in (made, target):
        folder.mkdir()
        (folder / folder.name).touch()
    if not can_exchange:
        monkeypatch.setattr(swap, "exchange", lambda one, other: False)
    swap.swap(made, target, aside)
    assert [path.name for path in target.iterdir()] == ["made"]
    assert [path.name for path in aside.iterdir()] == ["target"]
    assert not made.exists()


def test_what_was_set_aside_comes_back_only_to_a_free_place(tmp_path: Path) -> None:
    aside, target = tmp_path / "aside", tmp_path / "target"
    aside.mkdir()
    target.mkdir()
    swap.put_back(aside, target)
    assert aside.exists()
    target.rmdir()
    swap.put_back(aside, target)
    assert target.exists()
    assert not aside.exists()
    swap.put_back(aside, target)  # nothing is there any more


@pytest.mark.parametrize("code", [errno.EINVAL, errno.EBADF, errno.EIO])
def test_a_file_system_that_cannot_sync_is_no_fault_and_a_broken_disk_is(
    tmp_path: Path, monkeypatch, code: int
) -> None:
    def fails(descriptor: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", fails)
    if code != errno.EIO:
        swap.sync(tmp_path)
        return
    with pytest.raises(OSError, match="Input/output error"):
        swap.sync(tmp_path)
