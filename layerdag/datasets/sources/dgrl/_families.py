"""Families of the DGRL benchmark beside the computational graphs: AMP and HLS.

AMP has operational amplifiers of two or three stages as DAGs of sub-circuits, labels from a circuit
simulator. HLS has control and data flow of C programs; edges marked as going back are left out.
"""

import csv
import io
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from layerdag._runtime import read_parsed
from layerdag.codec import AttributedGraph, size_conditions
from layerdag.datasets.schema import LABEL
from layerdag.datasets.sources.dgrl._tables import Sizes, distinct_edges, read_table
from layerdag.errors import DataError
from layerdag.graph import Condition, longest_path_layers


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
    sizes = Sizes.of(folder, num_graphs)
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
    """Return which edges are not marked as going back, by the second column of ``edge-feat``."""
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
    rows = csv.DictReader(io.StringIO(read_parsed(path).decode("utf-8", "replace")))
    try:
        return np.array([_valid(row, label) for row in rows], dtype=np.float64)
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path}: cannot be read ({error}); download it again.") from error


def _valid(row: Mapping[str, str], label: str) -> float:
    """Return the label of a row, NaN if the simulation failed."""
    return float(row[label]) if float(row.get("valid", "1")) else math.nan
