"""The graph families of the DGRL benchmark.

Families of the DGRL benchmark with a folder per circuit: SR and TIME.

SR has and-inverter graphs of multipliers, whose nodes are to be told apart as parts of adders.
TIME has pins of placed circuits, joined by nets and by cells, with slacks before routing. Layout
and columns are those that the benchmark's own processors read (``SR_data_processor.py``,
``TIME_data_processor.py`` of Graph-COM/Benchmark_for_DGRL_in_Hardwares).

Families of the DGRL benchmark beside the computational graphs: AMP and HLS.

AMP has operational amplifiers of two or three stages as DAGs of sub-circuits, labels from a circuit
simulator. HLS has control and data flow of C programs; edges marked as going back are left out.

Computational graphs of nn-Meter with measured latencies, as OGB-style CSV files.

One folder per family of networks, as the DGRL benchmark (Graph-COM/Benchmark_for_DGRL_in_Hardwares)
publishes them: ``num-node-list``, ``num-edge-list``, ``edge``, ``node-feat`` and ``label-*``, each
``.csv``, ``.csv.gz`` or ``.csv.xz``. The graphs of the family ``nasbench201s`` are NA-Edge of the
LayerDAG paper. A node has an operator and 16 numbers: input shape (5), kernel (4), strides (2) and
output shape (5); labels are latencies in milliseconds.
"""

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike

from layerdag.datasets.dataset import GraphDataset
from layerdag.datasets.splits import split_graphs
from layerdag.errors import DataError
from layerdag.graph.attributed_graph import (
    LABEL,
    SPLITS,
    AttributedGraph,
    Condition,
    Split,
    size_conditions,
)
from layerdag.graph.topology import longest_path_layers, union_layers
from layerdag.runtime.json_shape import plain_reason
from layerdag.runtime.reading import read_parsed
from layerdag.runtime.tables import read_table as read_csv


@dataclass(frozen=True, eq=False)
class Sizes:
    """Nodes and edges of each graph, int64 (B,)."""

    nodes_B: np.ndarray
    edges_B: np.ndarray

    @classmethod
    def from_folder(cls, folder: Path, num_graphs: int | None) -> "Sizes":
        """Read the sizes of the first so many graphs.

        Raises:
            DataError: If a file is missing or holds no natural numbers, or the number is below 1.
        """
        if num_graphs is not None and num_graphs < 1:
            raise DataError(f"'num_graphs' must be at least 1, found {num_graphs}.")
        nodes_B = read_table(folder, "num-node-list", np.int64)[:num_graphs, 0]
        edges_B = read_table(folder, "num-edge-list", np.int64)[:num_graphs, 0]
        if min(nodes_B.min(initial=0), edges_B.min(initial=0)) < 0:
            raise DataError(f"{folder}: a number of nodes or edges is negative; download it again.")
        return cls(nodes_B, edges_B)

    def require(self, folder: Path, labels: int, nodes: int, edges: int) -> None:
        """Raise DataError unless the other tables are of these lengths."""
        lengths = (len(self.nodes_B), len(self.edges_B), labels)
        num_nodes, num_edges = int(self.nodes_B.sum()), int(self.edges_B.sum())
        if len(set(lengths)) > 1 or edges != num_edges or nodes != num_nodes:
            raise DataError(
                f"{folder}: the files speak of {lengths[0]}, {lengths[1]} and {lengths[2]} graphs "
                f"with {num_nodes} nodes and {num_edges} edges, but hold {nodes} and {edges}; "
                "download the family again."
            )


def read_table(folder: Path, name: str, kind: DTypeLike, max_rows: int | None = None) -> np.ndarray:
    """Read a CSV without a header as a matrix.

    Raises:
        DataError: If the file is missing or a cell is of another kind.
    """
    found = (folder / f"{name}.csv{ending}" for ending in ("", ".gz", ".xz"))
    path = next((path for path in found if path.is_file()), None)
    if path is None:
        raise DataError(f"{folder}: has no {name}.csv, .csv.gz or .csv.xz; download the family.")
    try:
        text = io.StringIO(read_parsed(path).decode())
        return np.loadtxt(text, dtype=kind, delimiter=",", ndmin=2, max_rows=max_rows)
    except (ValueError, OverflowError) as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"{path}: cannot be read ({reason}); download it again.") from error


