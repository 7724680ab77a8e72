"""Families of the DGRL benchmark (Graph-COM/Benchmark_for_DGRL_in_Hardwares), one folder each.

- Computational graphs of nn-Meter with measured latencies in ms. A node has an operator, input
  shape (5 numbers), kernel (4), strides (2) and output shape (5). ``nasbench201s`` is NA-Edge of
  the LayerDAG paper.
- AMP: operational amplifiers as DAGs of sub-circuits, with labels from a circuit simulator.
- HLS: control and data flow of C programs, without the edges marked as going back.
- SR: and-inverter graphs of multipliers, whose nodes are to be recognized as parts of adders.
- TIME: pins of placed circuits, joined by nets and by cells, with slacks before routing.

SR and TIME have a folder per circuit. Tables are OGB-style CSV files without a header, each
``.csv``, ``.csv.gz`` or ``.csv.xz``.
"""

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike

from layerdag.datasets.dataset import GraphDataset
from layerdag.datasets.settings import DgrlConfig
from layerdag.datasets.splits import split_graphs
from layerdag.errors import DataError
from layerdag.graph.attributed_graph import LABEL, SPLITS, AttributedGraph, Split, size_conditions
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
        """Read the sizes of the first ``num_graphs`` graphs.

        Raises DataError if a file is missing or damaged, or ``num_graphs`` is below 1.
        """
        if num_graphs is not None and num_graphs < 1:
            raise DataError(f"'num_graphs' must be at least 1, found {num_graphs}.")
        nodes_B = read_table(folder, "num-node-list", np.int64)[:num_graphs, 0]
        edges_B = read_table(folder, "num-edge-list", np.int64)[:num_graphs, 0]
        if min(nodes_B.min(initial=0), edges_B.min(initial=0)) < 0:
            raise DataError(f"{folder}: a number of nodes or edges is negative; download it again.")
        return cls(nodes_B, edges_B)

    @property
    def num_nodes(self) -> int:
        """Nodes of all graphs."""
        return int(self.nodes_B.sum())

    @property
    def num_edges(self) -> int:
        """Edges of all graphs."""
        return int(self.edges_B.sum())

    def require(self, folder: Path, labels: int, nodes: int, edges: int) -> None:
        """Raise DataError unless the other tables are of these lengths."""
        lengths = (len(self.nodes_B), len(self.edges_B), labels)
        if len(set(lengths)) > 1 or edges != self.num_edges or nodes != self.num_nodes:
            raise DataError(
                f"{folder}: the files speak of {lengths[0]}, {lengths[1]} and {lengths[2]} graphs "
                f"with {self.num_nodes} nodes and {self.num_edges} edges, but hold {nodes} and "
                f"{edges}; download the family again."
            )


