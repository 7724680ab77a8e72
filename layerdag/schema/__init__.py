"""What the codes of a data set mean: words, bins, conditions, costs."""

from layerdag.schema.attributes import CategoryAttribute, NumericAttribute
from layerdag.schema.conditions import CategoryCondition, NumericCondition
from layerdag.schema.costs import (
    COST_NAMES,
    NO_COSTS,
    PRODUCTS,
    ByteRule,
    Cost,
    CostTable,
    ProductForm,
    cost_columns,
    data_edges,
)
from layerdag.schema.durations import Durations, costs_and_ranks, ranks_of
from layerdag.schema.schema import (
    GraphSchema,
    complete_conditions,
    out_of_range_conditions,
)

__all__ = [
    "COST_NAMES",
    "NO_COSTS",
    "PRODUCTS",
    "ByteRule",
    "CategoryAttribute",
    "CategoryCondition",
    "Cost",
    "CostTable",
    "Durations",
    "GraphSchema",
    "NumericAttribute",
    "NumericCondition",
    "ProductForm",
    "complete_conditions",
    "cost_columns",
    "costs_and_ranks",
    "data_edges",
    "out_of_range_conditions",
    "ranks_of",
]
