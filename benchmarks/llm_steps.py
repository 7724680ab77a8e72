#!/usr/bin/env python
"""Are sampled LLM training steps those of points that no training graph has?

    layerdag workload corpus --num 1000 --seed 0 --out outputs/llm-corpus
    layerdag train experiment=llm
    python benchmarks/llm_steps.py outputs/llm-corpus outputs/llm/best

prints JSON. One step is sampled for each point of the test part, asked for by the point's own
conditions (family, layers, width, plan, ranks, batch), and compared with the step of that point:

- ``mean_ratio``: mean of seven distances (nodes, edges, layers, width of layers, in- and
  out-degree, operators) to the test graphs, over the same distances of the training graphs;
- ``floor``: what as many training graphs reach, drawn with replacement;
- ``layers``: fraction of steps whose forward passes of attention are as many as the point has
  layers, for every micro-batch;
- ``program``: fraction whose operators, edges and groups are exactly those of the point's step;
- ``violations``: findings of ``layerdag validate`` on the traces of jobs of at most 16
  ranks (more take minutes each), by rule, and ``repairs`` of unfolding;
- ``makespan``: error of the simulated time of a step on the corpus's machine, as a fraction, median
  and 90th percentile, and ``within_tenth``, the fraction of the steps below a tenth;
- ``flops`` and ``communication``: errors of the totals of a step.

Fractions have the 95 % interval of Wilson. Beside the samples stand two baselines: ``nearest``, the
training step of the nearest point as it is, and ``nearest_by_laws``, its graph with the numbers
that the laws of the schema give at the point's own conditions.
"""

import argparse
import json
import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import binomtest

from layerdag.codec.unfolding import Unfolded
from layerdag.dag.dag import DAG
from layerdag.datasets.dataset import GraphDataset
from layerdag.datasets.folder import load_folder
from layerdag.evaluation.metrics.base import AttributeView
from layerdag.evaluation.similarity import compare
from layerdag.graph.attributed_graph import AttributedGraph, Condition, read_json
from layerdag.graph.topology import neighborhood_colors
from layerdag.runtime.terminal import track
from layerdag.sampling.generated import as_workload
from layerdag.sampling.generation import sample_like
from layerdag.sampling.settings import GenerationSettings
from layerdag.schema.schema import GraphSchema
from layerdag.simulator.run import simulate
from layerdag.training.checkpoint import checkpoint_schema, load_checkpoint
from layerdag.validation.checking import check_workload
from layerdag.workloads.llm_corpus import Machine, read_space

SHAPE = ("nodes", "edges", "layers", "mean_width", "in_degree", "out_degree")
ROUNDS = 4
TENTH = 0.1
MOST_CHECKED = 16


@dataclass(frozen=True)
class Outcome:
    """What a step is measured to be.

    Attributes:
        makespan_s: Simulated time.
        totals: Sum of each number over the nodes of the graph.
        attention: Forward passes of attention.
        colors: What occurs how often: operators with all that they depend on, a few edges deep.
        rules: Broken rules.
        repairs: Of unfolding.
    """

    makespan_s: float
    totals: Mapping[str, float]
    attention: int
    colors: Counter[int]
    rules: Counter[str]
    repairs: Counter[str]

    @classmethod
    def of(cls, graph: AttributedGraph, machine: Machine, codes: dict[str, int]) -> "Outcome":
        """Unfold, check and simulate a whole graph."""
        unfolded: Unfolded = as_workload(graph)
        cluster = machine.cluster(unfolded.workload.num_ranks)
        result = simulate(unfolded.workload, cluster.simulated, compute=cluster.compute(0))
        words = zip(*(graph.categories[k] for k in ("op", "group", "stage", "peer")), strict=True)
        color_N = np.array([codes.setdefault(" ".join(word), len(codes)) for word in words])
        colors = neighborhood_colors(color_N, graph.edge_index_2E, ROUNDS)[-1]
        few = unfolded.workload.num_ranks <= MOST_CHECKED
        findings = check_workload(unfolded.workload) if few else ()
        return cls(
            result.makespan_ns / 1e9,
            {name: float(np.nansum(value_N)) for name, value_N in graph.numbers.items()},
            graph.categories["op"].count("attention.F"),
            Counter(colors.tolist()),
            Counter(f"{f.rule.severity.value}: {f.rule.id}" for f in findings),
            Counter(unfolded.repairs),
        )