def read_table(folder: Path, name: str, kind: DTypeLike, max_rows: int | None = None) -> np.ndarray:
    """Read a CSV without a header as a matrix.

    Raises DataError if the file is missing or a cell is of another kind.
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


def _columns_of(
    folder: Path, sizes: Sizes, names: Sequence[str] | None, family: str
) -> dict[str, np.ndarray]:
    """Return the columns of ``node-feat`` by name; without names they are numbered features."""
    node_NC = read_table(folder, "node-feat", np.float64, sizes.num_nodes)
    names = [f"feature_{c}" for c in range(node_NC.shape[1])] if names is None else names
    if sizes.num_nodes and node_NC.shape[1] != len(names):
        raise DataError(
            f"{folder}: node-feat has {node_NC.shape[1]} columns, but {family} has {len(names)} "
            f"({', '.join(names)}); download the family again."
        )
    return dict(zip(names, node_NC.T, strict=True))


def _graph(
    name: str,
    columns: Mapping[str, np.ndarray],
    words: Sequence[str],
    edges_2E: np.ndarray,
    label: float = math.nan,
) -> AttributedGraph:
    """Return one graph, each edge once, sorted by source and target."""
    num_nodes = len(next(iter(columns.values())))
    if edges_2E.size and not 0 <= edges_2E.min() <= edges_2E.max() < num_nodes:
        raise DataError(
            f"{name}: an edge names node {int(edges_2E.max())}, but the graph has {num_nodes}; "
            "download the family again."
        )
    edges_2E = np.unique(edges_2E, axis=1)
    return AttributedGraph(
        name=name,
        categories={word: [f"{value:g}" for value in columns[word].tolist()] for word in words},
        numbers={key: value_N for key, value_N in columns.items() if key not in words},
        edge_index_2E=edges_2E,
        edge_type_E=np.zeros(edges_2E.shape[1], dtype=np.int64),
        conditions={
            **size_conditions(longest_path_layers(num_nodes, edges_2E)),
            **({LABEL: label} if math.isfinite(label) else {}),
        },
    )


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
_ENDPOINT = "is-timing-endpt"


def _read_sr(folder: Path) -> dict[Split, list[AttributedGraph]]:
    """Return the graphs of SR in its own parts; all node features are 0 or 1."""
    parts: dict[Split, list[AttributedGraph]] = {split: [] for split in SPLITS}
    for part, split in SR_PARTS.items():
        for file in sorted((folder / part).glob("**/num-node-list.csv*")):
            circuit = file.parent
            columns, edges_2E = _circuit(circuit, None, "SR")
            num_nodes = len(columns["feature_0"])
            for name in SR_LABELS:
                columns[name] = _node_column(circuit, f"node-label-{name}", num_nodes)
            name = _name_of(circuit, folder)
            parts[split].append(_graph(name, columns, list(columns), edges_2E))
    return parts


def _read_time(
    folder: Path, circuits: Sequence[Path], label: str, seed: int
) -> dict[Split, list[AttributedGraph]]:
    if label not in TIME_SLACKS:
        raise DataError(f"There is no label '{label}'; known are {', '.join(TIME_SLACKS)}.")
    graphs = [_timing_graph(circuit, folder, label) for circuit in circuits]
    others = [graph for graph in graphs if graph.name.split("/")[1] not in TIME_TEST]
    parts = split_graphs(others, seed)
    parts["train"] += parts["test"]
    parts["test"] = [graph for graph in graphs if graph.name.split("/")[1] in TIME_TEST]
    return parts


def _timing_graph(circuit: Path, folder: Path, label: str) -> AttributedGraph:
    columns, edges_2E = _circuit(circuit, TIME_PINS, "TIME")
    num_nodes, num_edges = len(columns["is_port"]), edges_2E.shape[1]
    columns["is_endpoint"] = _node_column(circuit, _ENDPOINT, num_nodes)
    slack_N = _node_column(circuit, f"node-label-{label}-slack", num_nodes)
    slack_P = slack_N[(columns["is_endpoint"] == 1) & np.isfinite(slack_N)]
    least = float(slack_P.min()) if len(slack_P) else math.nan
    graph = _graph(_name_of(circuit, folder), columns, TIME_WORDS, edges_2E, least)
    feature_EF = read_table(circuit, "edge-feat", np.float64, num_edges)
    marks_E2 = feature_EF[:, :2]  # cell, net
    if len(feature_EF) != num_edges or not (marks_E2.sum(axis=1) == 1).all():
        raise DataError(
            f"{circuit}: edge-feat must say of each of {num_edges} edges whether it is of a cell "
            "or of a net (first two columns); download the family again."
        )
    _, first_E = np.unique(edges_2E, axis=1, return_index=True)
    type_E = marks_E2[:, 0].astype(np.int64)[first_E]
    return replace(graph, edge_type_E=type_E, edge_type_names=TIME_EDGES)


def _circuit(
    circuit: Path, names: Sequence[str] | None, family: str
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return the node columns and the edges (2, E) of the only graph in a folder."""
    sizes = Sizes.from_folder(circuit, None)
    edge_E2 = read_table(circuit, "edge", np.int64, sizes.num_edges)
    columns = _columns_of(circuit, sizes, names, family)
    sizes.require(circuit, 1, len(next(iter(columns.values()))), len(edge_E2))
    return columns, edge_E2.T.reshape(2, -1)


