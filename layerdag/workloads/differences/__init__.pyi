from ._alignment import Alignment as Alignment, align as align
from ._diff import diff as diff
from ._difference import (
    PARTS as PARTS,
    Difference as Difference,
    counts_text as counts_text,
    figure_text as figure_text,
    lines as lines,
)
from ._figures import (
    AlignedPrograms as AlignedPrograms,
    Block as Block,
    Communication as Communication,
    Figure as Figure,
    Operator as Operator,
    Stretch as Stretch,
)