def main() -> None:
    """Sample, simulate, and print the figures."""
    args = _arguments()
    torch.set_num_threads(1)
    manifest = json.loads((Path(args.corpus) / "corpus.json").read_text())
    machine = read_space(manifest["space"]).machine
    checkpoint = load_checkpoint(args.checkpoint)
    schema = checkpoint_schema(checkpoint)
    data = load_folder(
        args.corpus, labels=Path(args.corpus) / "labels.csv", numbers="relative", num_bins=args.bins
    )
    if data.schema.conditioned_on(schema.condition_names).to_dict() != schema.to_dict():
        raise SystemExit(f"{args.checkpoint}: was trained on another corpus, or with other bins.")
    names, test = data.names["test"][: args.num], data.graphs["test"][: args.num]
    truth = [read_json(Path(args.corpus) / f"{name}.json.gz") for name in names]
    known = set(schema.condition_names)
    rows = [{k: v for k, v in dag.conditions.items() if k in known} for dag in test]
    settings = GenerationSettings(
        seed=args.seed, temperature=args.temperature, best_of=args.best_of,
        guidance=args.guidance, max_nodes=args.max_nodes,
    )  # fmt: skip
    begin = time.process_time()
    samples = [one.dag for one in sample_like(checkpoint.model.eval(), schema, rows, settings)]
    spent = time.process_time() - begin
    near = [_nearest(row, data.graphs["train"], schema) for row in rows]
    arms: dict[str, Sequence[DAG]] = {
        "samples": samples,
        "nearest": near,
        "nearest_by_laws": [d.with_conditions(r) for d, r in zip(near, rows, strict=True)],
    }
    points = _TestPoints(data, schema, machine, truth)
    print(json.dumps({
        "corpus": {"points": manifest["num"], "seed": manifest["seed"], **manifest["parts"]},
        "step": checkpoint.meta.step, "seed": args.seed, "num": len(test),
        "temperature": args.temperature, "best_of": args.best_of, "guidance": args.guidance,
        "processor_s_per_sample": round(spent / len(test), 2),
        "floor": points.floor(args.draws),
        **{name: points.figures(dags) for name, dags in arms.items()},
    }, indent=1))  # fmt: skip


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", help="folder of 'layerdag workload corpus'")
    parser.add_argument("checkpoint", help="folder of a checkpoint")
    parser.add_argument("--bins", type=int, default=48, help="data.num_bins of the checkpoint")
    parser.add_argument("--num", type=int, help="test points; all without it")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--temperature", type=float, default=0.3)
    parser.add_argument("--best-of", type=int, default=8)
    parser.add_argument("--draws", type=int, default=10, help="of the floor")
    parser.add_argument("--guidance", type=float, default=1.0)
    parser.add_argument("--max-nodes", type=int, default=600)
    return parser.parse_args()


def _nearest(row: Mapping[str, Condition], train: Sequence[DAG], schema: GraphSchema) -> DAG:
    """Return the training step with the most equal categories, then the least ratios of numbers."""
    categories = [c.name for c in schema.category_conditions]
    numbers = [c.name for c in schema.numeric_conditions]

    def distance(dag: DAG) -> float:
        own = dag.conditions
        others = sum(own.get(name) != row.get(name) for name in categories)
        ratios = (math.log(float(own[name]) / float(row[name])) for name in numbers if name in row)
        return others + sum(abs(ratio) for ratio in ratios) / len(numbers)

    return min(train, key=distance)