def _node_column(circuit: Path, name: str, num_nodes: int) -> np.ndarray:
    value_NC = read_table(circuit, name, np.float64, num_nodes)
    if len(value_NC) != num_nodes:
        raise DataError(
            f"{circuit}: {name} holds {len(value_NC)} rows for {num_nodes} nodes; download the "
            "family again."
        )
    return value_NC.min(axis=1)


def _name_of(circuit: Path, folder: Path) -> str:
    return f"{folder.name}/{circuit.relative_to(folder).as_posix().removesuffix('/raw')}"


@dataclass(frozen=True)
class Family:
    """How the tables of a family are read.

    ``words`` are the columns of ``node-feat`` that are categories, the kind of a node first;
    ``labels`` is the file of labels, ``label_names`` its columns if it has a header.
    """

    name: str
    columns: tuple[str, ...]
    words: tuple[str, ...]
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


def read_family(
    folder: Path, family: Family, label: str | None, num_graphs: int | None
) -> list[AttributedGraph]:
    """Read the graphs of AMP or HLS.

    Raises DataError if a file is missing, malformed, or of another length than the others.
    """
    label_B = _family_labels(folder, family, label)[:num_graphs]
    sizes = Sizes.from_folder(folder, num_graphs)
    edge_E2 = read_table(folder, "edge", np.int64, sizes.num_edges)
    columns = _columns_of(folder, sizes, family.columns, family.name)
    sizes.require(folder, len(label_B), len(next(iter(columns.values()))), len(edge_E2))
    kept_E = np.ones(sizes.num_edges, dtype=bool)
    if any(folder.glob("edge-feat.csv*")):
        feature_EF = read_table(folder, "edge-feat", np.float64, sizes.num_edges)
        if len(feature_EF) != sizes.num_edges or feature_EF.shape[1] < 2:
            raise DataError(
                f"{folder}: edge-feat holds {len(feature_EF)} rows of {feature_EF.shape[1]} for "
                f"{sizes.num_edges} edges of 2; download the family again."
            )
        kept_E = feature_EF[:, 1] == 0  # the others go back
    node_ends, edge_ends = np.cumsum(sizes.nodes_B), np.cumsum(sizes.edges_B)
    graphs = []
    for b, (nodes, edges) in enumerate(zip(sizes.nodes_B, sizes.edges_B, strict=True)):
        row_N = slice(int(node_ends[b] - nodes), int(node_ends[b]))
        row_E = slice(int(edge_ends[b] - edges), int(edge_ends[b]))
        own = {name: value_N[row_N] for name, value_N in columns.items()}
        edges_2E = edge_E2[row_E][kept_E[row_E]].T
        name = f"{folder.name}/{b}"
        graphs.append(_graph(name, own, family.words, edges_2E, float(label_B[b])))
    return graphs


def _family_labels(folder: Path, family: Family, label: str | None) -> np.ndarray:
    """Return the label of each graph, NaN where a simulation failed."""
    if not family.label_names:
        if label is not None:
            raise DataError(f"{family.name} has one label; leave 'label' out, found '{label}'.")
        return read_table(folder, family.labels, np.float64)[:, 0]
    label = label or family.label_names[0]
    if label not in family.label_names:
        raise DataError(f"There is no label '{label}'; known are {', '.join(family.label_names)}.")
    path = min(folder.glob(f"{family.labels}.csv*"))
    rows = read_csv(path, (label,)).rows()
    try:
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


def load_dgrl(config: DgrlConfig) -> GraphDataset:
    """Load a family.

    In computational graphs, columns of a single value are left out and columns of few values are
    words, as in the LayerDAG paper. Equal networks stay in one split (80/10/10 %). SR and TIME come
    with their own parts. Raises DataError if files are missing, malformed, or differ in length.
    """
    folder, label = config.folder, config.label
    is_sr = any((folder / "train").glob("node-label-root.csv*"))
    circuits = sorted({file.parent for file in folder.glob(f"*/raw/{_ENDPOINT}.csv*")})
    if (is_sr or circuits) and config.num_graphs is not None:
        found = config.num_graphs
        raise DataError(f"{folder}: has few circuits; leave 'num_graphs' out, found {found}.")
    if is_sr and label is not None:
        raise DataError(f"SR has labels of nodes alone; leave 'label' out, found '{label}'.")
    if is_sr:
        parts = _read_sr(folder)
    elif circuits:
        parts = _read_time(folder, circuits, label or TIME_SLACKS[0], config.seed)
    elif family := next((f for f in (AMP, HLS) if any(folder.glob(f"{f.labels}.csv*"))), None):
        parts = split_graphs(read_family(folder, family, label, config.num_graphs), config.seed)
    else:
        graphs = _read_networks(folder, {LABEL: label or LABELS[0]}, config.num_graphs)
        parts = _with_fewer_columns(split_graphs(graphs, config.seed))
    return GraphDataset.build(f"dgrl/{folder.name}", "flow", parts, num_bins=config.num_bins)


