"""How far generated DAGs are from real ones, on the scale real training set vs real test set.

Every figure is a distance between the generated set and the real test set; beside it stands the
same distance between the real training set and the real test set, and their ratio. Intervals come
from a bootstrap over graphs.

By depth: an autoregressive sampler builds on what it has sampled, so that its mistakes add up and
deeper layers drift away from real ones while figures of whole graphs still look well. So every
graph is cut into bins by depth, and each bin is compared with the same bin of real graphs.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from layerdag.dag.dag import DAG
from layerdag.dag.graph_set import GraphSet
from layerdag.errors import GraphError, LayerdagError, UsageError
from layerdag.evaluation.metrics.base import (
    METRICS,
    AttributeMetrics,
    AttributeView,
    Comparison,
    Declaration,
    Goal,
    Histograms,
    Jobs,
    Metric,
    MetricResult,
    SimilarityRow,
    aligned_histograms,
    metrics_for,
)
from layerdag.evaluation.metrics.classifiers import CLASSIFIER_METRIC, NodeClassifier
from layerdag.evaluation.metrics.descriptor_metrics import (
    DESCRIPTORS,
    DescriptorMetric,
    Items,
    descriptors,
)
from layerdag.evaluation.metrics.joint_tails import JointTails
from layerdag.evaluation.metrics.kernels import KERNEL_METRICS, MANIFOLD_METRICS
from layerdag.evaluation.metrics.neighborhoods import PathDistance, PathNovelty, TypeHashDistance
from layerdag.evaluation.metrics.operator_inputs import OperatorInputs
from layerdag.evaluation.metrics.product_shapes import ShapeViolations
from layerdag.evaluation.metrics.repeated_blocks import BlockFigure, RepeatedBlocks
from layerdag.evaluation.metrics.whole_programs import JOB_METRICS
from layerdag.runtime.files import write_text
from layerdag.runtime.settings import did_you_mean, shorten
from layerdag.runtime.terminal import stage, track

if TYPE_CHECKING:
    import pandas as pd


DEFAULT_METRICS: tuple[Metric | AttributeMetrics, ...] = (
    *DESCRIPTORS,
    *KERNEL_METRICS,
    CLASSIFIER_METRIC,
    *MANIFOLD_METRICS,
)


def default_metrics() -> tuple[Metric | AttributeMetrics, ...]:
    """Return the default metrics of the package, then those that were registered."""
    return (*DEFAULT_METRICS, *(METRICS.get(name) for name in METRICS.names()))


MIN_COMPARED = 8
"""Graphs that ratios of distances need on each side at least."""

_SHOWN = 8
"""Metrics in the short form of a report."""

_SHORT = {"degree": "in_degree", "degrees": "in_degree", "layers": "depth", "nodes": "num_nodes"}
"""What people ask for, and the metric that it is."""


class UnknownMetricError(UsageError, KeyError):
    """A report has no metric of that name."""

    def __str__(self) -> str:
        """Return the sentence, which KeyError would put into quotes."""
        return str(self.args[0])


@dataclass(frozen=True, repr=False)
class QualityReport:
    """All similarity figures with what is needed to repeat them."""

    rows: tuple[SimilarityRow, ...]
    train: int
    test: int
    generated: int
    seed: int
    replicates: int

    @property
    def failures(self) -> tuple[MetricResult, ...]:
        """The metrics that could not be computed, with their reasons."""
        return tuple(row.generated for row in self.rows if row.generated.error)

    def __getitem__(self, name: str) -> SimilarityRow:
        """Return the row of a metric by its name, or by what follows "descriptor:" in it.

        Raises:
            UnknownMetricError: If there is none; names the nearest. It is a ``KeyError``.
        """
        for row in self.rows:
            if name in (row.metric.name, row.metric.name.rpartition(":")[2]):
                return row
        if name in _SHORT:
            return self[_SHORT[name]]
        known = [row.metric.name for row in self.rows]
        raise UnknownMetricError(
            f"The report has no metric '{name}'.{did_you_mean(name, known)} It has "
            f"{', '.join(known)}."
        )

    @property
    def score(self) -> float:
        """Mean of the ratios of all distances: 1 is as near to real test graphs as real ones are.

        NaN where no distance has a ratio.
        """
        ratios = [row.ratio for row in self.rows if row.is_distance and row.ratio is not None]
        return float(np.mean(ratios)) if ratios else math.nan

    def to_pandas(self) -> "pd.DataFrame":
        """Return a row for each metric: its figures, their ratio with its interval, and errors."""
        import pandas as pd

        return pd.DataFrame(
            {
                "metric": row.metric.name,
                "generated": row.generated.value,
                "real": row.reference.value,
                "ratio": row.ratio,
                "low": None if row.ratio_interval is None else row.ratio_interval.low,
                "high": None if row.ratio_interval is None else row.ratio_interval.high,
                "error": row.generated.error,
            }
            for row in self.rows
        )

    def save(self, path: str | Path) -> Path:
        """Write the figures as ``.json`` or as a table in ``.csv`` or ``.txt``; return the path.

        Raises:
            UsageError: If the ending is another one.
        """
        path = Path(path)
        if path.suffix == ".json":
            write_text(path, json.dumps(self.to_dict(), indent=1) + "\n")
        elif path.suffix == ".csv":
            write_text(path, self.to_pandas().to_csv(index=False))
        elif path.suffix == ".txt":
            write_text(path, f"{self}\n")
        else:
            raise UsageError(
                f"{path}: a quality report is written as .json, .csv or .txt; pages (.html) are "
                "made by 'layerdag release'."
            )
        return path

    def __repr__(self) -> str:
        """Return counts, score and the furthest metrics, in a few lines."""
        sizes = f"{self.generated} generated graphs, {self.train} train, {self.test} test"
        lines = [f"QualityReport({sizes}, score {self.score:.3g})"]
        rated = [row for row in self.rows if row.ratio is not None]
        for row in sorted(rated, key=lambda row: -(row.ratio or 0.0))[:_SHOWN]:
            name, value = shorten(row.metric.name, 40), _number(row.generated.value)
            lines.append(f"  {name:<40}  {value:>9}  {_number(row.ratio):>9} times real")
        if len(rated) > _SHOWN:
            lines.append(f"  and {len(self.rows) - _SHOWN} more; print(report) shows all")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON-serializable data, a number that is not finite as None."""
        return {field.name: _plain(getattr(self, field.name)) for field in fields(self)}

    def __str__(self) -> str:
        """Return one line per metric: the figure, that of real training graphs, their ratio."""
        rows: list[tuple[str, ...]] = [("metric", "generated", "real", "ratio", "95 %", "")]
        for row in self.rows:
            interval = row.ratio_interval
            around = f"[{_number(interval.low)}, {_number(interval.high)}]" if interval else ""
            values = map(_number, (row.generated.value, row.reference.value, row.ratio))
            note = row.generated.error or row.metric.goal.value + " is better"
            rows.append((row.metric.name, *values, around, note))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1]
        lines = [
            f"{self.generated} generated graphs and {self.train} real training graphs, each "
            f"against {self.test} real test graphs; a ratio of 1 is as near as real graphs are"
        ]
        for name, *cells, note in rows:
            cells = [cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True)]
            lines.append("  ".join((name.ljust(widths[0]), *cells, note)).rstrip())
        return "\n".join(lines)


