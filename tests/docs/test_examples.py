"""Every script in ``examples`` runs as a user would run it, in a folder of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).resolve().parents[2] / "examples").glob("*.py"))


@pytest.mark.slow
@pytest.mark.docs
@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.name)
def test_the_script_runs_and_leaves_nothing_behind(script: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert not list(tmp_path.iterdir())


def test_the_quickstart_is_short() -> None:
    (quickstart,) = [path for path in EXAMPLES if path.name == "quickstart.py"]
    assert len(quickstart.read_text().splitlines()) <= 35
