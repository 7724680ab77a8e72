"""The recorded cases of benchmarks/astra_cases.py, which is no part of the package, for tests."""

import sys
from pathlib import Path

# Last, so that no benchmark hides a module of the same name.
sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

from astra_cases import differences, flags_of

__all__ = ["differences", "flags_of"]
