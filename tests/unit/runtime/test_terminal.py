"""Names from outside command no terminal."""

import io
import json
import logging
import logging.config
import re
import sys
from collections.abc import Iterator

import pytest

from layerdag.cli.main import main
from layerdag.runtime.terminal import (
    EscapedStream,
    escaped,
    escaped_output,
    log_stages,
    one_line,
    plain_stream,
    stage,
    stages,
    track,
)
from layerdag.traces.builder import NodeSpec, build_trace
from layerdag.traces.chakra.files import write_trace
from layerdag.traces.trace import NodeType

HOSTILE = "x\x1b[2J\x1b]0;pwn\x07\x9b31m\u202e\u2028\r\nfake\x7f"


def test_controls_are_shown_as_json_has_them_and_text_stays():
    assert escaped("a\tb\nÄ 漢 \udcc3") == "a\tb\nÄ 漢 \udcc3"
    shown = escaped(HOSTILE)
    assert shown.replace("\n", "").isprintable()
    assert json.loads(f'"{one_line(HOSTILE)}"') == HOSTILE


def test_all_that_is_printed_is_escaped_but_progress_bars():
    stream = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        with escaped_output():
            sys.stdout.write(HOSTILE)
            sys.stdout.writelines([HOSTILE, "\n"])
            assert plain_stream(sys.stdout) is stream
            with escaped_output():  # escaped once
                assert plain_stream(sys.stdout) is stream
        assert sys.stdout is stream
    assert stream.getvalue() == f"{escaped(HOSTILE)}{escaped(HOSTILE)}\n"
    assert EscapedStream(stream).getvalue() == stream.getvalue()


def test_names_in_files_and_of_files_command_no_terminal(tmp_path, capsys):
    write_trace(build_trace([NodeSpec(0, HOSTILE, NodeType.COMP)]), tmp_path / "a.et")
    for argument in ("a.et", f"{HOSTILE}.et"):
        main(["info", str(tmp_path / argument)])
        printed = "".join(capsys.readouterr())
        assert "x\\u001b[2J" in printed
        assert printed == escaped(printed)
        assert "\nfake" not in printed


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    yield
    log = logging.getLogger("layerdag.stages")
    log.handlers.clear()
    log.propagate = True


def test_each_stage_is_a_line_in_a_log(capsys):
    log_stages()
    log_stages()
    with stages(3), stage("copies"), stage("attacks by 30 samples", 2):
        pass
    lines = capsys.readouterr().err.splitlines()
    assert [re.sub(r"[0-9.]+ s$", "", line) for line in lines] == [
        "layerdag: attacks by 30 samples: ",
        "layerdag: copies: ",
    ]


def test_a_configuration_of_logging_that_switches_loggers_off_is_undone(capsys):
    logging.config.dictConfig({"version": 1, "disable_existing_loggers": True})
    log_stages()
    with stages(1), stage("copies"):
        pass
    assert capsys.readouterr().err.startswith("layerdag: copies: ")


def test_nothing_is_told_unless_asked_for(capsys):
    with stages(1), stage("copies"):
        assert list(track([1, 2], "numbers")) == [1, 2]
    assert capsys.readouterr().err == ""


def test_a_terminal_shows_one_bar_with_the_time_left(monkeypatch):
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


def test_a_stage_that_fails_is_not_told_as_done(capsys):
    log_stages()
    with pytest.raises(ValueError, match="broken"), stages(1), stage("copies"):
        raise ValueError("broken")
    assert capsys.readouterr().err == ""