def _number(value: float | None) -> str:
    return "-" if value is None or not math.isfinite(value) else f"{value:.3g}"


def _plain(value: object) -> object:
    if isinstance(value, Declaration):
        return _plain(value.to_dict())
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, Enum):
        return value.value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def compare(
    train: Sequence[DAG],
    test: Sequence[DAG],
    generated: Sequence[DAG],
    attributes: Sequence[AttributeView],
    *,
    metrics: Iterable[Metric | AttributeMetrics] = DEFAULT_METRICS,
    jobs: Jobs | None = None,
    seed: int = 0,
    replicates: int = 200,
) -> QualityReport:
    """Return every figure of ``generated`` against ``test``, next to ``train``.

    About 3 s of one core for 500 graphs of 140 nodes per set.

    Args:
        train: Real graphs that the generator learned from.
        test: Real graphs that it never saw.
        generated: Its samples.
        attributes: Name and kind of each node attribute, in column order.
        metrics: What to compute; ``(*DEFAULT_METRICS, *NEIGHBORHOOD_METRICS)`` adds to the default.
            The default itself includes registered metrics.
        jobs: The jobs of the three sets with their exact numbers; with them the default includes
            ``JOB_METRICS``, which takes some 20 ms more for each job of up to 200 a set.
        seed: Seed of the bootstrap.
        replicates: Number of resamples.

    Raises:
        UsageError: If a set is empty, ``attributes`` does not match the graphs, or two metrics have
            one name.
        DataError: If graphs have different numbers of attributes.
        GraphError: If a graph has a cycle and a metric needs layers; check structure first.
    """
    comparison = comparison_of((train, test, generated), attributes, seed, replicates)
    if metrics is DEFAULT_METRICS:
        metrics = (*default_metrics(), *(() if jobs is None else JOB_METRICS))
    comparison = replace(comparison, jobs=jobs)
    chosen = metrics_for(metrics, attributes)
    with stage(f"comparing by {len(chosen)} metrics"):
        found = track(chosen, "comparing", len(chosen))
        rows = tuple(row_of(metric, comparison) for metric in found)
    return QualityReport(rows, len(train), len(test), len(generated), seed, replicates)


