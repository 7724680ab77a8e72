from ._attributed_graph import (
    NUM_LAYERS as NUM_LAYERS,
    NUM_NODES as NUM_NODES,
    SIZE_CONDITIONS as SIZE_CONDITIONS,
    AttributedGraph as AttributedGraph,
    size_conditions as size_conditions,
)
from ._fold import (
    CATEGORIES as CATEGORIES,
    COMMUNICATION as COMMUNICATION,
    EDGE_TYPES as EDGE_TYPES,
    NONE as NONE,
    OPEN_VOCABULARIES as OPEN_VOCABULARIES,
    VOCABULARIES as VOCABULARIES,
    RankClassTrace as RankClassTrace,
    job_graph as job_graph,
)
from ._placement import fitting_ranks as fitting_ranks
from ._rank_classes import rank_classes as rank_classes
from ._repairs import repair_in_words as repair_in_words
from ._unfold import (
    Unfolded as Unfolded,
    needed_repairs as needed_repairs,
    unfold_sampled as unfold_sampled,
)
from ._vocabulary import (
    COLLECTIVE_NAMES as COLLECTIVE_NAMES,
    OTHER as OTHER,
    SEND as SEND,
    is_communication as is_communication,
)
