#!/usr/bin/env python
"""How well does each family of surrogates predict, and do its intervals hold what they promise?

    python benchmarks/surrogates.py --out outputs/surrogates > surrogates.json

Two data sets that need nothing from outside: the embedded corpus (label: measured step time;
durations are hidden), and latent-preferential graphs whose label is the time that two workers take
for them (a node with the value 1 takes three times as long as one with 0; no noise), which depends
on which nodes wait for which. Each family is fitted with each seed on the training part, calibrated
on the validation part, and scored on the test part with bootstrap intervals over its graphs.

Coverage is measured twice: on the test part, and over ``--redraws`` random halves of validation and
test part together, of which one calibrates and the other is tested; no fit saw either. A run that
was stopped goes on with what is missing. Seconds are of one thread of a shared machine. JSON.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from layerdag.dag.dag import DAG
from layerdag.datasets.corpus import load_corpus
from layerdag.datasets.dataset import GraphDataset
from layerdag.datasets.latent_preferential import load_latent_preferential
from layerdag.runtime.files import write_text
from layerdag.runtime.rng import numpy_generator
from layerdag.surrogates.families.registry import FAMILIES
from layerdag.surrogates.scoring import Calibration
from layerdag.surrogates.surrogate import FittedSurrogate
from layerdag.surrogates.targets import labeled

LEVELS = (0.5, 0.8, 0.9)
WORKERS, COSTS = 2, (1.0, 3.0)


def main() -> None:
    """Fit what is missing, and print one JSON object."""
    args = _arguments()
    torch.set_num_threads(1)
    Path(args.out).mkdir(parents=True, exist_ok=True)
    rows = [
        _cached(Path(args.out) / f"{name}-{family}-{seed}.json", _row, args, name, family, seed)
        for seed in range(args.seeds)
        for name in args.data
        for family in args.family
    ]
    found = {
        name: {family: _summary(rows, name, family) for family in args.family} for name in args.data
    }
    print(json.dumps({"settings": vars(args), "summary": found, "rows": rows}, indent=1))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True, help="folder of what is finished")
    parser.add_argument("--data", nargs="+", choices=SOURCES, default=list(SOURCES))
    parser.add_argument("--family", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--max-nodes", type=int, default=600, help="of a job of the corpus")
    parser.add_argument("--redraws", type=int, default=200)
    return parser.parse_args()


def _cached(path: Path, compute: Callable[..., dict[str, Any]], *args: Any) -> dict[str, Any]:
    """Return what stands in the file, or compute and keep it."""
    if path.is_file():
        return dict(json.loads(path.read_text()))
    found = compute(*args)
    write_text(path, json.dumps(found))
    return found


def _row(args: argparse.Namespace, name: str, family: str, seed: int) -> dict[str, Any]:
    """Fit one family once."""
    data, hidden = SOURCES[name](args)
    began = time.process_time()
    fitted = FittedSurrogate.fit(data, family, exclude=hidden, seed=seed)
    seconds = time.process_time() - began
    found = fitted.evaluate(data).to_dict()
    return {
        "data": name,
        "family": family,
        "seed": seed,
        "graphs": {part: len(dags) for part, dags in data.graphs.items()},
        "processor_seconds": round(seconds, 1),
        "scores": found["scores"],
        "coverage": found["coverage"],
        "redrawn": list(_redrawn(fitted, data, args.redraws, seed)),
        "weights": dict(_weights(fitted)),
    }


def _redrawn(
    fitted: FittedSurrogate, data: GraphDataset, redraws: int, seed: int
) -> Iterator[dict[str, float]]:
    """Yield the mean coverage of each level over random halves of all graphs that no fit saw."""
    held_out = (*data.graphs["val"], *data.graphs["test"])
    known = labeled(held_out, data.schema, fitted.target, fitted.excluded)
    predicted_B = fitted.model.predict(known.dags)
    spread_B = fitted.model.spread(known.dags)
    rng = numpy_generator(seed, "redrawn halves")
    covered: dict[float, list[float]] = {level: [] for level in LEVELS}
    width: dict[float, list[float]] = {level: [] for level in LEVELS}
    for _ in range(redraws):
        order_B = rng.permutation(len(known.dags))
        one, other = order_B[: order_B.size // 2], order_B[order_B.size // 2 :]
        calibration = Calibration.measure(known.target_B[one], predicted_B[one], spread_B[one])
        assert calibration is not None
        for level in LEVELS:
            got = calibration.around(predicted_B[other], spread_B[other], level)
            target_b = known.target_B[other]
            covered[level].append(
                float(np.mean((got.low_B <= target_b) & (target_b <= got.high_B)))
            )
            width[level].append(float(np.median(got.high_B / got.low_B)))
    for level in LEVELS:
        yield {
            "level": level,
            "covered": float(np.mean(covered[level])),
            "standard_deviation": float(np.std(covered[level])),
            "median_factor": float(np.mean(width[level])),
        }


def _weights(fitted: FittedSurrogate) -> Iterator[tuple[str, float]]:
    """Yield the summed weight of each family in an ensemble; nothing for a single family."""
    config = fitted.model.config()
    members: Any = config.get("members", ())
    names = [one["family"] for one in members]
    for name in dict.fromkeys(names):
        weights: Any = config["weights"]
        yield name, float(sum(w for w, n in zip(weights, names, strict=True) if n == name))


def _summary(rows: Sequence[dict[str, Any]], name: str, family: str) -> dict[str, Any]:
    """Return means over the seeds, and the widest interval of any seed."""
    mine = [row for row in rows if (row["data"], row["family"]) == (name, family)]
    scores = {}
    for score in mine[0]["scores"]:
        ends = [row["scores"][score]["interval"] or {} for row in mine]
        scores[score] = {
            "mean": float(np.mean([row["scores"][score]["value"] for row in mine])),
            "low": min((end["low"] for end in ends if end), default=None),
            "high": max((end["high"] for end in ends if end), default=None),
        }
    redrawn = {
        str(level): {
            key: float(np.mean([row["redrawn"][index][key] for row in mine]))
            for key in ("covered", "standard_deviation", "median_factor")
        }
        for index, level in enumerate(LEVELS)
    }
    tested = {
        str(one["level"]): float(np.mean([row["coverage"][index]["covered"] for row in mine]))
        for index, one in enumerate(mine[0]["coverage"])
    }
    seconds = float(np.mean([row["processor_seconds"] for row in mine]))
    return {
        "scores": scores,
        "covered_on_test": tested,
        "redrawn": redrawn,
        "processor_seconds": seconds,
    }


def _corpus(args: argparse.Namespace) -> tuple[GraphDataset, tuple[str, ...]]:
    return load_corpus(max_nodes=args.max_nodes), ("duration",)


def _scheduled(args: argparse.Namespace) -> tuple[GraphDataset, tuple[str, ...]]:
    """Return latent-preferential graphs labeled with the time that two workers take."""
    del args
    data = load_latent_preferential(num_train=600, num_val=150, num_test=150)
    labels = {
        part: tuple(dag.with_conditions({**dag.conditions, "label": makespan(dag)}) for dag in dags)
        for part, dags in data.graphs.items()
    }
    return data.replaced(graphs=labels), ()


def makespan(dag: DAG) -> float:
    """Return when the last node ends, where each in turn starts on the worker that is free first.

    Nodes are taken layer by layer; a node waits for its predecessors.
    """
    free_at = np.zeros(WORKERS)
    end_N = np.zeros(dag.num_nodes)
    source_E, target_E = dag.edge_index_2E.numpy()
    for node in np.argsort(dag.layer_N.numpy(), kind="stable").tolist():
        parents = source_E[target_E == node]
        worker = int(free_at.argmin())
        start = max(free_at[worker], end_N[parents].max(initial=0.0))
        end_N[node] = free_at[worker] = start + COSTS[int(dag.x_NA[node, 0])]
    return float(end_N.max())


SOURCES = {"corpus": _corpus, "scheduled": _scheduled}

if __name__ == "__main__":
    main()
