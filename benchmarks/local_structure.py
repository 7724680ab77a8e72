"""Is the local structure of samples that of programs? ``LOCAL_METRICS`` of real and sampled jobs.

    python benchmarks/local_structure.py data [SAMPLES ...] [--json]

prints the figures of the corpus' test jobs, and of each folder that ``layerdag sample`` wrote,
against the training jobs. Twice: on rank 0's traces, with the numbers as they are in the files, and
on the graphs that models learn from, where the ranks of a job are folded into one graph and numbers
are decoded from bins. ``real`` is the figure of the test jobs; of a distance, and of the
classifier, that of training against test jobs.

``--largest`` leaves out larger folded graphs; the default is that of the shipped checkpoint.
"""

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from layerdag.dag.dag import DAG
from layerdag.datasets.corpus import load_corpus
from layerdag.evaluation.metrics.base import AttributeView, MetricResult, attribute_views
from layerdag.evaluation.similarity import LOCAL_METRICS, compare
from layerdag.schema.attributes import CategoryAttribute, NumericAttribute
from layerdag.surrogates.data import read_samples
from layerdag.traces.chakra.corpus import read_index, read_runs
from layerdag.traces.chakra.files import read_trace
from layerdag.traces.trace import Trace, dependency_edges

NUMBERS = {"flops": "num_ops", "bytes": "tensor_size", "duration": "duration_ns"}
"""Name of each number, and that of the attribute of nodes in a trace."""

Sets = tuple[Sequence[DAG], Sequence[DAG], Mapping[str, Sequence[DAG]]]


def main() -> None:
    """Print a table or one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", help="folder of the corpus")
    parser.add_argument("samples", nargs="*", help="folders that 'layerdag sample' wrote")
    parser.add_argument("--largest", type=int, default=1200, help="nodes of a folded graph")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    args = parser.parse_args()
    found = {"rank 0": _of_traces(args), "folded": _of_graphs(args)}
    if args.json:
        print(json.dumps(found, indent=1))
        return
    for kind, figures in found.items():
        print("\n".join(_table(kind, figures)))


def _table(kind: str, figures: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each metric: real jobs, then each folder of samples."""
    columns = {name: rows for name, rows in figures.items() if name != "jobs"}
    yield f"{kind:<28}" + "".join(f"{name[-26:]:<28}" for name in columns)
    for metric in figures["real"]:
        cells = []
        for rows in columns.values():
            value, *ends = rows[metric] or ["-"]
            cells.append(f"{value} {ends if ends else ''}")
        yield f"{metric:<28}" + "".join(f"{cell:<28}" for cell in cells)


def _of_traces(args: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of rank 0's traces."""
    runs = list(read_runs(args.corpus, read_index(args.corpus)))
    real = {
        split: [run.workload().traces[0] for run in runs if run.record.split == split]
        for split in ("train", "test")
    }
    made = {
        folder: [read_trace(path) for path in sorted(Path(folder).glob("*/*.0.et"))]
        for folder in args.samples
    }
    views = _views(
        [*real["train"], *real["test"], *(one for part in made.values() for one in part)]
    )
    train, test = ([_as_graph(one, views) for one in real[split]] for split in ("train", "test"))
    graphs = {folder: [_as_graph(one, views) for one in part] for folder, part in made.items()}
    return _figures((train, test, graphs), views)


def _views(traces: Sequence[Trace]) -> list[AttributeView]:
    """Return attributes with a code for every name and every number, so that none is rounded."""
    words = sorted({name for trace in traces for name in trace.names()})
    views = [AttributeView("op", attribute=CategoryAttribute("op", tuple(words)))]
    for name in NUMBERS:
        values = np.unique(np.concatenate([_numbers(trace, name) for trace in traces]))
        bins = tuple((float(value),) * 5 for value in values[np.isfinite(values)])
        exact = NumericAttribute(name, name, bins)
        views.append(AttributeView(name, ordered=True, attribute=exact))
    return views


def _numbers(trace: Trace, name: str) -> np.ndarray:
    """Return a number of each node, NaN for absent and 0."""
    value_N, present_N = trace.integers(NUMBERS[name])
    return np.where(present_N & (value_N > 0), value_N, np.nan)


def _as_graph(trace: Trace, views: Sequence[AttributeView]) -> DAG:
    """Return the nodes and dependencies of a trace."""
    columns = []
    for view in views:
        if isinstance(view.attribute, CategoryAttribute):
            columns.append(view.attribute.encode(trace.names()))
        elif view.attribute is not None:
            columns.append(view.attribute.encode(_numbers(trace, view.name))[0])
    x_NA = torch.from_numpy(np.stack(columns, axis=1))
    return DAG.build(x_NA, torch.from_numpy(dependency_edges(trace)[0]))


def _of_graphs(args: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of folded graphs."""
    data = load_corpus(args.corpus, max_nodes=args.largest)
    made = {folder: read_samples(folder, data.schema) for folder in args.samples}
    sets = data.graphs["train"], data.graphs["test"], made
    return _figures(sets, attribute_views(data.schema))


def _figures(sets: Sets, views: Sequence[AttributeView]) -> dict[str, Any]:
    """Return each figure with the ends of its interval."""
    train, test, made = sets
    found: dict[str, Any] = {"jobs": {"train": len(train), "test": len(test)}}
    for name, dags in {"real": test, **made}.items():
        rows = compare(train, test, dags, views, metrics=LOCAL_METRICS).rows
        side = "reference" if name == "real" else "generated"
        found[name] = {row.metric.name: _rounded(getattr(row, side)) for row in rows}
    return found


def _rounded(result: MetricResult) -> list[float]:
    """Return the value and the ends of its interval, as far as there are any."""
    interval = result.interval
    ends = () if interval is None else (interval.low, interval.high)
    return [round(value, 4) for value in (result.value, *ends) if value is not None]


if __name__ == "__main__":
    main()
