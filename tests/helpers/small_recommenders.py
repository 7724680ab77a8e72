"""A recommendation model so small that its figures can be worked out by hand."""

from layerdag.workloads.dlrm import RecommenderShape

TWO = RecommenderShape(
    "two", rows=(10, 20), look_ups=(1, 3), width=4, dense_inputs=3, bottom=(8, 4), top=(6, 1),
    cross_layers=1, rank=2,
)  # fmt: skip
"""Two tables of 30 rows and 120 parameters; layers 3-8-4, 12-2-12, 12-6-1 of 213 parameters."""
