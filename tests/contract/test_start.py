"""Commands that only read and write traces start without torch, in little time and memory."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from layerdag.cli.main import main

EXAMPLE = str(Path(__file__).resolve().parents[2] / "data/examples/ddp_mlp")
RUN = r"""
import re, sys
from layerdag.cli.main import main
code = main(sys.argv[1:])
kilobytes = re.search(r"VmHWM:\s+(\d+)", open("/proc/self/status").read())[1]
print(code, "torch" in sys.modules, int(kilobytes) >> 10, file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("words", "megabytes"),
    [
        ("info TRACE", 100),
        ("validate TRACE", 100),
        ("simulate TRACE --preset small", 100),
        ("convert TRACE --out OUT/copy", 100),
        ("diff TRACE TRACE", 100),
        ("scale TRACE --ranks 8 --out OUT/larger", 100),
        ("view TRACE --out OUT/page.html", 100),
        ("view TRACE --out OUT/picture.svg", 100),
        ("view TRACE --to chrome --out OUT/times.json", 100),
    ],
)
def test_a_trace_is_read_without_torch(words: str, megabytes: int, tmp_path: Path) -> None:
    command = words.replace("TRACE", EXAMPLE).replace("OUT", str(tmp_path)).split()
    done = subprocess.run(
        [sys.executable, "-c", RUN, *command], capture_output=True, text=True, check=True
    )
    code, has_torch, used = done.stderr.splitlines()[-1].split()
    assert (code, has_torch) == ("0", "False"), done.stderr
    assert int(used) <= megabytes


@pytest.mark.parametrize("verb", ["info", "view", "validate", "diff", "scale", "simulate"])
def test_the_first_examples_of_the_help_work_without_a_checkout(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    example = importlib.import_module(f"layerdag.cli.commands.{verb}").EXAMPLE
    commands = [line.split("#")[0].split()[1:] for line in example.splitlines()]
    used = next(at for at, words in enumerate(commands) if words[0] == verb)
    assert used > 0
    for words in commands[: used + 1]:
        assert main(words) == (1 if words[0] == "diff" else 0)  # 1: they differ
