"""Families of the DGRL benchmark with a folder per circuit: SR and TIME.

SR has and-inverter graphs of multipliers, whose nodes are to be told apart as parts of adders.
TIME has pins of placed circuits, joined by nets and by cells, with slacks before routing. Layout
and columns are those that the benchmark's own processors read (``SR_data_processor.py``,
``TIME_data_processor.py`` of Graph-COM/Benchmark_for_DGRL_in_Hardwares).
"""

from pathlib import Path

import numpy as np

from layerdag.codec import AttributedGraph, size_conditions
from layerdag.datasets import Split, split_graphs
from layerdag.datasets.schema import LABEL
from layerdag.datasets.sources._dgrl_tables import Sizes, read_table
from layerdag.errors import DataError
from layerdag.graph import Condition, longest_path_layers

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


def holds_circuits(folder: Path) -> bool:
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
    """Return the pins of a circuit, with edges along nets and through cells."""
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
    sizes = Sizes.of(circuit, None)
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
    """Return a number for each node, the least of its row."""
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