def read_networks(
    folder: str | Path, labels: Sequence[str] = LABELS[:3], num_graphs: int | None = None
) -> list[AttributedGraph]:
    """Read computational graphs unsplit, with every node column as a number.

    Each of ``labels``, a latency in milliseconds, becomes a condition of that name. Raises
    DataError if files are missing, malformed, or differ in length.
    """
    if not labels:
        raise DataError(f"{folder}: name at least one label of {', '.join(LABELS)}.")
    return _read_networks(Path(folder), {label: label for label in labels}, num_graphs)


def _read_networks(
    folder: Path, labels: Mapping[str, str], num_graphs: int | None
) -> list[AttributedGraph]:
    for label in labels.values():
        if label not in LABELS:
            raise DataError(f"There is no label '{label}'; known are {', '.join(LABELS)}.")
    sizes = Sizes.from_folder(folder, num_graphs)
    label_LB = [_latencies(folder, label)[:num_graphs] for label in labels.values()]
    edge_E2 = read_table(folder, "edge", np.int64, sizes.num_edges)
    node_N = read_table(folder, "node-feat", _NODE, sizes.num_nodes)[:, 0]
    for label_B in label_LB:
        sizes.require(folder, len(label_B), len(node_N), len(edge_E2))
    nodes = np.split(node_N, np.cumsum(sizes.nodes_B)[:-1])
    rows = np.split(edge_E2, np.cumsum(sizes.edges_B)[:-1])
    edges = [np.unique(row_E2.T.reshape(2, -1), axis=1) for row_E2 in rows]
    layers = union_layers(sizes.nodes_B.tolist(), edges)
    return [
        AttributedGraph(
            name=f"{folder.name}/{b}",
            categories={"op": nodes[b]["op"].tolist()},
            numbers=dict(zip(COLUMNS, nodes[b]["numbers"].T, strict=True)),
            edge_index_2E=edges[b],
            edge_type_E=np.zeros(edges[b].shape[1], dtype=np.int64),
            conditions={
                **size_conditions(layers[b]),
                **{n: float(y) for n, y in zip(labels, found, strict=True) if np.isfinite(y)},
            },
        )
        for b, found in enumerate(zip(*label_LB, strict=True))
    ]


def _latencies(folder: Path, label: str) -> np.ndarray:
    """Return the latencies, NaN where the file has an empty string (not measured)."""
    words_B = np.char.strip(read_table(folder, f"label-{label}", np.dtype("U32"))[:, 0], '"')
    try:
        return np.where(words_B == "", "nan", words_B).astype(np.float64)
    except ValueError as error:
        raise DataError(f"{folder}: a label is no number ({error}); download again.") from error


def _with_fewer_columns(
    parts: Mapping[Split, Sequence[AttributedGraph]],
) -> dict[Split, list[AttributedGraph]]:
    """Drop columns with one training value; turn those with few values into words."""
    train = parts["train"]
    counts = {n: len(np.unique(np.concatenate([g.numbers[n] for g in train]))) for n in COLUMNS}
    words = [name for name, count in counts.items() if 1 < count <= MAX_WORDS]
    kept = [name for name, count in counts.items() if count > MAX_WORDS]
    return {
        split: [
            replace(
                graph,
                categories={
                    **graph.categories,
                    **{name: [f"{v:g}" for v in graph.numbers[name].tolist()] for name in words},
                },
                numbers={name: graph.numbers[name] for name in kept},
            )
            for graph in graphs
        ]
        for split, graphs in parts.items()
    }