def distinct_edges(edges_2E: np.ndarray) -> np.ndarray:
    """Return the edges, each once, sorted by source and target."""
    order_E = np.lexsort((edges_2E[1], edges_2E[0]))
    sorted_2E = edges_2E[:, order_E]
    fresh_E = np.ones(len(order_E), dtype=bool)
    fresh_E[1:] = (sorted_2E[:, 1:] != sorted_2E[:, :-1]).any(axis=0)
    return sorted_2E[:, fresh_E]


SR_PARTS: dict[str, Split] = {
    "train": "train",
    "valid": "val",
    "test": "test",
    "test_mapped": "test",
}
"""The part of each folder; those of test have a folder for each width in bits."""
SR_LABELS = ("shared", "root")
TIME_PINS = (
    "is_port",
    "is_fan_out",
    *(f"distance_{side}" for side in range(4)),
    *(f"capacitance_{corner}" for corner in range(4)),
)
TIME_WORDS = ("is_port", "is_fan_out", "is_endpoint")
TIME_EDGES = ("net", "cell")
TIME_TEST = ("spm", "synth_ram", "xtea", "y_huff")
"""Circuits that the benchmark keeps for its test outside the distribution."""
TIME_SLACKS = ("setup", "hold")
_ENDPOINT, _ROOT = "is-timing-endpt", "node-label-root"


def is_circuit_family(folder: Path) -> bool:
    """Return whether a folder is SR or TIME."""
    return _is_sr(folder) or bool(_time_circuits(folder))


def read_circuits(
    folder: Path, label: str | None, num_graphs: int | None, seed: int
) -> dict[Split, list[AttributedGraph]]:
    """Read SR, in the benchmark's own parts, or TIME, with its four circuits for test.

    Args:
        folder: Of the family.
        label: Of TIME "setup" (default) or "hold": the least slack of an endpoint. SR has labels
            of nodes alone, which are attributes here.
        num_graphs: Must be None: there are few circuits.
        seed: Of TIME's split into training and validation.

    Raises:
        DataError: If a file is missing, malformed, or of another length than the others.
    """
    if num_graphs is not None:
        raise DataError(f"{folder}: has few circuits; leave 'num_graphs' out, found {num_graphs}.")
    if _is_sr(folder):
        return _read_sr(folder, label)
    return _read_time(folder, label or TIME_SLACKS[0], seed)


def _is_sr(folder: Path) -> bool:
    return any((folder / "train").glob(f"{_ROOT}.csv*"))


def _time_circuits(folder: Path) -> list[Path]:
    return sorted({file.parent for file in folder.glob(f"*/raw/{_ENDPOINT}.csv*")})


def _read_sr(folder: Path, label: str | None) -> dict[Split, list[AttributedGraph]]:
    if label is not None:
        raise DataError(f"SR has labels of nodes alone; leave 'label' out, found '{label}'.")
    parts: dict[Split, list[AttributedGraph]] = {"train": [], "val": [], "test": []}
    for name, part in SR_PARTS.items():
        files = sorted((folder / name).glob("**/num-node-list.csv*"))
        parts[part] += [_boolean_network(file.parent, folder) for file in files]
    return parts


