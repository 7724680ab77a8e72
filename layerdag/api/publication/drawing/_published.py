"""Samples as a release publishes them: their files, and the conditions in its table."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from layerdag.codec import AttributedGraph, job_graph, rank_classes
from layerdag.errors import DataError
from layerdag.evaluation.rules import check_workload, has_errors
from layerdag.graph import Condition
from layerdag.sampling import GeneratedGraph, as_workload


def written_graph(sample: GeneratedGraph) -> AttributedGraph:
    """Return the graph of a sample as its files will hold it.

    Raises:
        DataError: If it cannot become traces, or they break a rule.
    """
    if sample.schema.kind != "trace":
        return sample.graph
    workload = as_workload(sample.graph).workload
    if has_errors(check_workload(workload)):
        raise DataError(f"{sample.name}: its traces break a rule.")
    return job_graph(sample.name, rank_classes(workload), workload.groups, {})


def published_conditions(sample: GeneratedGraph) -> Iterator[tuple[str, Condition]]:
    """Yield the conditions of a sample, numbers to three digits."""
    for name, value in sample.dag.conditions.items():
        if name not in ("num_nodes", "num_layers", "world_size"):
            yield name, value if isinstance(value, str) else float(f"{value:.3g}")


def published_graphs(samples: Iterable[GeneratedGraph]) -> Iterator[AttributedGraph]:
    """Yield samples as their files and rows of samples.csv tell them.

    Those that cannot become traces, or whose traces break a rule, are left out, as they are in a
    release.
    """
    for sample in samples:
        try:
            graph = written_graph(sample)
        except DataError:
            continue
        sizes = graph.conditions if sample.schema.kind == "trace" else {}
        reported = dict(published_conditions(sample))
        yield replace(graph, name=sample.name, conditions={**sizes, **reported})