def comparison_of(
    sets: tuple[Sequence[DAG], Sequence[DAG], Sequence[DAG]],
    attributes: Sequence[AttributeView],
    seed: int,
    replicates: int,
) -> Comparison:
    """Return training, test and generated graphs, ready for metrics.

    Raises:
        UsageError: If a set is empty, or there is not one view for each node attribute.
        DataError: If graphs have different numbers of attributes.
    """
    train, test, generated = (GraphSet.from_dags(dags) for dags in sets)
    for graphs in (train, test, generated):
        if graphs.num_attributes != len(attributes):
            raise UsageError(
                f"{len(attributes)} attributes are named but the graphs have "
                f"{graphs.num_attributes}; pass one AttributeView for each column of x."
            )
    return Comparison(train, test, generated, tuple(attributes), seed, replicates)


def row_of(metric: Metric, comparison: Comparison) -> SimilarityRow:
    """Compute one metric; a failure becomes the row's error, unless a graph is not a DAG."""
    try:
        return metric.compute(comparison)
    except GraphError:
        raise
    except LayerdagError as error:
        return SimilarityRow.failed(metric, str(error))


def histograms_of(
    name: str, sets: Iterable[Sequence[DAG]], attributes: Sequence[AttributeView]
) -> list[Histograms]:
    """Return the histograms of descriptor ``name`` for each set, on one support, for plots.

    Raises:
        UsageError: If no descriptor has that name.
    """
    table = {metric.name: metric for metric in descriptors(attributes)}
    if name not in table:
        raise UsageError(f"There is no descriptor '{name}'; known are {', '.join(table)}.")
    graphs = [GraphSet.from_dags(dags) for dags in sets]
    items = [next(table[name].items(one)) for one in graphs]
    return aligned_histograms(
        [one.value for one in items],
        [one.graph for one in items],
        [one.num_graphs for one in graphs],
    )


DEPTH_BINS = 5
BY_NODE = ("in_degree", "out_degree")
BY_LAYER = ("width",)


@dataclass(frozen=True)
class DepthSimilarity:
    """How far generated graphs are from real ones in one depth bin.

    Attributes:
        begin: Where it begins, as a fraction of the layers of a graph.
        nodes: Generated nodes in it.
        rows: Distances of the width of layers, the degrees of nodes and the first attribute; those
            of nodes and layers in the depth bin alone, with edges to and from anywhere.
    """

    begin: float
    end: float
    nodes: int
    rows: tuple[SimilarityRow, ...]

    @property
    def mean_ratio(self) -> float | None:
        """Mean of the ratios that there are."""
        ratios = [row.ratio for row in self.rows if row.ratio is not None]
        return float(np.mean(ratios)) if ratios else None


