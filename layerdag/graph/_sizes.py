"""What a model must know of a data set: the number of categories, edge types and conditions."""

from dataclasses import dataclass


@dataclass(frozen=True)
class GraphSizes:
    """Counts that fix the shapes of a model; what the codes mean stays with the data set's schema.

    Attributes:
        attributes: Number of codes of each node attribute.
        edge_types: Number of edge-type codes, at least 1.
        numeric_conditions: Number of standardized numeric conditions, C.
        category_conditions: Number of codes of each categorical condition, M of them.
    """

    attributes: tuple[int, ...]
    edge_types: int = 1
    numeric_conditions: int = 0
    category_conditions: tuple[int, ...] = ()
