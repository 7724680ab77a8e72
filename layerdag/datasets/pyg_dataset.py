"""The graphs of a split as a data set of PyTorch Geometric, for any of its models and loaders.

In a file of its own, because importing PyTorch Geometric takes seconds.
"""

from collections.abc import Sequence
from typing import final

from torch_geometric.data import InMemoryDataset

from layerdag.dag.dag import DAG
from layerdag.datasets.conversion import to_pyg
from layerdag.schema.schema import GraphSchema


@final
class PygDataset(InMemoryDataset):
    """The graphs of one split, for any PyG model, loader or transform; no file is written.

    Columns of ``x``, ``numeric`` and ``category`` have names; ``codes`` are the numbers of codes of
    each column of ``x``, for embedding tables, ``edge_types`` the names of codes in ``edge_attr``.
    """

    def __init__(self, schema: GraphSchema, dags: Sequence[DAG], names: Sequence[str]) -> None:
        super().__init__(None)
        self.node_columns = tuple(attribute.name for attribute in schema.attributes)
        self.codes = schema.sizes().attributes
        self.edge_types = schema.edge_types
        self.numeric_columns = tuple(c.name for c in schema.numeric_conditions)
        self.category_columns = tuple(c.name for c in schema.category_conditions)
        self.names = tuple(names)
        self.data, self.slices = self.collate([to_pyg(dag, schema) for dag in dags])
