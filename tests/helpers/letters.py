"""Small graphs whose operators are letters, and local figures of them."""

from itertools import pairwise

import torch

from layerdag.dag.dag import DAG
from layerdag.evaluation.metrics.base import AttributeView
from layerdag.evaluation.similarity import LOCAL_METRICS, compare

OP = (AttributeView("op"),)


def path(ops: str) -> DAG:
    """A path whose operators are the letters."""
    return graph(ops, [(at, at + 1) for at in range(len(ops) - 1)])


def graph(ops: str, edges: list[tuple[int, int]]) -> DAG:
    """A graph whose operators are the letters."""
    x_NA = torch.tensor([[ord(op) - ord("a")] for op in ops], dtype=torch.int64).reshape(-1, 1)
    return DAG.build(x_NA, torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).T)


def layered(*layers: str) -> DAG:
    """Layers of which every node has all nodes of the layer before as parents."""
    start, edges = 0, []
    for above, below in pairwise(layers):
        end = start + len(above)
        edges += [(i, j) for i in range(start, end) for j in range(end, end + len(below))]
        start = end
    return graph("".join(layers), edges)


def values(made: list[DAG], kind: str, train: list[DAG] | None = None) -> dict[str, float | None]:
    """The figures "kind:..." of generated graphs, by what follows the colon."""
    metrics = [m for m in LOCAL_METRICS if getattr(m, "name", "").startswith(kind)]
    real = made if train is None else train
    report = compare(real, real, made, OP, metrics=metrics, replicates=3)
    return {row.metric.name.partition(":")[2]: row.generated.value for row in report.rows}
