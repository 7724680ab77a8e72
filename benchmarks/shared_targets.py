#!/usr/bin/env python
"""Is one network for several targets as good as one for each, and what does it save?

    python benchmarks/shared_targets.py --out outputs/shared > shared.json

Jobs of the embedded corpus with at most ``--max-nodes`` nodes and three targets: the measured step
time, and what the simulator says of the job on the preset "small", the greatest peak memory of a
rank and the greatest exposed communication, which jobs without any lack. Durations are hidden. Each
seed fits a network three times with its defaults, once by itself to each target, and
once to all (``shared``), and with ``--labeled N`` all of this again with the two simulated targets
known of N training jobs only, while the step time stays known of all.

Seconds are of the fit alone, on one thread; megabytes are those of the saved folder. Intervals
(95 %) resample test jobs, the same for all arms and seeds; "gain" is shared less separate. A run
that was stopped goes on with what is missing. JSON.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import layerdag as ld
from layerdag.datasets.corpus import run_graph
from layerdag.datasets.dataset import GraphDataset
from layerdag.errors import DataError
from layerdag.graph.attributed_graph import SPLITS, AttributedGraph, Split
from layerdag.runtime.files import write_text
from layerdag.runtime.rng import numpy_generator
from layerdag.simulator.analysis import local_memory
from layerdag.statistics import Interval, bootstrap_weights
from layerdag.surrogates.scoring import EVALUATED, scores
from layerdag.surrogates.surrogate import FittedSurrogate
from layerdag.surrogates.targets import labeled
from layerdag.traces.chakra.corpus import embedded_corpus, read_index, read_runs

TARGETS = ("label", "memory", "exposed")
ARMS = ("separate", "shared")
SCORES = tuple(one for one in EVALUATED if one.name in ("spearman", "mape", "within_10_percent"))
REPLICATES = 500


def main() -> None:
    """Fit what is missing, and print one JSON object."""
    args = _arguments()
    torch.set_num_threads(1)
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    labels = _cached(out / f"labels-{args.max_nodes}.json", partial(_simulated, args.max_nodes))
    data_of = cache(partial(_data, labels, args.max_nodes))
    rows = []
    for seed in range(args.seeds):
        for known in (None, *args.labeled):
            for arm in ARMS:
                name = f"{known or 'all'}-{seed}-{arm}.json"
                rows.append(_cached(out / name, partial(_row, data_of, known, arm, seed)))
    found = {
        str(known or "all"): summary([row for row in rows if row["known"] == known])
        for known in (None, *args.labeled)
    }
    print(json.dumps({"settings": vars(args), "summary": found}, indent=1))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True, help="folder of what is finished")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--max-nodes", type=int, default=600, help="of a job of the corpus")
    parser.add_argument(
        "--labeled",
        type=int,
        nargs="*",
        default=[],
        metavar="N",
        help="jobs with simulated targets",
    )
    return parser.parse_args()


def _cached(path: Path, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return what stands in the file, or compute and keep it."""
    if path.is_file():
        return dict(json.loads(path.read_text()))
    found = compute()
    write_text(path, json.dumps(found))
    return found


def _simulated(max_nodes: int) -> dict[str, Any]:
    """Return peak memory and exposed communication of each job by its name."""
    folder, cluster = embedded_corpus(), ld.Cluster.preset("small")
    few = [record for record in read_index(folder) if record.num_nodes <= max_nodes]
    found = {}
    for run in read_runs(folder, few):
        job = ld.simulate(run.workload(), cluster)
        exposed = float(job.exposed_comm_ns.max())
        memory = float(local_memory(job).peak_bytes_R.max())
        found[run.record.run] = {"memory": memory} | ({"exposed": exposed} if exposed > 0 else {})
    return found


