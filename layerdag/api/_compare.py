"""How near generated graphs are to real ones, from data sets and samples as they are."""

from collections.abc import Iterable, Sequence
from typing import overload

from layerdag.datasets import GraphDataset, GraphLike, Split, encoded, translated
from layerdag.datasets.schema import CategoryAttribute, GraphSchema
from layerdag.errors import UsageError
from layerdag.evaluation import SimilarityReport, compare as compare_dags
from layerdag.evaluation.metrics import (
    DEFAULT_METRICS,
    AttributeMetrics,
    AttributeView,
    Metric,
)
from layerdag.graph import DAG
from layerdag.sampling import GeneratedGraph

Graphs = GraphDataset | Sequence[GraphLike]
Metrics = Iterable[Metric | AttributeMetrics]


@overload
def compare(
    real: GraphDataset,
    generated: Graphs,
    /,
    *,
    metrics: Metrics = ...,
    seed: int = ...,
    replicates: int = ...,
) -> SimilarityReport: ...


@overload
def compare(
    real_train: Graphs,
    real_test: Graphs,
    generated: Graphs,
    *,
    metrics: Metrics = ...,
    seed: int = ...,
    replicates: int = ...,
) -> SimilarityReport: ...


def compare(
    real_train: Graphs,
    real_test: Graphs,
    generated: Graphs | None = None,
    *,
    metrics: Metrics = DEFAULT_METRICS,
    seed: int = 0,
    replicates: int = 200,
) -> SimilarityReport:
    """Return every figure of generated graphs against real test graphs, next to training graphs.

    ``compare(data, samples)`` is the usual call, the same as ``compare(data, data, samples)``: of a
    data set, its training graphs count as ``real_train`` and its test graphs as ``real_test``.
    Codes of different schemas are translated into those of the real graphs. About 3 s of one core
    for 500 graphs of 140 nodes per set.

    Args:
        real_train: Real graphs that the generator learned from.
        real_test: Real graphs that it never saw.
        generated: Its samples; of a data set the training graphs.
        metrics: What to compute, from ``layerdag.evaluation.metrics`` or of your own:
            ``(*DEFAULT_METRICS, *NEIGHBORHOOD_METRICS)`` adds to the default.
        seed: Seed of the bootstrap.
        replicates: Number of resamples.

    Returns:
        The figures; ``print`` shows a table, ``to_dict`` gives plain data.

    Raises:
        UsageError: If a set is empty, none has a schema, two metrics have one name, or two sets are
            given and the first is no data set.
        VocabularyError: If a generated graph has a word that the real graphs' schema lacks.
    """
    if generated is None:
        real_test, generated = _whole(real_train), real_test
    schema = _schema((real_train, real_test, generated))
    return compare_dags(
        _dags(real_train, "train", schema),
        _dags(real_test, "test", schema),
        _dags(generated, "train", schema),
        attribute_views(schema),
        metrics=metrics,
        seed=seed,
        replicates=replicates,
    )


def _whole(real: Graphs) -> GraphDataset:
    """Return real graphs if they are a data set, which has training and test graphs.

    Raises:
        UsageError: If they are not.
    """
    if isinstance(real, GraphDataset):
        return real
    raise UsageError(
        "Real graphs are split into training and test graphs; pass a data set, or both and then "
        "the generated graphs."
    )


def attribute_views(schema: GraphSchema) -> tuple[AttributeView, ...]:
    """Return how each node attribute enters a comparison."""
    return tuple(
        AttributeView(a.name, ordered=not isinstance(a, CategoryAttribute), attribute=a)
        for a in schema.attributes
    )


def _schema(sets: Sequence[Graphs]) -> GraphSchema:
    """Return the schema of the first set that has one."""
    for graphs in sets:
        if isinstance(graphs, GraphDataset):
            return graphs.schema
        if graphs and isinstance(graphs[0], GeneratedGraph):
            return graphs[0].schema
    raise UsageError(
        "None of the sets has a schema, which says what codes mean; pass a data set or samples, or "
        "call layerdag.evaluation.compare with the attributes."
    )


def _dags(graphs: Graphs, split: Split, schema: GraphSchema) -> list[DAG]:
    """Return a set as codes of ``schema``."""
    if isinstance(graphs, GraphDataset):
        return translated(graphs.graphs[split], graphs.schema, schema)
    return encoded(graphs, schema)
