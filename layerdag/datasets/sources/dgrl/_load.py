"""Computational graphs of nn-Meter with measured latencies, as OGB-style CSV files.

One folder per family of networks, as the DGRL benchmark (Graph-COM/Benchmark_for_DGRL_in_Hardwares)
publishes them: ``num-node-list``, ``num-edge-list``, ``edge``, ``node-feat`` and ``label-*``, each
``.csv``, ``.csv.gz`` or ``.csv.xz``. The graphs of the family ``nasbench201s`` are NA-Edge of the
LayerDAG paper. A node has an operator and 16 numbers: input shape (5), kernel (4), strides (2) and
output shape (5); labels are latencies in milliseconds.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from layerdag.codec import AttributedGraph, size_conditions
from layerdag.datasets import SPLITS, GraphDataset, Split, split_graphs
from layerdag.datasets.schema import LABEL
from layerdag.datasets.sources.dgrl._circuits import holds_circuits, read_circuits
from layerdag.datasets.sources.dgrl._families import family_of, read_family
from layerdag.datasets.sources.dgrl._tables import Sizes, distinct_edges, read_table
from layerdag.errors import DataError
from layerdag.graph import Condition, union_layers

LABELS = ("cortex", "630gpu", "640gpu", "vpu")
COLUMNS = (
    *(f"input_{axis}" for axis in ("batch", "height", "width", "channels", "extra")),
    *(f"kernel_{axis}" for axis in ("height", "width", "in", "out")),
    *(f"stride_{axis}" for axis in ("height", "width")),
    *(f"output_{axis}" for axis in ("batch", "height", "width", "channels", "extra")),
)
_NODE = np.dtype([("op", "U32"), ("numbers", np.float64, (len(COLUMNS),))])
# A column with more values than this in the training part is binned as a number.
MAX_WORDS = 16


def load_dgrl(
    folder: str | Path,
    *,
    label: str | None = None,
    num_graphs: int | None = None,
    seed: int = 0,
    num_bins: int = 16,
) -> GraphDataset:
    """Load a family: computational graphs, amplifiers (AMP), HLS, multipliers (SR) or TIME.

    Of computational graphs columns of one value are left out; columns of few values are words, as
    in the LayerDAG paper, the others numbers. Equal networks stay in one split; 80 % train, 10 %
    val, 10 % test. SR and TIME come with parts of their own.

    Args:
        folder: Of the family.
        label: Of computational graphs "cortex" (Cortex-A76 CPU; default), "630gpu", "640gpu"
            (Adreno) or "vpu"; milliseconds. Of AMP "gain" (default), "pm", "bw" or "fom". Of TIME
            "setup" (default) or "hold", the least slack.
        num_graphs: Use the first so many; all by default, and always of SR and TIME.
        seed: Of the split.
        num_bins: Bins of each numeric attribute.

    Raises:
        DataError: If a file is missing, malformed, or of another length than the others.
    """
    folder = Path(folder)
    if holds_circuits(folder):
        circuits = read_circuits(folder, label, num_graphs, seed)
        return GraphDataset.build(f"dgrl/{folder.name}", "flow", circuits, num_bins=num_bins)
    family = family_of(folder)
    if family is not None:
        parts = split_graphs(read_family(folder, family, label, num_graphs), seed)
        return GraphDataset.build(f"dgrl/{folder.name}", "flow", parts, num_bins=num_bins)
    graphs = _read(folder, {LABEL: label or LABELS[0]}, num_graphs)
    parts = split_graphs(graphs, seed)
    columns = _columns(parts["train"])
    chosen: dict[Split, list[AttributedGraph]] = {
        split: [_with_columns(graph, columns) for graph in parts[split]] for split in SPLITS
    }
    return GraphDataset.build(f"dgrl/{folder.name}", "flow", chosen, num_bins=num_bins)


def read_networks(
    folder: str | Path, labels: Sequence[str] = LABELS[:3], num_graphs: int | None = None
) -> list[AttributedGraph]:
    """Read computational graphs as they come: no split, every column of a node as a number.

    Args:
        folder: Of a family of networks.
        labels: Latencies in milliseconds that become conditions of these names.
        num_graphs: Use the first so many; all by default.

    Raises:
        DataError: If a file is missing, malformed, or of another length than the others.
    """
    if not labels:
        raise DataError(f"{folder}: name at least one label of {', '.join(LABELS)}.")
    return _read(Path(folder), {label: label for label in labels}, num_graphs)


def _read(folder: Path, labels: Mapping[str, str], num_graphs: int | None) -> list[AttributedGraph]:
    """Read the graphs, every column of a node as a number, and labels by condition."""
    for label in labels.values():
        if label not in LABELS:
            raise DataError(f"There is no label '{label}'; known are {', '.join(LABELS)}.")
    sizes = Sizes.of(folder, num_graphs)
    nodes_B, edges_B = sizes.nodes_B, sizes.edges_B
    label_LB = [_labels(folder, label)[:num_graphs] for label in labels.values()]
    edge_E2 = read_table(folder, "edge", np.int64, int(edges_B.sum()))
    node_N = read_table(folder, "node-feat", _NODE, int(nodes_B.sum()))[:, 0]
    for label_B in label_LB:
        sizes.require(folder, len(label_B), len(node_N), len(edge_E2))
    ptrs = [np.cumsum(counts)[:-1] for counts in (nodes_B, edges_B)]
    columns = np.split(node_N["op"], ptrs[0])
    numbers = np.split(node_N["numbers"], ptrs[0])
    edges = [distinct_edges(edge_E2.T) for edge_E2 in np.split(edge_E2, ptrs[1])]
    layers = union_layers(nodes_B.tolist(), edges)
    return [
        AttributedGraph(
            name=f"{folder.name}/{b}",
            categories={"op": columns[b].tolist()},
            numbers=dict(zip(COLUMNS, numbers[b].T, strict=True)),
            edge_index_2E=edges[b],
            edge_type_E=np.zeros(edges[b].shape[1], dtype=np.int64),
            conditions=_conditions(dict(zip(labels, rows, strict=True)), layers[b]),
        )
        for b, rows in enumerate(zip(*label_LB, strict=True))
    ]


def _conditions(labels: Mapping[str, float], layer_N: np.ndarray) -> dict[str, Condition]:
    """Return labels and sizes; a network that was not measured has no label."""
    known = {name: float(label) for name, label in labels.items() if np.isfinite(label)}
    return {**size_conditions(layer_N), **known}


def _labels(folder: Path, label: str) -> np.ndarray:
    """Return the latencies, NaN where the file has an empty string."""
    words_B = np.char.strip(read_table(folder, f"label-{label}", np.dtype("U32"))[:, 0], '"')
    try:
        return np.where(words_B == "", "nan", words_B).astype(np.float64)
    except ValueError as error:
        raise DataError(f"{folder}: a label is no number ({error}); download again.") from error


def _columns(graphs: list[AttributedGraph]) -> dict[str, bool]:
    """Return the columns with more than one value, and for each whether its values are words."""
    counts = {
        name: len(np.unique(np.concatenate([graph.numbers[name] for graph in graphs])))
        for name in COLUMNS
    }
    return {name: count <= MAX_WORDS for name, count in counts.items() if count > 1}


def _with_columns(graph: AttributedGraph, as_words_of: dict[str, bool]) -> AttributedGraph:
    """Return the graph with the chosen columns, as words or as numbers."""
    categorical = {
        name: [f"{value:g}" for value in graph.numbers[name].tolist()]
        for name, as_words in as_words_of.items()
        if as_words
    }
    return AttributedGraph(
        name=graph.name,
        categories={**graph.categories, **categorical},
        numbers={
            name: graph.numbers[name] for name, as_words in as_words_of.items() if not as_words
        },
        edge_index_2E=graph.edge_index_2E,
        edge_type_E=graph.edge_type_E,
        conditions=graph.conditions,
    )
