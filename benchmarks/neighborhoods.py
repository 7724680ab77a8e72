"""Which neighborhoods of operators are new, and which repeat? Figures of real jobs and of samples.

    python benchmarks/neighborhoods.py data [SAMPLES ...] [--further data/further]

prints, as JSON, ``NEIGHBORHOOD_METRICS`` of the corpus' test jobs against its training jobs (and
further ones), and of each folder that ``layerdag sample`` wrote, in parts or not. Twice: on rank
0's traces, a color being the name of a node, and on the graphs that models learn from, where the
ranks of a job are folded into one graph.
"""

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from layerdag.dag.dag import DAG
from layerdag.datasets.corpus import load_corpus
from layerdag.datasets.dataset import GraphDataset
from layerdag.evaluation.metrics.base import AttributeView, MetricResult
from layerdag.evaluation.metrics.neighborhoods import NEIGHBORHOOD_METRICS
from layerdag.evaluation.similarity import compare
from layerdag.samples.reader import iter_samples
from layerdag.surrogates.data import read_samples
from layerdag.traces.chakra.corpus import read_index, read_runs
from layerdag.traces.trace import Trace, dependency_edges


def main() -> None:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", help="folder of the corpus")
    parser.add_argument("samples", nargs="*", help="folders that 'layerdag sample' wrote")
    parser.add_argument("--further", help="corpus folder of further training jobs")
    args = parser.parse_args()
    print(json.dumps({"rank 0": _of_traces(args), "folded": _of_graphs(args)}, indent=1))


def _of_traces(args: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of rank 0's traces."""
    words: dict[str, int] = {}
    places = [args.corpus, *([args.further] if args.further else [])]
    runs = [run for place in places for run in read_runs(place, read_index(place))]
    train, test = (
        [_as_graph(run.workload().traces[0], words) for run in runs if run.record.split == split]
        for split in ("train", "test")
    )
    made = {
        folder: [_as_graph(job.workload().traces[0], words) for job in iter_samples(folder)]
        for folder in args.samples
    }
    return _figures(train, test, made, [AttributeView("op")])


def _as_graph(trace: Trace, words: dict[str, int]) -> DAG:
    """Return the nodes and dependencies of a trace, with the codes of its nodes' names."""
    codes = [words.setdefault(name, len(words)) for name in trace.names()]
    return DAG.build(torch.tensor(codes)[:, None], torch.from_numpy(dependency_edges(trace)[0]))


def _of_graphs(args: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of folded graphs."""
    data: GraphDataset = load_corpus(args.corpus, further=args.further)
    views = [AttributeView(attribute.name) for attribute in data.schema.attributes]
    made = {folder: read_samples(folder, data.schema) for folder in args.samples}
    return _figures(data.graphs["train"], data.graphs["test"], made, views)


def _figures(
    train: Sequence[DAG],
    test: Sequence[DAG],
    made: Mapping[str, Sequence[DAG]],
    views: Iterable[AttributeView],
) -> dict[str, Any]:
    """Return percentages of nodes, mean over jobs, with the ends of their intervals."""
    found: dict[str, Any] = {"jobs": {"train": len(train), "test": len(test)}}
    for name, dags in {"test": test, **made}.items():
        report = compare(train, test, dags, list(views), metrics=NEIGHBORHOOD_METRICS)
        found[name] = {row.metric.name: _percents(row.generated) for row in report.rows}
    return found


def _percents(result: MetricResult) -> list[float]:
    """Return the value and the ends of its interval, as far as there are any."""
    interval = result.interval
    ends = () if interval is None else (interval.low, interval.high)
    return [round(100 * value, 1) for value in (result.value, *ends) if value is not None]


if __name__ == "__main__":
    main()
