"""Stages: a line each in a log, a bar on a terminal, nothing unless asked for."""

import io
import logging
import logging.config
import re
import sys
from collections.abc import Iterator

import pytest

from layerdag.runtime.progress import log_stages, stage, stages, track


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    yield
    log = logging.getLogger("layerdag.stages")
    log.handlers.clear()
    log.propagate = True


def test_each_stage_is_a_line_in_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    log_stages()
    log_stages()
    with stages(3), stage("copies"), stage("attacks by 30 samples", 2):
        pass
    lines = capsys.readouterr().err.splitlines()
    assert [re.sub(r"[0-9.]+ s$", "", line) for line in lines] == [
        "layerdag: attacks by 30 samples: ",
        "layerdag: copies: ",
    ]


def test_a_configuration_of_logging_that_switches_loggers_off_is_undone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logging.config.dictConfig({"version": 1, "disable_existing_loggers": True})
    log_stages()
    with stages(1), stage("copies"):
        pass
    assert capsys.readouterr().err.startswith("layerdag: copies: ")


def test_nothing_is_told_unless_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    with stages(1), stage("copies"):
        assert list(track([1, 2], "numbers")) == [1, 2]
    assert capsys.readouterr().err == ""


def test_a_terminal_shows_one_bar_with_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    log_stages()
    with stages(4):
        with stage("copies", 1):
            pass
        with stage("attacks", 3):
            pass
    shown = terminal.getvalue()
    assert "copies:   0%" in shown
    assert "attacks:  25%" in shown
    assert "<" in shown
    assert "layerdag:" not in shown


def test_a_stage_that_fails_is_not_told_as_done(capsys: pytest.CaptureFixture[str]) -> None:
    log_stages()
    with pytest.raises(ValueError, match="broken"), stages(1), stage("copies"):
        raise ValueError("broken")
    assert capsys.readouterr().err == ""
