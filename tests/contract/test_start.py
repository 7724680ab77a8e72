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
for command in sys.argv[1:]:
    code = main(command.split())
    kilobytes = re.search(r"VmHWM:\s+(\d+)", open("/proc/self/status").read())[1]
    print(code, "torch" in sys.modules, int(kilobytes) >> 10, command, file=sys.stderr)
"""


COMMANDS = """\
info TRACE
validate TRACE
simulate TRACE --preset small
convert TRACE --out OUT/copy
diff TRACE TRACE
view TRACE --out OUT/page.html
view TRACE --to chrome --out OUT/times.json
view TRACE --out OUT/picture.svg
"""
MEGABYTES = 100
PICTURE_MEGABYTES = 140  # matplotlib draws it; last, since the peak of the process counts


def test_traces_are_read_without_torch(tmp_path):
    """One process for all commands: together they stay below what each of them may take."""
    commands = COMMANDS.replace("TRACE", EXAMPLE).replace("OUT", str(tmp_path)).splitlines()
    done = subprocess.run(
        [sys.executable, "-c", RUN, *commands], capture_output=True, text=True, check=True
    )
    told = [row.split(maxsplit=3) for row in done.stderr.splitlines() if row.endswith((*commands,))]
    assert [row[3] for row in told] == commands
    for code, has_torch, used, command in told:
        assert (code, has_torch) == ("0", "False"), done.stderr
        limit = PICTURE_MEGABYTES if command.endswith(".svg") else MEGABYTES
        assert int(used) <= limit, command


HEAVY = [
    "torch._dynamo", "torch._inductor", "sympy", "scipy.optimize", "scipy.spatial", "sklearn",
    "matplotlib", "pandas", "wandb",
]  # fmt: skip
"""What takes tenths of a second to import, and the first step and the first job can do without."""
STARTED = """\
import sys
import layerdag.cli.compose, layerdag.training.loop, layerdag.sampling.folder
import layerdag.privacy.auditing  # whether enough graphs are held out
import torch
from layerdag.dag.dag import DAG, GraphSizes
from layerdag.dag.statistics import GraphStatistics
from layerdag.models.spec import ModelSpec, build_without_weights
sizes = GraphSizes((4, 2), 2, 1, (3,))
two = DAG.build(torch.tensor([[0, 1], [3, 0]]), torch.tensor([[0], [1]]))
for name in ("fast", "reference"):
    build_without_weights(ModelSpec(name, sizes, GraphStatistics.measure([two], sizes)))
print(*set(sys.argv[1:]) & set(sys.modules))
"""


def test_training_and_sampling_start_without_what_they_can_do_without():
    words = [sys.executable, "-c", STARTED, *HEAVY]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == "\n"


@pytest.mark.parametrize("verb", ["info", "view", "validate", "diff", "simulate"])
def test_the_first_examples_of_the_help_work_without_a_checkout(verb, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    example = importlib.import_module(f"layerdag.cli.commands.{verb}").EXAMPLE
    commands = [line.split("#")[0].split()[1:] for line in example.splitlines()]
    used = next(at for at, words in enumerate(commands) if words[0] == verb)
    assert used > 0
    for words in commands[: used + 1]:
        assert main(words) == (1 if words[0] == "diff" else 0)  # 1: they differ
