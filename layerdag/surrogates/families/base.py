"""The contract of a family of surrogates, and features of a graph."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from layerdag.dag.dag import DAG, GraphSizes
from layerdag.dag.graph_set import GraphSet
from layerdag.errors import DataError, UsageError

REACH = 0.5


@dataclass(frozen=True)
class TargetScale:
    """Turns targets into standardized numbers and back; positive targets go through the logarithm.

    Attributes:
        log: True where the logarithm is standardized instead of the value.
        low: Least standardized training target.
        high: Greatest standardized training target.
    """

    log: bool
    mean: float
    std: float
    low: float = -np.inf
    high: float = np.inf

    @classmethod
    def fit(cls, target_B: np.ndarray) -> "TargetScale":
        """Measure the scale of training targets.

        Raises:
            UsageError: If there are fewer than two targets, or one is not finite.
        """
        if target_B.size < 2 or not np.isfinite(target_B).all():
            raise UsageError(
                f"A surrogate needs at least two graphs with finite targets, found "
                f"{target_B.size} graphs of which {int((~np.isfinite(target_B)).sum())} have none; "
                "label the graphs."
            )
        log = bool((target_B > 0).all())
        value_B = np.log(target_B) if log else target_B
        mean, std = float(value_B.mean()), float(max(value_B.std(), 1e-8))
        low, high = (float((edge - mean) / std) for edge in (value_B.min(), value_B.max()))
        return cls(log, mean, std, low, high)

    def standardize(self, target_B: np.ndarray) -> np.ndarray:
        """Return standardized targets."""
        value_B = np.log(np.maximum(target_B, 1e-300)) if self.log else target_B
        return (value_B - self.mean) / self.std

    def restore(self, standard_B: np.ndarray) -> np.ndarray:
        """Return targets in their own unit, at most ``REACH`` deviations beyond those seen.

        Without this limit one wild extrapolation, once exponentiated, outweighs all other graphs.
        """
        limited_B = np.clip(standard_B, self.low - REACH, self.high + REACH)
        value_B = limited_B * self.std + self.mean
        return np.exp(value_B) if self.log else value_B


class SurrogateModel(ABC):
    """A fitted model that predicts one number per graph, in the unit of the training targets."""

    @property
    @abstractmethod
    def family(self) -> str:
        """Name of the family, as files and reports know it."""

    @abstractmethod
    def predict(self, dags: Sequence[DAG]) -> np.ndarray:
        """Return one prediction a graph, float64 (B,)."""

    def spread(self, dags: Sequence[DAG]) -> np.ndarray:
        """Return how unsure the model is of each graph, positive, in any unit, float64 (B,).

        Intervals are widened by it. By default all graphs are alike.
        """
        return np.ones(len(dags))

    def shares_arrays(self, other: "SurrogateModel") -> bool:
        """Return whether another model has the very same arrays, so that a file holds them once."""
        del other
        return False

    @abstractmethod
    def config(self) -> Mapping[str, object]:
        """Return everything but the arrays, as JSON-serializable data."""

    @abstractmethod
    def arrays(self) -> Mapping[str, np.ndarray]:
        """Return the learned arrays by name."""


def graph_features(dags: Sequence[DAG], sizes: GraphSizes) -> np.ndarray:
    """Return one row per graph, float32 (B, F): shape, degrees, spans, and counts of every code.

    Counts enter as log(1 + count); trees are blind to the choice, plots and thresholds are not.

    Raises:
        DataError: If a code lies outside ``sizes``; names the attribute.
        GraphError: If a graph has a cycle.
    """
    graphs = GraphSet.from_dags(dags)
    edges = _per_graph(graphs, graphs.edge_type_E, sizes.edge_types, "edge")
    columns = [shape_features(graphs), edges]
    for index, size in enumerate(sizes.attributes):
        columns.append(_per_graph(graphs, graphs.x_NA[:, index], size, f"attribute {index}"))
    return np.concatenate(columns, axis=1).astype(np.float32)


def shape_features(graphs: GraphSet) -> np.ndarray:
    """Return counts and ratios of each graph that do not depend on attributes, float64 (B, 9)."""
    nodes_B = np.maximum(graphs.nodes_B, 1)
    roots_B = np.bincount(graphs.graph_N[graphs.in_degree_N == 0], minlength=graphs.num_graphs)
    leaves_B = np.bincount(graphs.graph_N[graphs.out_degree_N == 0], minlength=graphs.num_graphs)
    span_B = np.bincount(graphs.graph_E, weights=graphs.span_E, minlength=graphs.num_graphs)
    values = (
        np.log1p(graphs.nodes_B),
        np.log1p(graphs.edges_B),
        np.log1p(graphs.layers_B),
        np.log1p(graphs.widest_B),
        graphs.edges_B / nodes_B,
        graphs.nodes_B / np.maximum(graphs.layers_B, 1),
        roots_B / nodes_B,
        leaves_B / nodes_B,
        span_B / np.maximum(graphs.edges_B, 1),
    )
    return np.stack(values, axis=1)


def log_counts(code: np.ndarray, graph: np.ndarray, graphs: int, size: int) -> np.ndarray:
    """Return log(1 + count) of each of ``size`` codes in each of ``graphs`` graphs."""
    counts = np.bincount(graph * size + code, minlength=graphs * size)
    return np.log1p(counts.reshape(graphs, size))


def _per_graph(graphs: GraphSet, code: np.ndarray, size: int, what: str) -> np.ndarray:
    """Return log(1 + count) of each code in each graph, (B, size)."""
    if code.size and not 0 <= code.min() <= code.max() < size:
        raise DataError(
            f"Codes of {what} reach from {int(code.min())} to {int(code.max())}, but the surrogate "
            f"knows 0 to {size - 1}; encode the graphs with the schema it was fitted with."
        )
    graph = graphs.graph_E if what == "edge" else graphs.graph_N
    return log_counts(code, graph, graphs.num_graphs, size)
