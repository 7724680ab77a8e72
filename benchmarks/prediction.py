"""Predict measured step times of runs that were not used: more ranks, other models, other GPUs.

    python benchmarks/prediction.py corpus --json results/prediction-corpus.json
    python benchmarks/prediction.py gpus --json results/prediction-gpus.json

``corpus``: rates of operators from runs of one rank, a link from runs of two ranks of one family;
tested on runs of four ranks of the other families, beside the noise of sessions and baselines. Once
with the corpus's own times, and once with the least of all sessions of ``data/again.jsonl``, with
the link from the runs of two ranks that were measured again, too; and so with processor times.
``gpus``: data sheets and one efficiency from one measured figure; tested on the other figures.
"""

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from gpu_steps import FIGURES, RESNETS, over_peak, predicted
from scipy.stats import kendalltau

from layerdag.runtime.files import write_text
from layerdag.runtime.terminal import track
from layerdag.simulator.calibration import CalibratedMachine, PredictionSpread
from layerdag.simulator.calibration_fit import MeasuredRun, calibrate, fit_link, read_runs_of

CORES = 2
Times = Mapping[str, float]


def errors(
    predicted_S: Sequence[float] | np.ndarray, measured_S: Sequence[float] | np.ndarray
) -> dict[str, float]:
    """Return median and 90 % of the relative error, and the median with its sign."""
    miss_S = np.array(predicted_S) / np.array(measured_S) - 1
    return {
        "runs": len(miss_S),
        "median": round(float(np.median(np.abs(miss_S))), 4),
        "p90": round(float(np.quantile(np.abs(miss_S), 0.9)), 4),
        "signed": round(float(np.median(miss_S)), 4),
    }


# ---- more ranks ----


def sessions(corpus: Path, twins: Path, again: Path) -> dict[str, list[float]]:
    """Return the least step time of each run in each session; the corpus's own is the first."""
    least: dict[str, list[float]] = defaultdict(list)
    for folder in (corpus, twins):
        for line in (folder / "index.jsonl").read_text().splitlines():
            row = json.loads(line)
            least[row["run"]].append(min(row["step_times_s"]))
    for line in again.read_text().splitlines():
        row = json.loads(line)
        least[row["run"]].append(min(row["step_times_s"]))
    return least


def processor_times(again: Path) -> dict[str, list[float]]:
    """Return the least processor time of all ranks of each run in each session, over the cores.

    It is the step time of a machine that does nothing else and whose cores never wait, and depends
    little on other work.
    """
    least: dict[str, list[float]] = defaultdict(list)
    for line in again.read_text().splitlines():
        row = json.loads(line)
        least[row["run"]].append(min(row["processor_s"]) / CORES)
    return least


