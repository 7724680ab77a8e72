"""A graph with names and numbers, before a schema has turned it into codes."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from layerdag.graph.dag import Condition


@dataclass(frozen=True, eq=False)
class RawGraph:
    """A DAG as its source gives it. The order of attributes is the order of the model's columns.

    Attributes:
        name: For messages and manifests.
        categories: Words of each categorical attribute, one a node.
        numbers: Values of each numeric attribute, float64 (N,), NaN for absent.
        units: Unit of each numeric attribute.
        edge_index_2E: int64 source and target.
        edge_type_E: int64 position in ``edge_type_names``.
        edge_type_names: Name of each edge type.
        conditions: Graph-level values by name.
        open_vocabularies: Categorical attributes in which unseen words may map to ``<other>``.
        vocabularies: Words that an attribute's vocabulary holds even if no training graph has them.
    """

    name: str
    categories: Mapping[str, list[str]]
    numbers: Mapping[str, np.ndarray]
    edge_index_2E: np.ndarray
    edge_type_E: np.ndarray
    units: Mapping[str, str] = field(default_factory=dict)
    edge_type_names: tuple[str, ...] = ("data",)
    conditions: Mapping[str, Condition] = field(default_factory=dict)
    open_vocabularies: tuple[str, ...] = ()
    vocabularies: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def num_nodes(self) -> int:
        """N."""
        for words in self.categories.values():
            return len(words)
        for values in self.numbers.values():
            return len(values)
        return 0
