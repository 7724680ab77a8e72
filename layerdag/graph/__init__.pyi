from ._batch import DAGBatch as DAGBatch
from ._colors import neighborhood_colors as neighborhood_colors
from ._dag import DAG as DAG, Condition as Condition, layers_of as layers_of
from ._hashing import (
    color_rounds as color_rounds,
    graph_hash as graph_hash,
    graph_hashes as graph_hashes,
    node_colors as node_colors,
)
from ._layering import (
    expand_ranges as expand_ranges,
    group_by as group_by,
    longest_path_layers as longest_path_layers,
    pointers as pointers,
    union_layers as union_layers,
)
from ._neighbor_kinds import (
    MANY as MANY,
    KindMultisets as KindMultisets,
    ListedNeighbors as ListedNeighbors,
    neighbor_kinds as neighbor_kinds,
)
from ._random import random_dag as random_dag
from ._repeats import (
    BlockNode as BlockNode,
    Blocks as Blocks,
    Pattern as Pattern,
    Run as Run,
    Unrolled as Unrolled,
    nested_runs as nested_runs,
    repeated_runs as repeated_runs,
)
from ._shared_statistics import (
    SHARED_BY as SHARED_BY,
    allowed_codes as allowed_codes,
    shared_statistics as shared_statistics,
)
from ._sizes import GraphSizes as GraphSizes
from ._statistics import GraphStatistics as GraphStatistics
from .given import (
    Gap as Gap,
    Prefix as Prefix,
    Replacement as Replacement,
    require_layers as require_layers,
)
