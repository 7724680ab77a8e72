#!/usr/bin/env python
"""Do symbolic workloads order clusters, plans and jobs as the real traces of the same runs? JSON.

    python benchmarks/plan_rankings.py data > plan_rankings.json

Every GPT and BERT run of the corpus on several ranks (DDP, FSDP2, pipeline, tensor parallel) is
made once more by ``layerdag.workload`` from nothing but its hyper-parameters. Both run on the 16
clusters of ``layerdag rankings``, the symbolic one with a roofline and a fixed cost of a node, the
real trace with its measured durations, or with ``--real roofline`` as the symbolic one. Beside it
stand three that must lose: the hyper-parameters of another run of the plan, another plan for the
same hyper-parameters, and one plan for all runs.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from layerdag.datasets.corpus import run_graph
from layerdag.errors import ConfigError
from layerdag.evaluation.rankings import RankedJob, compare_rankings, ranked_job, simulate_jobs
from layerdag.hardware.devices import Device
from layerdag.runtime.rng import numpy_generator
from layerdag.simulator.compute import MeasuredCompute, RooflineCompute
from layerdag.traces.chakra.corpus import RunRecord, read_index, read_runs
from layerdag.traces.trace import Workload
from layerdag.workloads.by_name import workload
from layerdag.workloads.transformer.shapes import ModelShape

FLOPS, BYTES_PER_S, NODE_NS = 3e10, 1e10, 20_000.0
"""One thread of the corpus' processor, by order of magnitude; not fitted."""
STRATEGIES = ("ddp", "fsdp2", "pp", "tp")


@dataclass(frozen=True)
class Run:
    """What a symbolic workload is made of.

    Attributes:
        record: Of the run whose plan and name it has.
        hyper: Hyper-parameters, of that run or of another one.
        strategy: How it is split, as in the run or otherwise.
    """

    record: RunRecord
    hyper: Mapping[str, Any]
    strategy: str

    def workload(self) -> Workload:
        """Return its traces. Raises ConfigError if the plan cannot split the model."""
        ranks, hyper = self.record.world_size, self.hyper
        shape = ModelShape(
            self.record.run, int(hyper["depth"]), int(hyper["width"]), int(hyper["heads"]),
            int(hyper["expansion"]) * int(hyper["width"]), int(hyper["vocabulary"]),
            positions=0 if hyper.get("rotary") else int(hyper["time"]),
            gated=bool(hyper.get("gated")), norm="rms" if hyper["norm"] == "rms" else "layer",
        )  # fmt: skip
        data = ranks if self.strategy in ("ddp", "fsdp2") else 1
        parts = int(hyper.get("microbatches", 1)) if self.strategy == "pp" else 1
        parts *= int(hyper.get("accumulate", 1))
        schedule = "gpipe" if hyper.get("schedule") == "gpipe" else "1f1b"
        plans: dict[str, dict[str, Any]] = {
            "ddp": {"data": ranks}, "fsdp2": {"data": ranks, "zero": 3}, "tp": {"tensor": ranks},
            "pp": {"pipeline": ranks, "schedule": schedule},
        }  # fmt: skip
        batch = int(hyper["batch"]) * data * int(hyper.get("accumulate", 1))
        return workload(
            shape, **plans[self.strategy], batch=batch, sequence=int(hyper["time"]),
            micro_batches=parts, phase=self.record.phase, precision="fp32",
            attention="flash" if hyper.get("attention") == "fused" else "unfused",
        )  # fmt: skip

    def job(self, nodes: int) -> RankedJob:
        """Return it as a job under the plan and the name of its run."""
        plan = f"{self.record.strategy} x {self.record.world_size}"
        kind = (self.record.family, self.record.phase, self.record.run)
        return RankedJob(self.workload(), plan, kind, nodes)


def main() -> None:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", help="folder of the corpus")
    parser.add_argument("--speedup", type=float, default=30.0, help="of compute")
    parser.add_argument("--real", choices=("measured", "roofline"), default="measured")
    parser.add_argument("--node-ns", type=float, default=NODE_NS, help="cost of a node")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    real, runs, refused = real_jobs(args.corpus)
    rng = numpy_generator(args.seed, "bad plans")
    sets = {"symbolic": runs, **bad_runs(runs, rng)}
    nodes = {job.kind[-1]: job.nodes for job in real}
    roofline = partial(_roofline, args.node_ns)
    ran = {
        name: simulate_jobs(
            [run.job(nodes[run.record.run]) for run in mine],
            speedup=args.speedup, compute=roofline, label=name,
        )
        for name, mine in sets.items()
    }  # fmt: skip
    compute = roofline if args.real == "roofline" else MeasuredCompute
    order = simulate_jobs(real, speedup=args.speedup, compute=compute, label="real")
    report = compare_rankings(order, ran, baseline="symbolic", seed=args.seed, neighbors=1)
    settings = {**vars(args), "runs that no plan of a workload can be": refused}
    print(json.dumps({"settings": settings, **report.summary()}, indent=1))


def _roofline(node_ns: float, time: float) -> RooflineCompute:
    """Return the roofline of a device whose operators take ``time`` times as long."""
    device = Device("thread", {"f32": FLOPS / time}, BYTES_PER_S / time)
    return RooflineCompute(device, launch_ns=node_ns * time)


def real_jobs(corpus: str) -> tuple[list[RankedJob], list[Run], int]:
    """Return the real jobs that have a symbolic twin, the twins, and how many runs have none."""
    real, runs, refused = [], [], 0
    for run in read_runs(corpus, read_index(corpus)):
        record = run.record
        if record.family not in ("gpt", "bert") or record.strategy not in STRATEGIES:
            continue
        twin = Run(record, record.hyper, record.strategy)
        job = ranked_job(run_graph(run))
        try:
            twin.workload()
        except ConfigError:
            job = None
        if job is None:
            refused += 1
            continue
        kind = (record.family, record.phase, record.run)
        plan = f"{record.strategy} x {record.world_size}"
        real.append(RankedJob(job.workload, plan, kind, job.nodes, job.graph))
        runs.append(twin)
    return real, runs, refused


def bad_runs(runs: Sequence[Run], rng: np.random.Generator) -> dict[str, list[Run]]:
    """Return sets of runs that are each wrong in one way."""
    return {
        "sizes of another run": [_possible(run, _other_sizes(run, runs, rng)) for run in runs],
        "another plan": [_possible(run, _other_plans(run, rng)) for run in runs],
        "one plan": [_possible(run, [Run(run.record, run.hyper, "ddp")]) for run in runs],
    }


def _other_sizes(run: Run, runs: Sequence[Run], rng: np.random.Generator) -> list[Run]:
    """Return the run with the hyper-parameters of others of its plan, in random order."""
    others = [
        other
        for other in runs
        if other.record.run != run.record.run
        and (other.strategy, other.record.world_size) == (run.strategy, run.record.world_size)
    ]
    return [Run(run.record, others[i].hyper, run.strategy) for i in rng.permutation(len(others))]


def _other_plans(run: Run, rng: np.random.Generator) -> list[Run]:
    """Return the run under the other strategies, in random order."""
    others = [name for name in STRATEGIES if name != run.strategy]
    return [Run(run.record, run.hyper, others[i]) for i in rng.permutation(len(others))]


def _possible(run: Run, candidates: Sequence[Run]) -> Run:
    """Return the first candidate that can be made; the run itself if none can."""
    for candidate in candidates:
        try:
            candidate.workload()
        except ConfigError:
            continue
        return candidate
    return run


if __name__ == "__main__":
    main()
