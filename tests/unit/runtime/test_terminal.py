"""Names from outside command no terminal."""

import io
import json
import sys

import pytest

from layerdag.cli.main import main
from layerdag.runtime.terminal import EscapedStream, escaped, escaped_output, one_line, plain_stream
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
