"""Samples as traces, and graphs as words and pictures."""

from collections.abc import Sequence

from layerdag.datasets import GraphDataset
from layerdag.datasets.schema import CategoryAttribute
from layerdag.graph import DAG
from layerdag.sampling import GeneratedGraph, as_workload
from layerdag.traces import Workload
from layerdag.viz import Picture

KINDS = (
    (("foreach", "fused_adam", "fused_sgd"), "optimizer"),
    (("mm", "convolution", "attention", "linear"), "matrix product"),
    (
        ("embedding", "index", "gather", "scatter", "cat", "copy", "clone", "select"),
        "data movement",
    ),
    (("norm", "softmax", "sum", "mean", "max", "loss", "amax", "pool"), "reduction"),
)


def vocabularies(data: GraphDataset) -> tuple[tuple[str, ...], ...]:
    """Return the name of each code of each attribute."""
    return tuple(
        a.values if isinstance(a, CategoryAttribute) else tuple(map(str, range(a.num_codes)))
        for a in data.schema.attributes
    )


def synthetic_workloads(
    data: GraphDataset, samples: Sequence[GeneratedGraph]
) -> tuple[list[Workload], dict[str, int]]:
    """Decode samples into traces; return them with the repairs that were needed."""
    workloads, repairs = [], dict[str, int]()
    for sample in samples:
        unfolded = as_workload(sample.graph)
        workloads.append(unfolded.workload)
        for name, count in unfolded.repairs.items():
            repairs[name] = repairs.get(name, 0) + count
    return workloads, repairs


def picture_of(data: GraphDataset, dag: DAG, title: str) -> Picture:
    """Return a graph with the operator and stage of each node, to be drawn."""
    graph = data.schema.decode(dag)
    operators = tuple(graph.categories["op"])
    kinds = zip(operators, graph.categories["type"], strict=True)
    return Picture(title, dag, operators, tuple(kind_of(*pair) for pair in kinds))


def kind_of(operator: str, node_type: str) -> str:
    """Return what a node does, in a word or two, for colors."""
    if node_type != "COMP":
        return "communication"
    name = operator.partition("::")[2]
    for patterns, kind in KINDS:
        if any(pattern in name for pattern in patterns):
            return kind
    return "element-wise"
