"""Differentially private tuning of a public checkpoint: utility over epsilon, and an audit; JSON.

    python benchmarks/private_tuning.py BASE --out FOLDER

BASE never saw the embedded corpus (benchmarks/public_start.py says how it is trained). Private are
the training jobs of the corpus of at most ``--max-nodes`` nodes, a unit each. For each epsilon the
base is tuned once, and ``--num`` jobs are sampled, for conditions that are drawn from the public
table of the base. ``mean`` and ``median`` are over the distances of ``layerdag.compare`` to the
held-out jobs, over those of as many training jobs (bar: mean of at most 2.0 at epsilon 3);
``nats`` is the likelihood of a held-out job. Beside them stand the base alone and real jobs drawn
again. ``audit`` tunes once more, with canaries, for each epsilon and without clipping and noise:
``lower_bound`` must not exceed epsilon. ``--audit-alone`` leaves out what needs samples.

What is done already is read from ``--out``: a run that was stopped goes on.
"""

import argparse
import json
import math
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from layerdag.api.generator import private_run
from layerdag.dag.dag import DAG
from layerdag.datasets.dataset import GraphDataset
from layerdag.datasets.encoding import load_with_schema
from layerdag.datasets.settings import CorpusConfig
from layerdag.dp.gradients import SecretGenerator, graph_nats
from layerdag.dp.settings import Privacy
from layerdag.dp.tuning import tune_privately
from layerdag.dp.units import Units
from layerdag.evaluation.metrics.base import attribute_views
from layerdag.evaluation.similarity import compare
from layerdag.runtime.rng import numpy_generator
from layerdag.sampling.generation import generate
from layerdag.sampling.settings import GenerationSettings
from layerdag.training.checkpoint import LoadedCheckpoint, checkpoint_schema, load_checkpoint

UNCLIPPED = 1e6


def main() -> None:
    """Print one JSON object."""
    args = _arguments()
    torch.set_num_threads(args.threads)
    base = load_checkpoint(args.base)
    config = CorpusConfig(folder=args.data, max_nodes=args.max_nodes)
    data = load_with_schema(config, checkpoint_schema(base))
    bench = _Bench(args, base, data)
    rows = {} if args.audit_alone else bench.utility_rows()
    audit = bench.audit_rows() if args.canaries else {}
    report = {
        "machine": {"platform": platform.platform(), "threads": args.threads},
        "units": len(data.graphs["train"]),
        "held_out": len(data.held_out),
        "left_out": len(data.left_out),
        "samples": args.num,
        "best_of": args.best_of,
        "seed": args.seed,
        "utility": rows,
        "audit": audit,
    }
    print(json.dumps(report, indent=1))


