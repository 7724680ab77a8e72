"""Chakra execution traces: ``.et`` of every schema version, corpora, JSON."""

from layerdag.traces.chakra.corpus import (
    RunRecord,
    embedded_corpus,
    read_index,
    read_run,
    read_runs,
)
from layerdag.traces.chakra.workload import read_workload

__all__ = ["RunRecord", "embedded_corpus", "read_index", "read_run", "read_runs", "read_workload"]
