"""What is computed of samples beside real graphs: similarity, local structure, and a rule."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from layerdag.dag.dag import DAG
from layerdag.datasets.dataset import GraphDataset
from layerdag.evaluation.metrics.base import (
    AttributeMetrics,
    Metric,
    SimilarityRow,
    attribute_views,
)
from layerdag.evaluation.metrics.descriptor_metrics import DESCRIPTORS, AttributeMarginals
from layerdag.evaluation.metrics.neighborhoods import NEIGHBORHOOD_METRICS
from layerdag.evaluation.similarity import LOCAL_METRICS, compare
from layerdag.graph.attributed_graph import Split

from .._figures import Sample
from .._runs import Figures
from ._overlap import shared_with_one

SHAPE = ("nodes", "edges", "layers", "mean_width", "in_degree", "out_degree")
LOCAL = (
    "neighborhood_novelty:1",
    "neighborhood_novelty:2",
    "neighborhood_repetition:1",
    "neighborhood_repetition:2",
    "type_hashes",
    "path_frequencies:3",
)
REPLICATES = 50
_METRICS: tuple[Metric | AttributeMetrics, ...] = (
    *(
        metric
        for metric in (*DESCRIPTORS, *NEIGHBORHOOD_METRICS, *LOCAL_METRICS)
        if isinstance(metric, Metric) and metric.name in (*SHAPE, *LOCAL)
    ),
    AttributeMarginals(),
)


def similarity(data: GraphDataset, split: Split, samples: Sequence[Sample]) -> Figures:
    """Return how near samples are to the graphs of a split.

    Returns:
        "ratios": distances of shapes and of the frequencies of operators, each over that of as many
        training graphs; "ratio": their mean, None without any; "local": of each metric of local
        structure the value, the ends of its interval, and that of real graphs: of as many training
        graphs if it is a distance, otherwise of those of the split; "shared": mean and standard
        error of the largest fraction of a sample that one training graph has.
    """
    drawn = [dag for dag in samples if dag is not None and dag.num_nodes]
    if not drawn:
        return {"ratio": None, "ratios": {}, "local": {}, "shared": None}
    views = attribute_views(data.schema)
    real = data.graphs["train"], data.graphs[split]
    report = compare(*real, drawn, views, metrics=_METRICS, replicates=REPLICATES)
    names = (*SHAPE, f"attribute:{views[0].name}")
    found = {name: report[name].matched_ratio for name in names}
    ratios = {name: round(ratio, 4) for name, ratio in found.items() if ratio is not None}
    local = {name: _plain(report[name]) for name in LOCAL}
    return {
        "ratio": round(mean(ratios.values()), 4) if ratios else None,
        "ratios": ratios,
        "local": {name: row for name, row in local.items() if row},
        "shared": _mean_and_error(shared_with_one(data.graphs["train"], drawn)),
    }


def _mean_and_error(value_B: np.ndarray) -> list[float]:
    """Return the mean and its standard error."""
    error = value_B.std(ddof=1) / np.sqrt(len(value_B)) if len(value_B) > 1 else 0.0
    return [round(float(value_B.mean()), 4), round(float(error), 4)]


def _plain(row: SimilarityRow) -> list[float | None]:
    """Return value, interval and the value of real graphs; nothing if there is no value."""
    if row.generated.value is None:
        return []
    interval = row.generated.interval
    ends = (None, None) if interval is None else (interval.low, interval.high)
    real = row.matched if row.is_distance else row.reference.value
    values = (row.generated.value, *ends, real)
    return [None if value is None else round(value, 4) for value in values]


@dataclass(frozen=True)
class Rule:
    """What all training graphs have in common, to tell which samples are valid.

    Attributes:
        constant: Numbers of components, sources and sinks that are the same in all of them.
        parents: Fewest and most parents of each operator.
        children: Whether each operator occurs without and with children.
    """

    constant: Mapping[str, int]
    parents: Mapping[int, tuple[int, int]]
    children: Mapping[int, frozenset[bool]]

    @classmethod
    def of(cls, dags: Sequence[DAG]) -> "Rule":
        """Read the rule off graphs."""
        counted = [_counts(dag) for dag in dags]
        constant = {
            name: counted[0][name]
            for name in counted[0]
            if len({counts[name] for counts in counted}) == 1
        }
        parents: dict[int, set[int]] = defaultdict(set)
        children: dict[int, set[bool]] = defaultdict(set)
        for dag in dags:
            for operator, fan_in, fan_out in _nodes(dag):
                parents[operator].add(fan_in)
                children[operator].add(fan_out > 0)
        return cls(
            constant,
            {operator: (min(found), max(found)) for operator, found in parents.items()},
            {operator: frozenset(found) for operator, found in children.items()},
        )

    def holds(self, dag: DAG) -> bool:
        """Return whether a graph keeps it."""
        counts = _counts(dag)
        if any(counts[name] != value for name, value in self.constant.items()):
            return False
        for operator, fan_in, fan_out in _nodes(dag):
            fewest, most = self.parents.get(operator, (1, 0))
            if not fewest <= fan_in <= most or (fan_out > 0) not in self.children[operator]:
                return False
        return True


def _nodes(dag: DAG) -> list[tuple[int, int, int]]:
    """Return operator, parents and children of each node."""
    source_E, target_E = dag.edge_index_2E.numpy()
    degrees = [np.bincount(end_E, minlength=dag.num_nodes) for end_E in (target_E, source_E)]
    columns: list[Any] = [dag.x_NA[:, 0].tolist(), *(degree_N.tolist() for degree_N in degrees)]
    return list(zip(*columns, strict=True))


def _counts(dag: DAG) -> dict[str, int]:
    nodes, (source_E, target_E) = dag.num_nodes, dag.edge_index_2E.numpy()
    joined_NN = coo_matrix((np.ones(source_E.size), (source_E, target_E)), shape=(nodes, nodes))
    return {
        "components": int(connected_components(joined_NN, directed=False)[0]),
        "sources": nodes - len(set(target_E.tolist())),
        "sinks": nodes - len(set(source_E.tolist())),
    }


def rule_of(load: Callable[[], GraphDataset]) -> Callable[[DAG], bool]:
    """Return the rule of a data set's training graphs, read off them at its first use."""
    found: list[Rule] = []

    def is_valid(dag: DAG) -> bool:
        if not found:
            found.append(Rule.of(load().graphs["train"]))
        return found[0].holds(dag)

    return is_valid
