"""Compiled programs (StableHLO, HLO text) as traces."""

from layerdag.traces.hlo.parser import begins_program, read_program
from layerdag.traces.hlo.program import (
    HARDWARE,
    DeviceSplit,
    Hardware,
    program_workload,
    summarize_program,
)

__all__ = [
    "HARDWARE",
    "DeviceSplit",
    "Hardware",
    "begins_program",
    "program_workload",
    "read_program",
    "summarize_program",
]