def _data(labels: dict[str, Any], max_nodes: int, known: int | None) -> GraphDataset:
    """Return the corpus with all targets, or with the simulated ones of a few training jobs."""
    records = [one for one in read_index(embedded_corpus()) if one.run in labels]
    names = sorted(one.run for one in records if one.split == "train")
    order = numpy_generator(0, "labeled").permutation(len(names))
    hidden = set() if known is None else {names[i] for i in order[known:].tolist()}
    parts: dict[Split, list[AttributedGraph]] = {"train": [], "val": [], "test": []}
    for run in read_runs(embedded_corpus(), records):
        try:
            graph = run_graph(run)
        except DataError:  # as ``load_corpus`` leaves it out
            continue
        more = {} if graph.name in hidden else labels[graph.name]
        part = next(split for split in SPLITS if split == run.record.split)
        parts[part].append(replace(graph, conditions={**graph.conditions, **more}))
    return GraphDataset.build("corpus", "trace", parts)


def _row(
    data_of: Callable[[int | None], GraphDataset],
    known: int | None,
    arm: str,
    seed: int,
) -> dict[str, Any]:
    """Fit one network to all targets, or one to each."""
    data = data_of(known)
    began = time.process_time()
    fitted = FittedSurrogate.fit(
        data,
        "message_passing",
        target=TARGETS,
        exclude=("duration",),
        seed=seed,
        shared=arm == "shared",
    )
    seconds = time.process_time() - began
    with tempfile.TemporaryDirectory() as folder:
        fitted.save(Path(folder) / "s")
        size = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
    predicted = {}
    for one in (fitted, *fitted.others):
        test = labeled(data.graphs["test"], data.schema, one.target, one.excluded)
        covered = {c.level: c.covered for c in one.evaluate(data).coverage}
        predicted[one.target] = {
            "train": one.notes["train"],
            "measured": test.target_B.tolist(),
            "predicted": one.model.predict(test.dags).tolist(),
            "held": covered.get(0.9),
        }
    return {
        "known": known,
        "arm": arm,
        "seed": seed,
        "processor_seconds": round(seconds, 1),
        "megabytes": round(size / 1e6, 3),
        "targets": predicted,
    }


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the means over the seeds of both arms, and their difference, with intervals."""
    arms = {arm: [row for row in rows if row["arm"] == arm] for arm in ARMS}
    found: dict[str, Any] = {
        arm: {
            key: float(np.mean([row[key] for row in mine]))
            for key in ("processor_seconds", "megabytes")
        }
        for arm, mine in arms.items()
    }
    for target in rows[0]["targets"]:
        draws = {arm: _draws([row["targets"][target] for row in arms[arm]]) for arm in ARMS}
        found[target] = {
            "train": rows[0]["targets"][target]["train"],
            "test": len(rows[0]["targets"][target]["measured"]),
            **{arm: {name: _told(draws[arm][name]) for name in draws[arm]} for arm in ARMS},
            "gain": {
                name: _told(draws["shared"][name] - draws["separate"][name])
                for name in draws["shared"]
            },
            "held": {
                arm: float(np.mean([row["targets"][target]["held"] for row in arms[arm]]))
                for arm in ARMS
                if all(row["targets"][target]["held"] is not None for row in arms[arm])
            },
        }
    return found


def _draws(fits: Sequence[dict[str, Any]]) -> dict[str, np.ndarray]:
    """Return each score in the mean over the fits: of all test jobs, then of each resample."""
    size = len(fits[0]["measured"])
    drawn_RB = bootstrap_weights(numpy_generator(0, "test jobs"), REPLICATES, size)
    weights_RB = np.concatenate([np.ones((1, size)), drawn_RB])
    each = [
        scores(np.array(fit["measured"]), np.array(fit["predicted"]), weights_RB, SCORES)
        for fit in fits
    ]
    return {name: np.mean([one[name] for one in each], axis=0) for name in each[0]}


def _told(draws_R: np.ndarray) -> list[float]:
    """Return a score and the ends of its interval."""
    around = Interval.around(float(draws_R[0]), draws_R[1:])
    ends = (around.low, around.high) if around else (float("nan"), float("nan"))
    return [round(number, 4) for number in (float(draws_R[0]), *ends)]


if __name__ == "__main__":
    main()