class _TestPoints:
    """Compares steps with those of test points.

    Args:
        data: The corpus.
        schema: Of the steps' codes.
        machine: That labels are for.
        truth: The graphs of the test points, rolled up.
    """

    def __init__(
        self, data: GraphDataset, schema: GraphSchema, machine: Machine,
        truth: Sequence[AttributedGraph],
    ) -> None:  # fmt: skip
        self._data, self._schema, self._machine = data, schema, machine
        self._codes: dict[str, int] = {}
        self._truth = [
            Outcome.of(schema.whole(graph), machine, self._codes)
            for graph in track(truth, "test points", len(truth))
        ]
        self._attention = [
            round(float(g.conditions["layers"]) * float(g.conditions["micro_batches"]))
            for g in truth
        ]

    def figures(self, dags: Sequence[DAG]) -> dict[str, Any]:
        """Return how near steps are to those of the test points, one for each."""
        wholes = [self._schema.whole(self._schema.decode(dag)) for dag in dags]
        found = [
            Outcome.of(graph, self._machine, self._codes)
            for graph in track(wholes, "simulating", len(wholes))
        ]
        pairs = list(zip(found, self._truth, strict=True))
        error = np.array([abs(f.makespan_s / t.makespan_s - 1) for f, t in pairs])
        return {
            **self.ratios(dags),
            "layers": fraction(
                [f.attention == n for f, n in zip(found, self._attention, strict=True)]
            ),
            "program": fraction([f.colors == t.colors for f, t in pairs]),
            "makespan": quantiles(error),
            "within_tenth": fraction([bool(e <= TENTH) for e in error]),
            "flops": quantiles(_errors(pairs, "flops")),
            "communication": quantiles(_errors(pairs, "comm_bytes")),
            "violations": dict(sum((f.rules for f in found), Counter[str]())),
            "repairs": dict(sum((f.repairs for f in found), Counter[str]())),
        }

    def ratios(self, dags: Sequence[DAG]) -> dict[str, Any]:
        """Return the distances to the test graphs over those of the training graphs."""
        views = [AttributeView(attribute.name) for attribute in self._schema.attributes]
        graphs = self._data.graphs
        report = compare(graphs["train"], graphs["test"], dags, views, replicates=2)
        names = [*SHAPE, f"attribute:{self._schema.attributes[0].name}"]
        found = {name: report.row(name).ratio for name in names}
        held = {name: round(ratio, 3) for name, ratio in found.items() if ratio is not None}
        return {"mean_ratio": round(float(np.mean([*held.values()])), 3), "ratio": held}

    def floor(self, draws: int) -> dict[str, float]:
        """Return the mean ratio of as many training graphs as there are test points."""
        train, rng = self._data.graphs["train"], np.random.default_rng(0)
        means = []
        for _ in range(draws):
            chosen = rng.integers(0, len(train), len(self._truth)).tolist()
            means.append(self.ratios([train[i] for i in chosen])["mean_ratio"])
        return {"mean_ratio": round(float(np.mean(means)), 3), "sd": round(float(np.std(means)), 3)}


def _errors(pairs: Sequence[tuple[Outcome, Outcome]], name: str) -> np.ndarray:
    """Return the errors of a total, where a test point has any."""
    held = [(f.totals[name], t.totals[name]) for f, t in pairs if t.totals[name] > 0]
    return np.array([abs(own / true - 1) for own, true in held])


def quantiles(error: np.ndarray) -> dict[str, float]:
    """Return the median and the 90th percentile."""
    median, most = np.percentile(error, (50, 90)).tolist()
    return {"median": round(median, 4), "90 %": round(most, 4)}


def fraction(hits: Sequence[bool]) -> list[float]:
    """Return a fraction with the ends of its interval."""
    interval = binomtest(sum(hits), len(hits)).proportion_ci(method="wilson")
    return [round(v, 3) for v in (sum(hits) / len(hits), interval.low, interval.high)]


if __name__ == "__main__":
    main()
