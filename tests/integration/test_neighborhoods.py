"""The benchmark of neighborhoods finds what real jobs of the corpus were measured to have."""

import json
import subprocess
import sys

import pytest

KNOWN = {"novelty": (6, 38, 65), "repetition": (72, 61, 51)}
"""Percent of nodes at radius 1, 2 and 3, by an independent count on rank 0's traces."""


@pytest.mark.slow
def test_real_jobs_have_the_known_figures(repository):
    done = subprocess.run(
        [sys.executable, "benchmarks/neighborhoods.py", "data"],
        cwd=repository,
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    for kind, percents in KNOWN.items():
        for radius, percent in enumerate(percents, start=1):
            name = f"neighborhood_{kind}:{radius}"
            value, low, high = found["rank 0"]["test"][name]
            assert value == pytest.approx(percent, abs=0.6)
            assert low < value < high
            # Folded, the ranks of a job are one graph: close to that, and not the same.
            assert found["folded"]["test"][name][0] == pytest.approx(percent, abs=4)