def _boolean_network(circuit: Path, folder: Path) -> AttributedGraph:
    """Return an and-inverter graph; all features of its nodes are 0 or 1."""
    edge_E2, node_NC = _tables(circuit)
    words = {f"feature_{c}": node_NC[:, c] for c in range(node_NC.shape[1])}
    for name in SR_LABELS:
        words[name] = _column(circuit, f"node-label-{name}", len(node_NC))
    edges_2E, _ = _distinct(edge_E2)
    return AttributedGraph(
        name=_name(circuit, folder),
        categories={name: _as_words(value_N) for name, value_N in words.items()},
        numbers={},
        edge_index_2E=edges_2E,
        edge_type_E=np.zeros(edges_2E.shape[1], dtype=np.int64),
        conditions=_sizes(len(node_NC), edges_2E),
    )


def _read_time(folder: Path, label: str, seed: int) -> dict[Split, list[AttributedGraph]]:
    if label not in TIME_SLACKS:
        raise DataError(f"There is no label '{label}'; known are {', '.join(TIME_SLACKS)}.")
    graphs = [_timing_graph(circuit, folder, label) for circuit in _time_circuits(folder)]
    others = [graph for graph in graphs if graph.name.split("/")[1] not in TIME_TEST]
    parts = split_graphs(others, seed)
    parts["train"] += parts["test"]
    parts["test"] = [graph for graph in graphs if graph.name.split("/")[1] in TIME_TEST]
    return parts


def _timing_graph(circuit: Path, folder: Path, label: str) -> AttributedGraph:
    edge_E2, node_NC = _tables(circuit)
    if node_NC.shape[1] != len(TIME_PINS):
        raise DataError(
            f"{circuit}: node-feat has {node_NC.shape[1]} columns, but TIME has {len(TIME_PINS)} "
            f"({', '.join(TIME_PINS)}); download the family again."
        )
    columns = dict(zip(TIME_PINS, node_NC.T, strict=True))
    columns["is_endpoint"] = _column(circuit, _ENDPOINT, len(node_NC))
    edges_2E, first_E = _distinct(edge_E2)
    conditions = _sizes(len(node_NC), edges_2E)
    slack_N = _column(circuit, f"node-label-{label}-slack", len(node_NC))
    slack_P = slack_N[(columns["is_endpoint"] == 1) & np.isfinite(slack_N)]
    if len(slack_P):
        conditions[LABEL] = float(slack_P.min())
    return AttributedGraph(
        name=_name(circuit, folder),
        categories={name: _as_words(columns[name]) for name in TIME_WORDS},
        numbers={name: value_N for name, value_N in columns.items() if name not in TIME_WORDS},
        edge_index_2E=edges_2E,
        edge_type_E=_edge_types(circuit, len(edge_E2))[first_E],
        edge_type_names=TIME_EDGES,
        conditions=conditions,
    )


def _edge_types(circuit: Path, num_edges: int) -> np.ndarray:
    """Return 0 of a net and 1 of a cell, by the first two columns of ``edge-feat``: cell, net."""
    feature_EF = read_table(circuit, "edge-feat", np.float64, num_edges)
    marks_E2 = feature_EF[:, :2]
    if len(feature_EF) != num_edges or not (marks_E2.sum(axis=1) == 1).all():
        raise DataError(
            f"{circuit}: edge-feat must say of each of {num_edges} edges whether it is of a cell "
            "or of a net (first two columns); download the family again."
        )
    return marks_E2[:, 0].astype(np.int64)