def noise(least: Mapping[str, list[float]], runs: Sequence[str]) -> dict[str, Any]:
    """Return how far sessions are apart: the error of predicting one by another of the same run."""
    table_RS = np.array([least[run] for run in runs])
    count = table_RS.shape[1]
    pairs = [errors(table_RS[:, a], table_RS[:, b]) for a, b in combinations(range(count), 2)]
    whole = range(count)
    halves = [
        errors(table_RS[:, list(half)].min(1), table_RS[:, sorted({*whole} - {*half})].min(1))
        for half in combinations(whole, count // 2)
    ]
    return {
        "sessions": count,
        "first to another": float(np.median([p["median"] for p in pairs[: count - 1]])),
        "any two": float(np.median([p["median"] for p in pairs])),
        "least of half the sessions to that of the others": float(
            np.median([half["median"] for half in halves])
        ),
    }


def corpus(args: argparse.Namespace) -> dict[str, Any]:
    """Predict runs of four ranks."""
    least = sessions(args.corpus, args.twins, args.again)
    worked = processor_times(args.again)
    families = sorted({run.name.split("_")[1] for run in read_runs_of(args.corpus, ranks=(4,))})
    one, two, four = (read_runs_of(args.corpus, ranks=(ranks,)) for ranks in (1, 2, 4))
    twin_of = {
        run.name.split(".")[0]: run
        for run in read_runs_of(args.twins, ranks=(2,))
        if run.name.endswith(".ws2")
    }
    print(f"{len(one)}, {len(two)} and {len(four)} runs of one, two and four ranks")
    alone = calibrate(one, cores=CORES)
    labels: dict[str, Callable[[str], float]] = {
        "corpus": lambda run: least[run][0],
        "least of all sessions": lambda run: min(least[run]),
        "processor time over cores": lambda run: min(worked[run]),
    }
    pairs = {
        "corpus": two,
        **{
            name: [replace(run, seconds=labels[name](run.name)) for run in twin_of.values()]
            for name in labels
            if name != "corpus"
        },
    }
    results: dict[str, dict[str, Any]] = {name: {} for name in labels}
    for family in track([*families, "all families"], "families"):
        tested = [run for run in four if _family(run) != family]
        for name, label in labels.items():
            chosen = [run for run in pairs[name] if family in (_family(run), "all families")]
            results[name][family] = _against(_linked(alone, chosen), tested, twin_of, label)
    ranks4, ranks2 = [run.name for run in four], [run.name for run in twin_of.values()]
    return {
        "noise, four ranks": noise(least, ranks4),
        "noise, two ranks": noise(least, ranks2),
        "noise of processor time, four ranks": noise(worked, ranks4),
        "noise of processor time, two ranks": noise(worked, ranks2),
        "runs of one rank, left out": vars(alone.alone) if alone.alone else None,
        "results": results,
        "median over families": {
            name: {
                method: float(
                    np.median([found[family]["errors of"][method]["median"] for family in families])
                )
                for method in next(iter(found.values()))["errors of"]
            }
            for name, found in results.items()
        },
    }


def _family(run: MeasuredRun) -> str:
    return run.name.split("_")[1]


def _linked(alone: CalibratedMachine, several: Sequence[MeasuredRun]) -> CalibratedMachine:
    """Return the machine with a link fitted to runs of several ranks, and how far it is off."""
    machine = fit_link(alone, several)
    miss_S = [machine.predict(run.workload).seconds / run.seconds for run in several]
    low, middle, high = np.quantile(1 / np.array(miss_S), (0.1, 0.5, 0.9)).tolist()
    error = float(np.median(np.abs(np.array(miss_S) - 1)))
    return replace(machine, together=PredictionSpread(len(several), low, middle, high, 2, error))


def _against(
    machine: CalibratedMachine,
    tested: Sequence[MeasuredRun],
    twin_of: Mapping[str, MeasuredRun],
    label: Callable[[str], float],
) -> dict[str, Any]:
    """Return the errors of the machine and of baselines against one kind of label."""
    roomy = replace(machine, cores=None)
    plain = [machine.predict(run.workload) for run in tested]
    measured = [label(run.name) for run in tested]
    paired = [run for run in tested if run.name in twin_of]
    twins = [twin_of[run.name] for run in paired]
    twin_s = [label(twin.name) for twin in twins]
    wanted = [label(run.name) for run in paired]
    made = {
        "machine": errors([p.seconds for p in plain], measured),
        "machine, cores not shared": errors(
            [roomy.predict(run.workload).seconds for run in tested], measured
        ),
        "machine, runs with a twin": errors(
            [machine.predict(run.workload).seconds for run in paired], wanted
        ),
        "same as the twin on two ranks": errors(twin_s, wanted),
        "twice the twin": errors([2 * seconds for seconds in twin_s], wanted),
    }
    for weight in (0.5, 1.0):
        both = [
            machine.predict(run.workload, like=(twin.workload, seconds), weight=weight).seconds
            for run, twin, seconds in zip(paired, twins, twin_s, strict=True)
        ]
        made[f"machine and twin, weight {weight}"] = errors(both, wanted)
    assert machine.link is not None
    assert machine.together is not None
    ratio_S = np.array(measured) / np.array([p.seconds for p in plain])
    inside_S = (machine.together.low <= ratio_S) & (ratio_S <= machine.together.high)
    plans = sorted({run.name.split("_")[2] for run in tested})
    rows = {plan: [r for r, run in enumerate(tested) if f"_{plan}_" in run.name] for plan in plans}
    return {
        "latency_us": machine.link.latency_ns / 1000,
        "gb_per_s": machine.link.bytes_per_s / 1e9,
        "error on two ranks": machine.together.error,
        "errors of": made,
        "interval holds": float(np.mean(inside_S)),
        "by plan": {
            plan: errors([plain[r].seconds for r in row], [measured[r] for r in row])
            for plan, row in rows.items()
        },
    }


# ---- other GPUs ----


def gpus(_: argparse.Namespace) -> dict[str, Any]:
    """Predict published step times of llama3 on four kinds of GPU and of ResNets on A100."""
    llama = {key: seconds for key, seconds in FIGURES.items() if key[1] not in RESNETS}
    resnet = {key: seconds for key, seconds in FIGURES.items() if key[1] in RESNETS}
    both = {key: predicted(*key) for key in FIGURES}
    return {
        "llama3": _group(llama),
        "resnet": _group(resnet),
        "all, data sheet": _judged(both, FIGURES, ()),
    }


def _group(measured: Mapping[tuple[str, str], float]) -> dict[str, Any]:
    """Return predictions by data sheet, and with an efficiency from each single figure."""
    sheet = {key: predicted(*key) for key in track(list(measured), "data sheets")}
    found: dict[str, Any] = {"data sheet": _judged(sheet, measured, ())}
    found["each"] = {
        " ".join(key): {"measured_ms": 1e3 * measured[key], "sheet_ms": 1e3 * sheet[key]}
        for key in measured
    }
    fits, naive = {}, {}
    for key in track(list(measured), "one figure"):
        made = {other: predicted(*other, like=(*key, measured[key])) for other in measured}
        fits[" ".join(key)] = _judged(made, measured, (key,))
        per_peak = measured[key] / over_peak(*key)
        made = {other: per_peak * over_peak(*other) for other in measured}
        naive[" ".join(key)] = _judged(made, measured, (key,))
    found["efficiency from one figure"] = fits
    found["median over the figure that was used"] = _middle(fits)
    found["operations over peak alone, from one figure"] = _middle(naive)
    return found


def _middle(fits: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Return the median of each score over the figures that one could have used."""
    return {
        name: float(np.median([fit[name] for fit in fits.values()]))
        for name in ("median", "worst", "tau")
    }


def _judged(
    made: Mapping[tuple[str, str], float],
    measured: Mapping[tuple[str, str], float],
    used: Sequence[tuple[str, str]],
) -> dict[str, Any]:
    """Return the errors on figures that were not used, and the order of all."""
    miss = {key: made[key] / measured[key] - 1 for key in measured}
    tested = [abs(miss[key]) for key in measured if key not in used]
    tau = kendalltau([made[key] for key in measured], [measured[key] for key in measured])
    return {
        "median": float(np.median(tested)),
        "worst": max(tested),
        "tau": float(tau.statistic),
        "errors": {" ".join(key): round(value, 4) for key, value in miss.items()},
    }


def main() -> int:
    """Run one part and write its figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=("corpus", "gpus"))
    parser.add_argument("--corpus", type=Path, default=Path("data"))
    parser.add_argument("--twins", type=Path, default=Path("data/twins"))
    parser.add_argument("--again", type=Path, default=Path("data/again.jsonl"))
    parser.add_argument("--json", type=Path, help="where the figures go")
    args = parser.parse_args()
    figures = {"corpus": corpus, "gpus": gpus}[args.part](args)
    text = json.dumps(figures, indent=1) + "\n"
    if args.json:
        write_text(args.json, text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