def _arguments() -> argparse.Namespace:
    """Return the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("base", help="checkpoint that never saw the data")
    parser.add_argument("--out", type=Path, required=True, help="folder for checkpoints and rows")
    parser.add_argument("--data", type=Path, help="a corpus; by default the embedded one")
    parser.add_argument("--epsilons", type=float, nargs="*", default=[1.0, 3.0, 8.0, math.inf])
    parser.add_argument("--max-nodes", type=int, default=400)
    parser.add_argument("--num", type=int, default=128, help="samples of each checkpoint")
    parser.add_argument("--best-of", type=int, default=1)
    parser.add_argument("--canaries", type=int, default=64, help="of an audit; 0: none")
    parser.add_argument("--audit-alone", action="store_true", help="draw no samples")
    parser.add_argument("--learning-rate", type=float, default=Privacy().learning_rate)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


class _Bench:
    """What all rows share."""

    def __init__(
        self, args: argparse.Namespace, base: LoadedCheckpoint, data: GraphDataset
    ) -> None:
        self.args, self.base, self.data = args, base, data

    def kept(self, name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return a row that an earlier call left, or make it now."""
        file = self.args.out / f"{name}.json"
        if not file.is_file():
            began = time.monotonic()
            row = {**make(), "seconds": round(time.monotonic() - began, 1)}
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(row), encoding="utf-8")
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return found

    def utility_rows(self) -> dict[str, Any]:
        """Return the rows about samples."""
        rows = {"base alone": self.kept("base", lambda: self.utility(self.base))}
        rows["real drawn again"] = self.kept("real", self.real_again)
        for epsilon in self.args.epsilons:
            rows[f"epsilon {epsilon:g}"] = self.kept(f"epsilon-{epsilon:g}", self.tuned(epsilon))
        return rows

    def audit_rows(self) -> dict[str, Any]:
        """Return the rows about canaries."""
        name = f"audit-{self.args.canaries}"
        rows = {
            f"epsilon {epsilon:g}": self.kept(f"{name}-{epsilon:g}", self.audited(epsilon))
            for epsilon in self.args.epsilons
        }
        plain = self.kept(f"{name}-plain", self.audited(math.inf, 1))
        return {**rows, "neither clipping nor noise": plain}

    def utility(self, checkpoint: LoadedCheckpoint) -> dict[str, Any]:
        """Return how near samples are to held-out jobs, and how likely those are."""
        settings = GenerationSettings(
            num=self.args.num, seed=self.args.seed, best_of=self.args.best_of, max_nodes=1200
        )
        sampled = generate(checkpoint.model, self.data.schema, settings)
        dags = [sample.dag for sample in sampled]
        nats = self._nats(checkpoint)
        return {**self._nearness(dags), "nats": nats}

    def real_again(self) -> dict[str, Any]:
        """Return how near as many training jobs are, drawn with replacement."""
        train = self.data.graphs["train"]
        rows = numpy_generator(self.args.seed, "real again").integers(
            len(train), size=self.args.num
        )
        return self._nearness([train[row] for row in rows.tolist()])

    def tuned(self, epsilon: float) -> Callable[[], dict[str, Any]]:
        """Return what tunes for an epsilon and measures the outcome."""

        def make() -> dict[str, Any]:
            began = time.monotonic()
            folder = self.args.out / f"epsilon-{epsilon:g}"
            privacy = Privacy(epsilon=epsilon, learning_rate=self.args.learning_rate)
            result = tune_privately(self._run(privacy, folder), generator=self._generator())
            seconds = round(time.monotonic() - began, 1)
            utility = self.utility(load_checkpoint(result.run.best))
            return {**utility, "tuning_s": seconds, "guarantee": asdict(result.guarantee)}

        return make

    def audited(self, epsilon: float, plain: int = 0) -> Callable[[], dict[str, Any]]:
        """Return what tunes with canaries and measures the lower bound."""

        def make() -> dict[str, Any]:
            rate, canaries = self.args.learning_rate, self.args.canaries
            usual = Privacy(epsilon=epsilon, learning_rate=rate, canaries=canaries)
            privacy = replace(usual, clip=UNCLIPPED) if plain else usual
            # A step is divided by the clipping norm: the same steps where nothing is clipped.
            rate = privacy.learning_rate * privacy.clip / usual.clip
            run = self._run(replace(privacy, learning_rate=rate), self.args.out / "audit")
            return asdict(tune_privately(run, generator=self._generator()).guarantee)

        return make

    def _run(self, privacy: Privacy, folder: Path) -> Any:
        """Return a run on the training jobs."""
        return private_run(
            self.data, self.args.base, privacy, folder, seed=self.args.seed, overwrite=True
        )

    def _generator(self) -> SecretGenerator:
        """Return a generator of a key that is no secret, so that figures can be repeated."""
        return SecretGenerator(self.args.seed)

    def _nearness(self, dags: Sequence[DAG]) -> dict[str, Any]:
        """Return the ratios at equal count of all distances."""
        views = attribute_views(self.data.schema)
        report = compare(self.data.graphs["train"], self.data.held_out, dags, views)
        ratios = {row.metric.name: row.matched_ratio for row in report.rows if row.is_distance}
        known = {n: round(r, 3) for n, r in ratios.items() if r is not None and np.isfinite(r)}
        values = list(known.values())
        return {
            "mean": round(float(np.mean(values)), 3),
            "median": round(float(np.median(values)), 3),
            "nodes": round(float(np.mean([dag.num_nodes for dag in dags])), 1),
            "ratios": known,
        }

    @torch.no_grad()
    def _nats(self, checkpoint: LoadedCheckpoint) -> float:
        """Return the mean nats of a held-out job."""
        batches = [self.data.batch(part) for part in ("val", "test")]
        total = 0.0
        for batch in batches:
            units = Units.from_owners(batch, [str(i) for i in range(batch.num_graphs)])
            everything = np.ones(units.count, bool)
            parts = units.batches(everything)
            total += sum(float(graph_nats(checkpoint.model, part)) for part, _ in parts)
        return round(total / sum(batch.num_graphs for batch in batches), 1)


if __name__ == "__main__":
    main()
