from ._base import (
    SPLITS as SPLITS,
    Blocks as Blocks,
    GraphDataset as GraphDataset,
    Split as Split,
    encode_batch as encode_batch,
)
from ._config import (
    AlibabaConfig as AlibabaConfig,
    CorpusConfig as CorpusConfig,
    DataConfig as DataConfig,
    DgrlConfig as DgrlConfig,
    FolderConfig as FolderConfig,
    LatentPreferentialConfig as LatentPreferentialConfig,
    TpuTileConfig as TpuTileConfig,
    data_config as data_config,
    load_config as load_config,
)
from ._encoding import (
    CodedGraph as CodedGraph,
    GraphLike as GraphLike,
    StoredGraphs as StoredGraphs,
    encoded as encoded,
    translated as translated,
)
from ._loading import (
    LABEL_FILES as LABEL_FILES,
    LOADERS as LOADERS,
    kind_of_folder as kind_of_folder,
    labels_in as labels_in,
    load_dataset as load_dataset,
    loader_of as loader_of,
    read_dataset as read_dataset,
)
from ._pyg import columns_to_pyg as columns_to_pyg, from_pyg as from_pyg, to_pyg as to_pyg
from ._split_fingerprint import (
    SplitFingerprint as SplitFingerprint,
    require_same_split as require_same_split,
)
from ._splits import (
    Sizes as Sizes,
    content_key as content_key,
    enough_to_judge as enough_to_judge,
    held_out_fraction as held_out_fraction,
    named_splits as named_splits,
    split_graphs as split_graphs,
    split_keys as split_keys,
    split_priority as split_priority,
)
