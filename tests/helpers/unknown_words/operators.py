"""Operators that are not public, where jobs become graphs."""

from collections.abc import Sequence
from pathlib import Path

from layerdag.codec.folding import job_graph, rank_classes
from layerdag.codec.vocabulary import require_operators
from layerdag.graph.attributed_graph import AttributedGraph
from layerdag.runtime.notes import Note, NoteKind
from layerdag.traces.builder import NodeSpec, build_trace
from layerdag.traces.trace import NodeType, Workload

from .case import UnknownWord


def _job(folder: Path) -> AttributedGraph:
    trace = build_trace([NodeSpec(0, "acme::fused_3", NodeType.COMP)], source=str(folder))
    return job_graph("job", rank_classes(Workload((trace,))), {}, {})


def _folded(folder: Path) -> Sequence[Note]:
    return _job(folder).notes


def _in_a_data_set(folder: Path) -> Sequence[Note]:
    require_operators([_job(folder)], str(folder))
    return ()


CASES = (
    UnknownWord("codec/folding.py", NoteKind.OPERATOR, "acme::fused", _folded),
    UnknownWord("codec/vocabulary.py", NoteKind.OPERATOR, "acme::fused", _in_a_data_set),
)
