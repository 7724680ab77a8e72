"""Compiled programs (StableHLO, HLO text) as traces."""

from layerdag.traces.hlo.parser import read_program
from layerdag.traces.hlo.program import program_workload, summarize_program

__all__ = ["program_workload", "read_program", "summarize_program"]
