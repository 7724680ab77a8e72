"""The benchmark of local structure finds no fault in real jobs."""

import json
import subprocess
import sys

import pytest


@pytest.mark.slow
def test_real_jobs_have_the_known_figures(repository):
    done = subprocess.run(
        [sys.executable, "benchmarks/local_structure.py", "data", "--json"],
        cwd=repository,
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    for figures in found.values():
        for law in ("bytes", "flops", "bounds"):
            assert figures["real"][f"shape_violation:{law}"][0] == 0.0
        low, high = figures["real"]["node_classifier"][1:]
        assert low - 0.02 < 0.5 < high
    assert found["folded"]["jobs"] == {"train": 751, "test": 151}
    for name in ("backward_without_forward", "step_without_gradient"):
        assert found["folded"]["real"][name][0] == 0.0
        # The other stages of a pipeline are on other ranks.
        assert 0.0 < found["rank 0"]["real"][name][0] < 0.05