def _tables(circuit: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return edges (E, 2) and features of nodes (N, C) of the one graph of a folder."""
    sizes = Sizes.from_folder(circuit, None)
    num_nodes, num_edges = int(sizes.nodes_B.sum()), int(sizes.edges_B.sum())
    edge_E2 = read_table(circuit, "edge", np.int64, num_edges)
    node_NC = read_table(circuit, "node-feat", np.float64, num_nodes)
    sizes.require(circuit, 1, len(node_NC), len(edge_E2))
    if edge_E2.size and not 0 <= edge_E2.min() <= edge_E2.max() < num_nodes:
        raise DataError(
            f"{circuit}: an edge names node {int(edge_E2.max())}, but the graph has {num_nodes}; "
            "download the family again."
        )
    return edge_E2, node_NC


def _column(circuit: Path, name: str, num_nodes: int) -> np.ndarray:
    value_NC = read_table(circuit, name, np.float64, num_nodes)
    if len(value_NC) != num_nodes:
        raise DataError(
            f"{circuit}: {name} holds {len(value_NC)} rows for {num_nodes} nodes; download the "
            "family again."
        )
    return value_NC.min(axis=1)


def _distinct(edge_E2: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return each edge once, sorted by source and target, and where it came first."""
    edges_2E, first_E = np.unique(edge_E2.T.reshape(2, -1), axis=1, return_index=True)
    return edges_2E, first_E


def _sizes(num_nodes: int, edges_2E: np.ndarray) -> dict[str, Condition]:
    return dict(size_conditions(longest_path_layers(num_nodes, edges_2E)))


def _as_words(value_N: np.ndarray) -> list[str]:
    return [f"{value:g}" for value in value_N.tolist()]


def _name(circuit: Path, folder: Path) -> str:
    return f"{folder.name}/{circuit.relative_to(folder).as_posix().removesuffix('/raw')}"


@dataclass(frozen=True)
class Family:
    """How the tables of a family are read.

    Attributes:
        name: What it is.
        columns: Name of each column of ``node-feat``.
        words: Columns that are categories, the kind of a node first; the others are numbers.
        labels: File with the labels.
        label_names: Its columns that can be the label, where the file has a header.
    """

    name: str
    columns: tuple[str, ...]
    categorical: tuple[str, ...]
    labels: str
    label_names: tuple[str, ...] = ()


AMP = Family(
    "AMP",
    ("position", "subcircuit", "value"),
    ("subcircuit", "position"),
    "perform101",
    ("gain", "pm", "bw", "fom"),
)
HLS = Family(
    "HLS",
    ("type", "bitwidth", "opcode_category", "opcode", "starts_path", "cluster"),
    ("opcode", "type", "opcode_category", "starts_path"),
    "graph-label",
)


def family_of(folder: Path) -> Family | None:
    """Return the family that a folder holds, None for computational graphs."""
    for family in (AMP, HLS):
        if any(folder.glob(f"{family.labels}.csv*")):
            return family
    return None


def read_family(
    folder: Path, family: Family, label: str | None, num_graphs: int | None
) -> list[AttributedGraph]:
    """Read the graphs of AMP or HLS.

    Raises:
        DataError: If a file is missing, malformed, or of another length than the others.
    """
    label_B = _labels(folder, family, label)[:num_graphs]
    sizes = Sizes.from_folder(folder, num_graphs)
    num_nodes, num_edges = int(sizes.nodes_B.sum()), int(sizes.edges_B.sum())
    edge_E2 = read_table(folder, "edge", np.int64, num_edges)
    node_NC = read_table(folder, "node-feat", np.float64, num_nodes)
    sizes.require(folder, len(label_B), len(node_NC), len(edge_E2))
    if num_nodes and node_NC.shape[1] != len(family.columns):
        raise DataError(
            f"{folder}: node-feat has {node_NC.shape[1]} columns, but {family.name} has "
            f"{len(family.columns)} ({', '.join(family.columns)}); download the family again."
        )
    kept_E = _goes_forward(folder, num_edges)
    stops = np.cumsum(sizes.nodes_B), np.cumsum(sizes.edges_B)
    graphs = []
    for b, (nodes, edges) in enumerate(zip(sizes.nodes_B, sizes.edges_B, strict=True)):
        rows = slice(int(stops[1][b] - edges), int(stops[1][b]))
        edges_2E = distinct_edges(edge_E2[rows][kept_E[rows]].T)
        features_NC = node_NC[int(stops[0][b] - nodes) : int(stops[0][b])]
        name = f"{folder.name}/{b}"
        graphs.append(_graph(name, family, features_NC, edges_2E, float(label_B[b])))
    return graphs


def _graph(
    name: str, family: Family, features_NC: np.ndarray, edges_2E: np.ndarray, label: float
) -> AttributedGraph:
    """Return one graph.

    Raises:
        DataError: If an edge names a node that the graph lacks, or edges form a cycle.
    """
    if edges_2E.size and not 0 <= edges_2E.min() <= edges_2E.max() < len(features_NC):
        raise DataError(
            f"{name}: an edge names node {int(edges_2E.max())}, but the graph has "
            f"{len(features_NC)}; download the family again."
        )
    columns = dict(zip(family.columns, features_NC.T, strict=True))
    conditions: dict[str, Condition] = dict(
        size_conditions(longest_path_layers(len(features_NC), edges_2E))
    )
    if math.isfinite(label):
        conditions[LABEL] = label
    return AttributedGraph(
        name=name,
        categories={name: [f"{value:g}" for value in columns[name]] for name in family.categorical},
        numbers={k: value_N for k, value_N in columns.items() if k not in family.categorical},
        edge_index_2E=edges_2E,
        edge_type_E=np.zeros(edges_2E.shape[1], dtype=np.int64),
        conditions=conditions,
    )


def _goes_forward(folder: Path, num_edges: int) -> np.ndarray:
    if not any(folder.glob("edge-feat.csv*")):
        return np.ones(num_edges, dtype=bool)
    feature_EF = read_table(folder, "edge-feat", np.float64, num_edges)
    if len(feature_EF) != num_edges or feature_EF.shape[1] < 2:
        raise DataError(
            f"{folder}: edge-feat holds {len(feature_EF)} rows of {feature_EF.shape[1]} for "
            f"{num_edges} edges of 2; download the family again."
        )
    return feature_EF[:, 1] == 0


def _labels(folder: Path, family: Family, label: str | None) -> np.ndarray:
    """Return the label of each graph, NaN where it is not valid."""
    if not family.label_names:
        if label is not None:
            raise DataError(f"{family.name} has one label; leave 'label' out, found '{label}'.")
        return read_table(folder, family.labels, np.float64)[:, 0]
    label = label or family.label_names[0]
    if label not in family.label_names:
        raise DataError(f"There is no label '{label}'; known are {', '.join(family.label_names)}.")
    path = next(iter(sorted(folder.glob(f"{family.labels}.csv*"))))
    rows = read_csv(path, (label,)).rows()
    try:
        # A simulation that failed has no label.
        labels = [float(r[label]) if float(r.get("valid", "1")) else math.nan for _, r in rows]
        return np.array(labels, dtype=np.float64)
    except ValueError as error:
        raise DataError(
            f"{path}: cannot be read ({plain_reason(error)}); download it again."
        ) from error


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
    if is_circuit_family(folder):
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
    for label in labels.values():
        if label not in LABELS:
            raise DataError(f"There is no label '{label}'; known are {', '.join(LABELS)}.")
    sizes = Sizes.from_folder(folder, num_graphs)
    nodes_B, edges_B = sizes.nodes_B, sizes.edges_B
    label_LB = [_read_labels(folder, label)[:num_graphs] for label in labels.values()]
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


def _read_labels(folder: Path, label: str) -> np.ndarray:
    """Return the latencies, NaN where the file has an empty string."""
    words_B = np.char.strip(read_table(folder, f"label-{label}", np.dtype("U32"))[:, 0], '"')
    try:
        return np.where(words_B == "", "nan", words_B).astype(np.float64)
    except ValueError as error:
        raise DataError(f"{folder}: a label is no number ({error}); download again.") from error


def _columns(graphs: list[AttributedGraph]) -> dict[str, bool]:
    counts = {
        name: len(np.unique(np.concatenate([graph.numbers[name] for graph in graphs])))
        for name in COLUMNS
    }
    return {name: count <= MAX_WORDS for name, count in counts.items() if count > 1}


def _with_columns(graph: AttributedGraph, as_words_of: dict[str, bool]) -> AttributedGraph:
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
