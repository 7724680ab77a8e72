from ._base import (
    SPLITS as SPLITS,
    GraphDataset as GraphDataset,
    Split as Split,
    encode_batch as encode_batch,
)
from ._split_fingerprint import (
    SplitFingerprint as SplitFingerprint,
    require_same_split as require_same_split,
)
from ._splits import (
    enough_to_judge as enough_to_judge,
    held_out_share as held_out_share,
    named_splits as named_splits,
    split_graphs as split_graphs,
)
from ._unions import union_layers as union_layers
