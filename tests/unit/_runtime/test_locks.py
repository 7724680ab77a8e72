"""Locks of folders: one holder, gone with it."""

import errno
import os
from pathlib import Path

import pytest

from layerdag._runtime import LOCK, _locks as locks, locked
from layerdag.errors import UsageError

fcntl = pytest.importorskip("fcntl")


def test_the_lock_names_its_process_and_goes_with_the_block(tmp_path: Path) -> None:
    file = tmp_path / "new" / LOCK
    with locked(file, tmp_path):
        assert file.read_text() == f"{os.getpid()}\n"
    assert not file.exists()
    with pytest.raises(ZeroDivisionError), locked(file, tmp_path):
        raise ZeroDivisionError
    assert not file.exists()


def test_a_second_holder_is_told_who_the_first_is(tmp_path: Path) -> None:
    file = tmp_path / LOCK
    with locked(file, tmp_path):
        says = f"{tmp_path}: process {os.getpid()} is writing here; wait until it ends, or name"
        with pytest.raises(UsageError, match=says), locked(file, tmp_path):
            pass
        file.write_text("who knows")
        with pytest.raises(UsageError, match="another process is writing"), locked(file, tmp_path):
            pass
    with locked(file, tmp_path):
        pass


def test_where_the_system_knows_no_locks_nothing_is_guarded(tmp_path: Path, monkeypatch) -> None:
    def none(descriptor: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", none)
    with locked(tmp_path / LOCK, tmp_path), locked(tmp_path / LOCK, tmp_path):
        pass


def test_other_faults_of_the_lock_are_passed_on_and_nothing_stays_open(tmp_path, monkeypatch):
    def broken(descriptor: int, how: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(fcntl, "flock", broken)
    with pytest.raises(OSError, match="Input/output"), locked(tmp_path / LOCK, tmp_path):
        pass
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_lock_that_was_removed_meanwhile_is_taken_anew(tmp_path: Path, monkeypatch) -> None:
    """Its holder removes the file while another one has it open already."""
    answers = iter([False, False, True])
    monkeypatch.setattr(locks, "_is_still", lambda descriptor, file: next(answers))
    with locked(tmp_path / LOCK, tmp_path):
        assert next(answers, None) is None


def test_who_never_gets_the_lock_gives_up_with_a_sentence(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(locks, "_is_still", lambda descriptor, file: False)
    with (
        pytest.raises(UsageError, match="other processes keep writing here; name another folder"),
        locked(tmp_path / LOCK, tmp_path),
    ):
        pass


def test_a_folder_that_its_holder_has_just_removed_is_made_again(tmp_path: Path, monkeypatch):
    opened, real = [], os.open

    def once_missing(path, *how: int) -> int:
        opened.append(path)
        if len(opened) == 1:
            raise FileNotFoundError(errno.ENOENT, "No such file", str(path))
        return real(path, *how)

    monkeypatch.setattr(locks.os, "open", once_missing)
    with locked(tmp_path / LOCK, tmp_path):
        assert len(opened) == 2


def test_a_file_is_still_the_one_that_was_opened_or_not(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.touch()
    descriptor = os.open(file, os.O_RDONLY)
    try:
        assert locks._is_still(descriptor, file)
        file.rename(tmp_path / "b")
        assert not locks._is_still(descriptor, file)
        file.touch()
        assert not locks._is_still(descriptor, file)
    finally:
        os.close(descriptor)
