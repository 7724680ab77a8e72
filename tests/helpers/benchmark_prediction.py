"""benchmarks/prediction.py and gpu_steps.py, which are no part of the package, for tests."""

import sys
from pathlib import Path

# Last, so that no benchmark hides a module of the same name.
sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

from gpu_steps import (
    FIGURES as FIGURES,
    LLAMAS as LLAMAS,
    RESNETS as RESNETS,
    over_peak as over_peak,
    predicted as predicted,
    resnet as resnet,
    workload as workload,
)
from prediction import errors as errors, noise as noise
