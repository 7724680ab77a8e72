"""DAGs with their schema, split by run."""

from layerdag.datasets.conversion import (
    CodedGraph,
    GraphLike,
    attributed_graph,
    attributed_graphs,
    columns_to_pyg,
    is_pyg,
)
from layerdag.datasets.dataset import (
    GraphDataset,
    GraphSplit,
    encode_batch,
)
from layerdag.datasets.discovery import FoundJobs, read_folder
from layerdag.datasets.encoding import (
    CodedSamples,
    coded,
    encoded,
    load_with_schema,
    translated,
    with_attributes_of,
    with_old_words,
)
from layerdag.datasets.folder import align_schemas, publish
from layerdag.datasets.loading import (
    LABEL_FILES,
    DataConfig,
    FolderConfig,
    data_config,
    kind_of_folder,
    load_config,
    load_dataset,
    read_dataset,
)
from layerdag.datasets.packing import SCHEMA_NODES, pack_folder
from layerdag.datasets.published import is_valid, load_latent_preferential
from layerdag.datasets.samples import (
    TableWriter,
    iter_samples,
    part_samples,
    require_pyarrow,
    sample_table,
)
from layerdag.datasets.splits import SplitFingerprint, require_same_split

__all__ = [
    "LABEL_FILES",
    "SCHEMA_NODES",
    "CodedGraph",
    "CodedSamples",
    "DataConfig",
    "FolderConfig",
    "FoundJobs",
    "GraphDataset",
    "GraphLike",
    "GraphSplit",
    "SplitFingerprint",
    "TableWriter",
    "align_schemas",
    "attributed_graph",
    "attributed_graphs",
    "coded",
    "columns_to_pyg",
    "data_config",
    "encode_batch",
    "encoded",
    "is_pyg",
    "is_valid",
    "iter_samples",
    "kind_of_folder",
    "load_config",
    "load_dataset",
    "load_latent_preferential",
    "load_with_schema",
    "pack_folder",
    "part_samples",
    "publish",
    "read_dataset",
    "read_folder",
    "require_pyarrow",
    "require_same_split",
    "sample_table",
    "translated",
    "with_attributes_of",
    "with_old_words",
]