def compare_by_depth(
    train: Sequence[DAG],
    test: Sequence[DAG],
    generated: Sequence[DAG],
    attributes: Sequence[AttributeView],
    *,
    depth_bins: int = DEPTH_BINS,
    replicates: int = 50,
) -> tuple[DepthSimilarity, ...]:
    """Return the similarity figures of each depth bin, from the first layers on.

    Of the node attributes the first one is compared.

    Layer l of a graph with L layers is in depth bin ``l * depth_bins // L``, so that a graph of
    fewer layers than bins leaves some of them empty.

    Raises:
        UsageError: If a set is empty, there is no bin, or ``attributes`` does not match the
            graphs.
        DataError: If graphs have different numbers of attributes.
        GraphError: If a graph has a cycle; check structure first.
    """
    if depth_bins < 1:
        raise UsageError(f"Depth is cut into at least one depth bin, found {depth_bins}.")
    comparison = comparison_of((train, test, generated), attributes, 0, replicates)
    names = (*BY_LAYER, *BY_NODE, f"attribute:{attributes[0].name}")
    compared = [metric for metric in descriptors(attributes) if metric.name in names]
    node_bin_N = _depth_bin_of_node(comparison.generated, depth_bins)
    return tuple(
        DepthSimilarity(
            begin=number / depth_bins,
            end=(number + 1) / depth_bins,
            nodes=int((node_bin_N == number).sum()),
            rows=tuple(
                row_of(_in_bin(metric, number, depth_bins), comparison) for metric in compared
            ),
        )
        for number in range(depth_bins)
    )


def _in_bin(descriptor: DescriptorMetric, number: int, depth_bins: int) -> DescriptorMetric:
    def items(graphs: GraphSet) -> Iterator[Items]:
        here = _depth_bin_of_node(graphs, depth_bins) == number
        if descriptor.name in BY_LAYER:
            layer_L = np.arange(len(graphs.graph_L)) - graphs.layer_ptr[graphs.graph_L]
            here = layer_L * depth_bins // graphs.layers_B[graphs.graph_L] == number
        for part in descriptor.items(graphs):
            yield Items(part.part, part.value[here], part.graph[here])

    return replace(descriptor, items=items)


def _depth_bin_of_node(graphs: GraphSet, depth_bins: int) -> np.ndarray:
    return graphs.layer_N * depth_bins // graphs.layers_B[graphs.graph_N]


LENGTHS = (2, 3, 4)


def _novelty(length: int) -> PathNovelty:
    what = f"sequences of {length} operators along paths that occur in no training graph"
    return PathNovelty(f"path_novelty:{length}", what, Goal.MATCH_REAL, upper=1.0, length=length)


def _distance(length: int) -> PathDistance:
    what = f"share of each sequence of {length} operators along paths"
    return PathDistance(f"path_frequencies:{length}", what, Goal.MINIMIZE, upper=1.0, length=length)


def _blocks(figure: BlockFigure, what: str, unit: str = "", upper: float = float("inf")) -> Metric:
    name = f"repeated_blocks:{figure.value}"
    return RepeatedBlocks(name, what, Goal.MATCH_REAL, upper=upper, unit=unit, figure=figure)


LOCAL_METRICS: tuple[Metric | AttributeMetrics, ...] = (
    TypeHashDistance(
        "type_hashes",
        "share of each type hash (WfChef)",
        Goal.MINIMIZE,
        upper=1.0,
    ),
    *(_novelty(length) for length in LENGTHS),
    *(_distance(length) for length in LENGTHS),
    _blocks(BlockFigure.NUMBER, "blocks of layers that repeat one after the other", "blocks"),
    _blocks(BlockFigure.LENGTH, "length of a repeated block", "layers"),
    _blocks(BlockFigure.COUNT, "copies of a repeated block", "copies"),
    _blocks(BlockFigure.NODES, "nodes inside repeated blocks", upper=1.0),
    OperatorInputs(),
    ShapeViolations(),
    JointTails(),
    NodeClassifier(
        "node_classifier",
        "AUROC of boosted trees on nodes, 0.5 is indistinguishable",
        Goal.MINIMIZE,
        upper=1.0,
    ),
)
"""Type hashes, paths, repeated blocks, impossible inputs and numbers, tails, and a classifier."""
