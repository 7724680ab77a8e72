"""Does a warm start transfer? Pretrain without one family, tune on a few of its graphs; JSON.

    python benchmarks/warm_start.py --family bert --out outputs/warm-start

Leave one family out: a model is trained on the corpus without the family, then tuned on 50 of its
training graphs. Beside it stand models that start from random weights on the same 50 graphs: for
as many steps (so for the same time: model, batches and cost of a step are the same), and for
``--long`` times as many. All are judged by the family's held-out graphs, which none of them saw:
nats per graph on its test part, and samples compared with its validation and test parts together.
A run that was stopped goes on with what is missing. Processor seconds are of one thread.
"""

import argparse
import json
import platform
import resource
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from layerdag.dag.dag import DAG
from layerdag.datasets.corpus import run_graph
from layerdag.datasets.dataset import GraphDataset
from layerdag.evaluation.metrics.base import attribute_views
from layerdag.evaluation.similarity import compare
from layerdag.graph.attributed_graph import SPLITS, AttributedGraph
from layerdag.privacy.copies import novelty
from layerdag.sampling.generation import sample_like
from layerdag.sampling.settings import GenerationSettings
from layerdag.traces.chakra.corpus import RunRecord, embedded_corpus, read_index, read_runs
from layerdag.training.checkpoint import LoadedCheckpoint, load_checkpoint
from layerdag.training.loop import evaluate, train
from layerdag.training.run import (
    LearningRateSchedule,
    OptimizerConfig,
    TrainingRun,
    TrainSettings,
    assemble,
)
from layerdag.training.weight_transfer import spec_for, warm_start

GRAPH = ("layer_size", "node", "edge")


@dataclass(frozen=True)
class Arm:
    """One way to get a model of the family.

    Attributes:
        name: In the result.
        steps: Optimizer steps on the family's graphs.
        rate: Peak learning rate.
        tuned: Whether it starts from the model of the other families.
    """

    name: str
    steps: int
    rate: float
    tuned: bool


def main() -> None:
    """Run what is missing, and print one JSON object."""
    args = _arguments()
    torch.set_num_threads(1)
    out = Path(args.out) / f"{args.family}-{args.seed}"
    out.mkdir(parents=True, exist_ok=True)
    arms = (
        Arm("tuned", args.steps, args.tuning_rate, tuned=True),
        Arm("from scratch, as long", args.steps, args.rate, tuned=False),
        Arm(f"from scratch, {args.long} times as long", args.long * args.steps, args.rate, False),
    )
    pretrained = _cached(out / "pretrained.json", lambda: _pretrain(args, out / "others"))
    rows = [_cached(out / f"{arm.name}.json", lambda arm=arm: _row(arm, args, out)) for arm in arms]
    summary = {
        "command": f"python benchmarks/warm_start.py --family {args.family}",
        "machine": {"platform": platform.platform(), "torch": torch.__version__, "threads": 1},
        "settings": {key: value for key, value in vars(args).items() if key != "out"},
        "pretrained": pretrained,
        "arms": rows,
    }
    (out / "result.json").write_text(json.dumps(summary, indent=1) + "\n")
    print(json.dumps(summary, indent=1))


def _arguments() -> argparse.Namespace:
    """Return the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--family", default="bert", help="left out of the pretraining")
    parser.add_argument("--out", default="outputs/warm-start")
    parser.add_argument("--graphs", type=int, default=50, help="of the family, to train on")
    parser.add_argument("--max-nodes", type=int, default=160)
    parser.add_argument("--pretrain-steps", type=int, default=400)
    parser.add_argument("--steps", type=int, default=250, help="of tuning")
    parser.add_argument("--long", type=int, default=6, help="times as many from scratch")
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--tuning-rate", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def _cached(file: Path, make: Any) -> dict[str, Any]:
    """Return what ``file`` holds, or make it and keep it there."""
    if not file.is_file():
        file.write_text(json.dumps(make(), indent=1) + "\n")
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def _load(args: argparse.Namespace, *, others: bool) -> GraphDataset:
    """Return the family's graphs, at most ``--graphs`` for training, or those of all others."""
    folder = embedded_corpus()
    records = [
        record
        for record in read_index(folder)
        if (record.family != args.family) == others and record.num_nodes <= args.max_nodes
    ]
    parts: dict[Any, list[AttributedGraph]] = {split: [] for split in SPLITS}
    for record, graph in _graphs(folder, records):
        if graph.num_nodes <= args.max_nodes:
            parts[record.split].append(graph)
    if not others:
        order = np.random.default_rng(args.seed).permutation(len(parts["train"]))
        parts["train"] = [parts["train"][i] for i in sorted(order[: args.graphs])]
    return GraphDataset.build("corpus", "trace", parts)


