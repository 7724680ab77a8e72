"""Tuning with differential privacy, and its audit."""

from layerdag.dp.settings import Privacy, Units, read_owners
from layerdag.dp.tuning import PrivateResult, PrivateRun, tune_privately

__all__ = [
    "Privacy",
    "PrivateResult",
    "PrivateRun",
    "Units",
    "read_owners",
    "tune_privately",
]
