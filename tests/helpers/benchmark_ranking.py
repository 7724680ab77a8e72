"""benchmarks/ranking.py, which is no part of the package, for tests."""

import sys
from pathlib import Path

# Last, so that no benchmark hides a module of the same name.
sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

import ranking

bad_generators, figures, jobs_of, times = (
    ranking.bad_generators,
    ranking._figures,
    ranking.Job,
    ranking._times,
)
CLUSTERS = tuple(ranking._clusters(2))