def _graphs(folder: Path, records: list[RunRecord]) -> Iterator[tuple[RunRecord, AttributedGraph]]:
    """Yield the graph of each run."""
    for run in read_runs(folder, records):
        yield run.record, run_graph(run)


def _settings(args: argparse.Namespace, steps: int, rate: float) -> TrainSettings:
    """Return how every model is trained."""
    return TrainSettings(
        seed=args.seed, max_steps=steps, batch_nodes=2000,
        optimizer=OptimizerConfig(rate, weight_decay=0.05),
        lr_schedule=LearningRateSchedule("cosine", 20), ema_decay=0.98,
        evaluate_every=max(steps // 12, 10), patience=0,
        precision="float32",
    )  # fmt: skip


def _pretrain(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Train on all families but one."""
    data = _load(args, others=True)
    spec = spec_for(data, "fast", {})
    begin = time.process_time()
    result = train(_job(data, folder, spec=spec), _settings(args, args.pretrain_steps, args.rate))
    return {
        "graphs": len(data.graphs["train"]),
        "steps": result.step,
        "processor_s": round(time.process_time() - begin, 1),
    }


def _job(data: GraphDataset, folder: Path, **more: Any) -> TrainingRun:
    """Return a training job."""
    return assemble(data, folder, overwrite=True, **more)


def _row(arm: Arm, args: argparse.Namespace, out: Path) -> dict[str, Any]:
    """Train one arm on the family and judge it."""
    data = _load(args, others=False)
    folder = out / arm.name.replace(",", "").replace(" ", "-")
    start: dict[str, Any] = {"spec": spec_for(data, "fast", {})}
    report: tuple[str, ...] = ()
    if arm.tuned:
        warm = warm_start(out / "others", data, seed=args.seed)
        start, report = {"spec": warm.spec, "start": warm.start}, warm.report
    job = _job(data, folder, **start)
    begin, wall = time.process_time(), time.monotonic()
    result = train(job, _settings(args, arm.steps, arm.rate))
    spent = {
        "processor_s": round(time.process_time() - begin, 1),
        "wall_s": round(time.monotonic() - wall, 1),
    }
    checkpoint = load_checkpoint(job.best)
    return {
        "arm": arm.name,
        "mapped": report,
        "graphs": {split: len(dags) for split, dags in data.graphs.items()},
        "steps": result.step,
        **spent,
        "best_step": checkpoint.meta.step,
        "validation_nats": checkpoint.meta.metrics["validation/total_per_graph"],
        "test_nats": _nats(checkpoint, data, args.seed),
        **_similarity(checkpoint, data, args.seed),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def _nats(checkpoint: LoadedCheckpoint, data: GraphDataset, seed: int) -> float:
    """Return the negative log-likelihood of the test graphs, nats per graph."""
    test = data.batch("test")
    found = evaluate(checkpoint.model, test, batch_graphs=64, batch_nodes=2000, seed=seed)
    return found.per_graph(GRAPH)


def _similarity(checkpoint: LoadedCheckpoint, data: GraphDataset, seed: int) -> dict[str, Any]:
    """Return how near samples are to the held-out graphs; the same conditions for every arm."""
    train_dags, held_out = data.graphs["train"], data.held_out
    settings = GenerationSettings(
        seed=1000 * seed, max_nodes=2 * max(dag.num_nodes for dag in train_dags), batch_size=64
    )
    rows = [dag.conditions for dag in train_dags]
    made: list[DAG] = [s.dag for s in sample_like(checkpoint.model, data.schema, rows, settings)]
    report = compare(train_dags, held_out, made, attribute_views(data.schema), replicates=2)
    values = {row.metric.name: row for row in report.rows}
    ratios = [r.ratio for r in report.rows if r.ratio is not None and np.isfinite(r.ratio)]
    return {
        "median_ratio": float(np.median(ratios)),
        **{
            name: values[name].generated.value
            for name in ("classifier_bound", "precision", "recall")
        },
        "repeat_training": float(novelty(train_dags, held_out, made).copied),
    }


if __name__ == "__main__":
    main()
