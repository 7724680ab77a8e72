"""Locks of folders: one holder, gone with it."""

import ctypes
import errno
import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from killing import killed_at

from layerdag.errors import UsageError
from layerdag.runtime import files
from layerdag.runtime.files import LOCK, FolderKind, file_lock


def doubt(folder: Path) -> str:
    """Return why a folder is not one of the words that these tests write."""
    return "" if (folder / "word").is_file() else "has no word"


WORDS = FolderKind("words", doubt)


def write_word(target: Path, word: str, *, overwrite: bool = True) -> None:
    with files.atomic_folder(target, WORDS, overwrite=overwrite) as draft:
        (draft / "word").write_text(word)


def word_in(target: Path) -> str:
    return (target / "word").read_text()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture(params=["exchange", "two renames"])
def way(request, monkeypatch) -> str:
    """Replace directories with the system's exchange, and as where there is none."""
    if request.param == "two renames":
        monkeypatch.setattr(files, "swap_names", lambda one, other: False)
    return str(request.param)


def test_file_is_replaced_whole(tmp_path):
    target = tmp_path / "a" / "b.txt"
    files.write_text(target, "one")
    files.write_text(target, "two")
    assert target.read_text() == "two"
    assert names(target.parent) == ["b.txt"]


@pytest.mark.parametrize("dropping", [".DS_Store", "Thumbs.db", "desktop.ini", files.LOCK])
def test_what_systems_and_locks_leave_is_no_stranger(tmp_path, dropping):
    (tmp_path / dropping).touch()
    (tmp_path / "word").touch()
    assert files.unexpected_files(tmp_path, {"word"}.__contains__) == ""
    (tmp_path / "thesis.txt").touch()
    assert "holds 'thesis.txt'" in files.unexpected_files(tmp_path, {"word"}.__contains__)


def test_a_killed_draft_of_a_known_name_is_no_stranger(tmp_path):
    assert killed_at(2, lambda: files.write_text(tmp_path / "word", "x"))
    assert names(tmp_path) == [".word.draft"]
    assert files.unexpected_files(tmp_path, {"word"}.__contains__) == ""
    assert "holds 'word'" in files.unexpected_files(tmp_path, {"other"}.__contains__)
    (tmp_path / ".word.draft" / LOCK).rename(tmp_path / ".word.draft" / "thesis")
    assert "holds '.word.draft'" in files.unexpected_files(tmp_path, {"word"}.__contains__)


def test_failure_leaves_the_old_file_and_nothing_else(tmp_path):
    target = tmp_path / "b.txt"
    files.write_text(target, "one")
    with pytest.raises(ValueError, match="no"):
        _write_half_and_fail(target)
    assert target.read_text() == "one"
    assert names(tmp_path) == ["b.txt"]


def test_a_file_does_not_replace_a_folder(tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter").touch()
    with pytest.raises(UsageError, match="is a folder; name a file"):
        files.write_text(tmp_path / "thesis", "x")
    assert names(tmp_path / "thesis") == ["chapter"]


def test_a_link_keeps_pointing_to_what_was_written(tmp_path):
    (tmp_path / "place").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "place" / "real.txt")
    files.write_text(tmp_path / "link", "x")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "place" / "real.txt").read_text() == "x"


def test_a_device_is_written_to_and_not_replaced(tmp_path):
    files.write_text("/dev/null", "x")
    assert not Path("/dev/null").is_file()


def test_directory_is_replaced_whole(tmp_path, way):
    target = tmp_path / "run"
    for word in ("one", "two"):
        write_word(target, word)
    assert word_in(target) == "two"
    assert names(tmp_path) == ["run"]


def test_only_an_allowed_replacement_is_made(tmp_path):
    write_word(tmp_path / "run", "one")
    with pytest.raises(UsageError, match=r"holds words already; .*overwrite"):
        write_word(tmp_path / "run", "two", overwrite=False)
    assert word_in(tmp_path / "run") == "one"


@pytest.mark.parametrize("overwrite", [True, False])
def test_a_foreign_folder_is_never_replaced(tmp_path, overwrite):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter").touch()
    with pytest.raises(UsageError, match="has no word, so it is never replaced by words"):
        write_word(tmp_path / "thesis", "x", overwrite=overwrite)
    assert names(tmp_path / "thesis") == ["chapter"]
    assert names(tmp_path) == ["thesis"]


