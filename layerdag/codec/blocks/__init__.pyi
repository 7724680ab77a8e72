from ._edge_labels import (
    BLOCK as BLOCK,
    INSIDE as INSIDE,
    OUTSIDE as OUTSIDE,
    REPEATS as REPEATS,
    in_copy as in_copy,
    is_rolled as is_rolled,
)
from ._roll import as_one_copy as as_one_copy, rolled as rolled
from ._unroll import (
    MOST_NODES as MOST_NODES,
    copies_of as copies_of,
    repeats_of as repeats_of,
    unrolled as unrolled,
)
