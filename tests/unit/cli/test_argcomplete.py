"""What argcomplete offers to a shell for a line that ends at the cursor."""

import subprocess
import sys

import pytest

from layerdag.cli.main import ROOM_OF


def offered(line: str, folder) -> list[str]:
    answer = folder / "answer"
    environment = {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(answer),
        "_ARGCOMPLETE_IFS": "\n",
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
        "COMP_TYPE": "9",
        "PATH": "/usr/bin:/bin",
    }
    words = [sys.executable, "-m", "layerdag.cli.main"]
    subprocess.run(words, env=environment, cwd=folder, check=True, capture_output=True)
    return [word.strip() for word in answer.read_text().splitlines()]


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("sa", ["sample"]),
        ("info tr", ["trace.0.et"]),
        ("train --no-con", ["--no-console"]),
        ("workload stag", ["stage"]),
        ("workload stage --num_st", ["--num_stacks"]),
    ],
)
def test_verbs_flags_and_files_are_completed(line, wanted, tmp_path):
    (tmp_path / "trace.0.et").write_text("")
    assert offered(f"layerdag {line}", tmp_path) == wanted


def test_every_verb_is_offered(tmp_path):
    assert {*ROOM_OF} <= {*offered("layerdag ", tmp_path)}
