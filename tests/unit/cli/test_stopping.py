"""Signals and closed pipes, as every verb meets them."""

import os
import signal
import sys
import threading

import pytest

from layerdag._version import __version__
from layerdag.cli import Terminated, main
from layerdag.cli._stopping import exit_code, terminating
from layerdag.cli.verbs.traces import _info as info


def test_sigterm_inside_a_verb_ends_it_with_143(monkeypatch, capsys) -> None:
    def run(args: object) -> int:
        os.kill(os.getpid(), signal.SIGTERM)
        raise AssertionError("the signal must have ended the verb")

    monkeypatch.setattr(info, "run", run)
    assert main(["info", "x"]) == 143
    assert capsys.readouterr().err == "layerdag: stopped by SIGTERM\n"


def test_what_a_verb_says_on_its_way_out_is_told(monkeypatch, capsys) -> None:
    def run(args: object) -> int:
        raise KeyboardInterrupt("3 samples are kept.")

    monkeypatch.setattr(info, "run", run)
    assert main(["info", "x"]) == 130
    assert capsys.readouterr().err == "layerdag: stopped by the keyboard: 3 samples are kept.\n"


def test_the_handler_of_before_is_back_afterwards() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with terminating():
        assert signal.getsignal(signal.SIGTERM) is not before
        with pytest.raises(Terminated):
            signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before


def test_other_threads_leave_signals_alone() -> None:
    found = []

    def look() -> None:
        with terminating():
            found.append(signal.getsignal(signal.SIGTERM))

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [before]


def test_exit_codes_are_those_of_shells() -> None:
    assert exit_code(KeyboardInterrupt()) == 128 + signal.SIGINT == 130
    assert exit_code(Terminated()) == 128 + signal.SIGTERM == 143


def test_a_reader_that_went_away_is_no_error(monkeypatch, tmp_path) -> None:
    def run(args: object) -> int:
        raise BrokenPipeError

    monkeypatch.setattr(info, "run", run)
    with (tmp_path / "out").open("w") as out:
        monkeypatch.setattr(sys, "stdout", out)
        assert main(["info", "x"]) == 0
        # What is printed afterwards, as Python does when it ends, goes nowhere.
        out.write("more")
    assert (tmp_path / "out").read_text() == ""


def test_the_version_is_told(capsys) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"layerdag {__version__}\n"


def test_a_verb_unlike_any_other_gets_the_list_of_all(capsys) -> None:
    assert main(["xyzzy"]) == 2
    assert "Known: collect, convert, info," in capsys.readouterr().err


def test_help_alone_lists_the_verbs(capsys) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["help"])
    assert stop.value.code == 0
    assert "simulated clusters:" in capsys.readouterr().out