def test_an_empty_folder_is_filled_and_a_file_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    write_word(tmp_path / "empty", "x", overwrite=False)
    assert word_in(tmp_path / "empty") == "x"
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="is a file; name a folder for words"):
        write_word(tmp_path / "file", "x")


FAULTS = {
    "full disk": OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
    "second Ctrl-C": KeyboardInterrupt(),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_an_old_directory_survives_a_failing_swap(tmp_path, monkeypatch, fault):
    target = tmp_path / "run"
    write_word(target, "old")
    monkeypatch.setattr(files, "swap_names", lambda one, other: False)
    real, calls = os.rename, []

    def rename(source: Path, to: Path) -> None:
        calls.append(source)
        if len(calls) == 2:
            raise FAULTS[fault]
        real(source, to)

    monkeypatch.setattr(os, "rename", rename)
    with pytest.raises(type(FAULTS[fault])):
        write_word(target, "new")
    assert word_in(target) == "old"
    assert names(tmp_path) == ["run"]


def test_a_failure_of_the_disk_names_the_target(tmp_path, monkeypatch):
    def full(*ignored: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space") as caught:
        files.write_text(tmp_path / "b.txt", "x")
    assert caught.value.filename == str(tmp_path / "b.txt")


@pytest.mark.parametrize("elsewhere", [False, True])
def test_an_error_about_the_draft_names_the_target_and_any_other_its_own_file(
    tmp_path, monkeypatch, elsewhere
):
    def refused(source: object, target: object) -> None:
        named = "/etc/other" if elsewhere else str(source)
        raise OSError(errno.EACCES, os.strerror(errno.EACCES), named)

    monkeypatch.setattr(os, "replace", refused)
    with pytest.raises(OSError, match="Permission denied") as caught:
        files.write_text(tmp_path / "b.txt", "x")
    assert caught.value.filename == ("/etc/other" if elsewhere else str(tmp_path / "b.txt"))
    assert caught.value.filename2 is None


def test_a_draft_that_does_not_fit_on_the_disk_names_the_target(tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(OSError, match="File too large") as caught:
            files.write_bytes(tmp_path / "b", bytes(2000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert caught.value.filename == str(tmp_path / "b")
    assert names(tmp_path) == []


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path[:0] = {path!r}
from layerdag.runtime.files import FolderKind
from layerdag.runtime import files

def die(*ignored): os.kill(os.getpid(), signal.SIGKILL)

{fault}
with files.atomic_folder(sys.argv[1], FolderKind("words", lambda f: ""), overwrite=True) as draft:
    (draft / "word").write_text("new")
    {inside}
"""
BETWEEN = """
files.swap_names = lambda one, other: False
rename, calls = os.rename, []
def second(a, b):
    calls.append(a)
    die() if len(calls) == 2 else rename(a, b)
os.rename = second
"""


def killed(target: Path, fault: str = "", inside: str = "") -> None:
    """Replace ``target`` in another process that is killed on the way."""
    script = KILLED.format(path=sys.path, fault=fault, inside=inside)
    done = subprocess.run([sys.executable, "-c", script, str(target)], check=False)
    assert done.returncode == -signal.SIGKILL


@pytest.mark.parametrize("next_step", [files.recover, lambda target: write_word(target, "newer")])
def test_a_directory_set_aside_by_a_killed_process_comes_back(tmp_path, next_step):
    target = tmp_path / "run"
    write_word(target, "old")
    killed(target, fault=BETWEEN)
    assert not target.exists(), "the test needs a kill between the two renames"
    next_step(target)
    assert word_in(target) in ("old", "newer")
    assert names(tmp_path) == ["run"]


def test_the_draft_of_a_killed_process_is_cleared_by_the_next_write(tmp_path):
    target = tmp_path / "run"
    write_word(target, "old")
    killed(target, inside="die()")
    assert names(tmp_path) == [".run.draft", "run"]
    assert word_in(target) == "old"
    write_word(target, "new")
    assert (word_in(target), names(tmp_path)) == ("new", ["run"])


def test_a_folder_with_the_name_of_a_draft_that_is_not_ours_is_left_alone(tmp_path):
    foreign = tmp_path / ".run.draft" / "run"
    foreign.mkdir(parents=True)
    with pytest.raises(UsageError, match="not provably one of layerdag's"):
        write_word(tmp_path / "run", "x")
    with pytest.raises(UsageError, match="not provably one of layerdag's"):
        files.recover(tmp_path / "run")
    assert foreign.is_dir()


def test_two_writers_of_one_folder_get_a_sentence_and_not_each_others_files(tmp_path):
    target = tmp_path / "run"
    with files.atomic_folder(target, WORDS, overwrite=True) as draft:
        (draft / "word").write_text("first")
        with pytest.raises(UsageError, match=f"run: process {os.getpid()} is writing here"):
            write_word(target, "second")
    assert (word_in(target), names(tmp_path)) == ("first", ["run"])


CONTENDER = """
import sys
sys.path[:0] = {path!r}
from layerdag.runtime.files import FolderKind
from layerdag.runtime import files as files
from layerdag.errors import UsageError
for i in range(30):
    try:
        with files.atomic_folder(sys.argv[1], FolderKind("w", lambda f: ""), overwrite=True) as d:
            for name in "abc":
                (d / name).write_text(sys.argv[2])
    except UsageError:
        pass
"""


def test_processes_that_contend_for_a_folder_never_mix_or_lose_it(tmp_path):
    target = tmp_path / "run"
    write_word(target, "x")
    script = CONTENDER.format(path=sys.path)
    started = [subprocess.Popen([sys.executable, "-c", script, str(target), w]) for w in "12"]
    while any(process.poll() is None for process in started):
        assert target.is_dir()
    assert [process.returncode for process in started] == [0, 0]
    assert len({path.read_text() for path in target.iterdir()}) == 1
    assert names(tmp_path) == ["run"]


def test_an_exchange_that_the_system_refuses_for_good_reason_is_an_error(tmp_path):
    (tmp_path / "a").mkdir()
    with pytest.raises(FileNotFoundError):
        files.swap_names(tmp_path / "a", tmp_path / "missing")


def test_exchange_swaps_two_directories(tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "word").write_text(name)
    if not files.swap_names(tmp_path / "a", tmp_path / "b"):
        pytest.skip("this system cannot exchange two names")
    assert (word_in(tmp_path / "a"), word_in(tmp_path / "b")) == ("b", "a")
    shutil.rmtree(tmp_path / "a")


def test_all_is_on_the_disk_before_the_old_directory_goes(tmp_path, monkeypatch):
    synced: list[str] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        real(descriptor)

    write_word(tmp_path / "run", "one")
    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(files, "swap_names", lambda one, other: synced.append("exchanged") or False)
    write_word(tmp_path / "run", "two")
    assert synced == ["word", "run", "exchanged", tmp_path.name]


def _write_half_and_fail(target: Path) -> None:
    with files.atomic_path(target) as draft:
        draft.write_text("half")
        raise ValueError("no")


fcntl = pytest.importorskip("fcntl")


def test_the_lock_names_its_process_and_goes_with_the_block(tmp_path):
    file = tmp_path / "new" / LOCK
    with file_lock(file, tmp_path):
        assert file.read_text() == f"{os.getpid()}\n"
    assert not file.exists()
    with pytest.raises(ZeroDivisionError), file_lock(file, tmp_path):
        raise ZeroDivisionError
    assert not file.exists()


def test_a_second_holder_is_told_who_the_first_is(tmp_path):
    file = tmp_path / LOCK
    with file_lock(file, tmp_path):
        says = f"{tmp_path}: process {os.getpid()} is writing here; wait until it ends, or name"
        with pytest.raises(UsageError, match=says), file_lock(file, tmp_path):
            pass
        file.write_text("who knows")
        with (
            pytest.raises(UsageError, match="another process is writing"),
            file_lock(file, tmp_path),
        ):
            pass
    with file_lock(file, tmp_path):
        pass


def test_where_the_system_knows_no_locks_nothing_is_guarded(tmp_path, monkeypatch):
    def none(descriptor: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", none)
    with file_lock(tmp_path / LOCK, tmp_path), file_lock(tmp_path / LOCK, tmp_path):
        pass


def test_other_faults_of_the_lock_are_passed_on_and_nothing_stays_open(tmp_path, monkeypatch):
    def broken(descriptor: int, how: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(fcntl, "flock", broken)
    with pytest.raises(OSError, match="Input/output"), file_lock(tmp_path / LOCK, tmp_path):
        pass
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_lock_that_was_removed_meanwhile_is_taken_anew(tmp_path, monkeypatch):
    """Its holder removes the file while another one has it open already."""
    answers = iter([False, False, True])
    monkeypatch.setattr(files, "_is_still", lambda descriptor, file: next(answers))
    with file_lock(tmp_path / LOCK, tmp_path):
        assert next(answers, None) is None


def test_who_never_gets_the_lock_gives_up_with_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_is_still", lambda descriptor, file: False)
    with (
        pytest.raises(UsageError, match="other processes keep writing here; name another folder"),
        file_lock(tmp_path / LOCK, tmp_path),
    ):
        pass


def test_a_folder_that_its_holder_has_just_removed_is_made_again(tmp_path, monkeypatch):
    opened, real = [], os.open

    def once_missing(path, *how: int) -> int:
        opened.append(path)
        if len(opened) == 1:
            raise FileNotFoundError(errno.ENOENT, "No such file", str(path))
        return real(path, *how)

    monkeypatch.setattr(files.os, "open", once_missing)
    with file_lock(tmp_path / LOCK, tmp_path):
        assert len(opened) == 2


def test_a_file_is_still_the_one_that_was_opened_or_not(tmp_path):
    file = tmp_path / "a"
    file.touch()
    descriptor = os.open(file, os.O_RDONLY)
    try:
        assert files._is_still(descriptor, file)
        file.rename(tmp_path / "b")
        assert not files._is_still(descriptor, file)
        file.touch()
        assert not files._is_still(descriptor, file)
    finally:
        os.close(descriptor)


def system(monkeypatch: pytest.MonkeyPatch, function) -> None:
    """Let the C library have this ``renameat2``, or none."""
    library = SimpleNamespace() if function is None else SimpleNamespace(renameat2=function)
    monkeypatch.setattr(ctypes, "CDLL", lambda *more, **named: library)


@pytest.mark.parametrize("code", [None, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP])
def test_a_system_that_cannot_exchange_says_so(tmp_path, monkeypatch, code):
    if code is not None:
        monkeypatch.setattr(ctypes, "get_errno", lambda: code)
    system(monkeypatch, None if code is None else lambda *names: -1)
    assert files.swap_names(tmp_path / "a", tmp_path / "b") is False


def test_an_exchange_that_failed_names_both(tmp_path, monkeypatch):
    monkeypatch.setattr(ctypes, "get_errno", lambda: errno.EACCES)
    system(monkeypatch, lambda *names: -1)
    with pytest.raises(PermissionError) as caught:
        files.swap_names(tmp_path / "a", tmp_path / "b")
    assert (caught.value.filename, caught.value.filename2) == (
        str(tmp_path / "a"), str(tmp_path / "b"),
    )  # fmt: skip


@pytest.mark.parametrize("can_exchange", [True, False])
def test_the_old_directory_ends_aside_and_the_new_one_in_its_place(
    tmp_path, monkeypatch, can_exchange
):
    made, target, aside = (tmp_path / name for name in ("made", "target", "aside"))
    for folder in (made, target):
        folder.mkdir()
        (folder / folder.name).touch()
    if not can_exchange:
        monkeypatch.setattr(files, "swap_names", lambda one, other: False)
    files.swap(made, target, aside)
    assert [path.name for path in target.iterdir()] == ["made"]
    assert [path.name for path in aside.iterdir()] == ["target"]
    assert not made.exists()


def test_what_was_set_aside_comes_back_only_to_a_free_place(tmp_path):
    aside, target = tmp_path / "aside", tmp_path / "target"
    aside.mkdir()
    target.mkdir()
    files.restore(aside, target)
    assert aside.exists()
    target.rmdir()
    files.restore(aside, target)
    assert target.exists()
    assert not aside.exists()
    files.restore(aside, target)  # nothing is there any more


@pytest.mark.parametrize("code", [errno.EINVAL, errno.EBADF, errno.EIO])
def test_a_file_system_that_cannot_sync_is_no_fault_and_a_broken_disk_is(
    tmp_path, monkeypatch, code
):
    def fails(descriptor: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", fails)
    if code != errno.EIO:
        files.sync(tmp_path)
        return
    with pytest.raises(OSError, match="Input/output error"):
        files.sync(tmp_path)
