import os
import subprocess
import sys
from pathlib import Path

import pytest

from layerdag.cli import main
from layerdag.cli._faults import TRACEBACK
from layerdag.cli.verbs.traces import _info as info
from layerdag.errors import DataError, UsageError

FAULTS = [
    (DataError("x.et: is cut off."), 1, "x.et: is cut off."),
    (UsageError("--a is wrong."), 2, "--a is wrong."),
    (MemoryError(), 1, "not enough memory"),
    (RuntimeError("CUDA out of memory. Tried to allocate"), 1, "not enough memory"),
    (OverflowError("int too large to convert to float"), 1, "number is too large"),
    (RecursionError("maximum recursion depth exceeded"), 1, "nested too deeply"),
    (RuntimeError("shape [2] is invalid\nmore"), 1, "shape [2] is invalid. If the input is sound"),
    (PermissionError(13, "Permission denied", "/x"), 1, "/x: Permission denied. Check"),
    (OSError(28, "No space left on device", "out/a"), 1, "out/a: No space left on device"),
]


@pytest.mark.parametrize(("error", "code", "words"), FAULTS)
def test_what_was_foreseen_is_one_line(
    error: Exception,
    code: int,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(info, "run", raising(error))
    assert main(["info", "x"]) == code
    shown = capsys.readouterr().err
    assert words in shown
    assert shown.count("\n") == 1


def raising(error: BaseException):
    def run(args: object) -> int:
        raise error

    return run


def test_the_environment_asks_for_the_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(TRACEBACK, "1")
    monkeypatch.setattr(info, "run", raising(DataError("x.et: is cut off.")))
    assert main(["info", "x"]) == 1
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("error", [TypeError("a"), AssertionError(), KeyError("k"), ValueError()])
def test_a_fault_of_the_program_shows_its_traceback_and_asks_for_a_report(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(info, "run", raising(error))
    assert main(["info", "x"]) == 70
    shown = capsys.readouterr().err
    assert "Traceback" in shown
    assert "please report" in shown.splitlines()[-1]


def test_exits_and_interrupts_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(info, "run", raising(SystemExit(7)))
    with pytest.raises(SystemExit) as stop:
        main(["info", "x"])
    assert stop.value.code == 7
    monkeypatch.setattr(info, "run", raising(KeyboardInterrupt()))
    assert main(["info", "x"]) == 130


def test_a_sentence_has_an_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(info, "run", raising(DataError("x" * 100_000)))
    main(["info", "x"])
    assert len(capsys.readouterr().err) < 3000


@pytest.mark.parametrize("word", ["nosuch.json", "nosuch"])
def test_a_missing_file_is_called_missing(
    word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["convert", str(tmp_path / word), "--out", str(tmp_path / "x")]) == 1
    assert f"{word}: there is no such file or folder" in capsys.readouterr().err


def test_a_device_is_no_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", os.devnull, "--out", str(tmp_path / "x")]) == 1
    assert "is neither a file nor a folder" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["sample", "train"])
def test_a_folder_that_cannot_be_made_is_one_line(verb: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    words = {"sample": ["num=1", "best_of=1", "max_nodes=3"], "train": ["data.families=[mlp]"]}
    command = [sys.executable, "-m", "layerdag.cli._main", verb, *words[verb]]
    done = subprocess.run(
        [*command, f"out={tmp_path}/file/x"], capture_output=True, text=True, check=False
    )
    assert done.returncode in (1, 2)
    assert done.stderr.splitlines()[-1].startswith("layerdag: error:")
    assert "Traceback" not in done.stderr
