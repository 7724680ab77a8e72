"""Samples as traces, and graphs as words and pictures."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from layerdag.codec import AttributedGraph
from layerdag.datasets import GraphDataset
from layerdag.datasets.schema import CategoryAttribute
from layerdag.graph import DAG
from layerdag.sampling import as_workload
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


@dataclass(frozen=True, eq=False)
class DecodedJobs:
    """Jobs as traces, and what decoding them took.

    Attributes:
        workloads: One per job.
        repairs: How often each contradiction was repaired.
        completions: How often decoding wrote down what graphs of real jobs leave out, too.
    """

    workloads: list[Workload]
    repairs: dict[str, int]
    completions: dict[str, int]


def decoded_jobs(graphs: Iterable[AttributedGraph]) -> DecodedJobs:
    """Decode jobs into traces, and count what that takes."""
    workloads, repairs, completions = [], Counter[str](), Counter[str]()
    for graph in graphs:
        unfolded = as_workload(graph)
        workloads.append(unfolded.workload)
        repairs.update(unfolded.repairs)
        completions.update(unfolded.completions)
    return DecodedJobs(workloads, dict(repairs), dict(completions))


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
