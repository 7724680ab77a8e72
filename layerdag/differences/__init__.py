"""What differs between two traces, jobs or graphs."""

from layerdag.differences.comparison import diff
from layerdag.differences.difference import (
    AlignedPrograms,
    Difference,
    Operator,
    PairedValue,
    counts_text,
    figure_text,
    lines,
)

__all__ = [
    "AlignedPrograms",
    "Difference",
    "Operator",
    "PairedValue",
    "counts_text",
    "diff",
    "figure_text",
    "lines",
]
