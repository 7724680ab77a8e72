"""The page of surrogates beside published ones, from the files of the runs alone."""

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from statistics import mean
from typing import Any

from .._page import number, table
from .._runs import Record
from ._published import DGRL, NN_METER, WITHIN_TENTH
from ._scores import MEAN, Estimate

TITLES = {
    "boosting": "`boosting`",
    "message_passing": "`message_passing`",
    "stacked": "`stacked`",
}
DEVICES = {
    "cortex": "Cortex-A76 CPU",
    "630gpu": "Adreno 630 GPU",
    "640gpu": "Adreno 640 GPU",
}
AMPLIFIERS = {"gain": "gain", "pm": "phase margin", "bw": "bandwidth"}
KINDS = {"id": "in distribution", "ood": "out of distribution"}


def page(records: Sequence[Record]) -> str:
    """Return the page of all runs that are there."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(str(record.run.config["group"]), []).append(record)
    parts = ["# Surrogates beside published ones", BEFORE]
    if "cg" in groups:
        parts += ["## Latency of networks, the benchmark's split", CG_WORDS]
        parts.append(networks_table(groups["cg"]))
    if "all" in groups:
        parts += ["## All families, within 10 %", ALL_WORDS, tenth_table(groups["all"]), NN_METER]
    if "amp" in groups:
        parts += ["## Amplifiers, the benchmark's split", AMP_WORDS, amplifier_table(groups["amp"])]
    parts += ["## How it was made", _made(records), DGRL, END]
    return "\n\n".join(parts) + "\n"


def networks_table(records: Sequence[Record]) -> str:
    """Return the means over families, a row for each device and part."""
    columns = ("rmse", "within_5", "within_10")
    return _wide(records, DEVICES, columns, lambda scores: scores[MEAN])


def amplifier_table(records: Sequence[Record]) -> str:
    """Return RMSE and R2 of each figure of amplifiers, a row for each figure and part."""
    return _wide(records, AMPLIFIERS, ("rmse", "r2"), lambda scores: next(iter(scores.values())))


def _wide(
    records: Sequence[Record],
    labels: Mapping[str, str],
    columns: Sequence[str],
    of: Callable[[Mapping[str, Any]], Mapping[str, Estimate]],
) -> str:
    """Return a row for each label and part, with a column for each score of each surrogate."""
    found = {(r.run.config["label"], r.run.learner): r.figures["scores"] for r in records}
    learners = _learners_of(records)
    head = ["", *(f"{TITLES[one]}, {SCORES[score][0]}" for one in learners for score in columns)]
    rows = []
    for (label, title), kind in product(labels.items(), KINDS):
        if not any((label, one) in found for one in learners):
            continue
        cells = []
        for one in learners:
            scores = of(found[label, one][kind]) if (label, one) in found else {}
            cells += [SCORES[name][1](scores[name]) if scores else "" for name in columns]
        rows.append([f"{title}, {KINDS[kind]}", *cells])
    return table(head, rows)


def tenth_table(records: Sequence[Record]) -> str:
    """Return percent within a tenth, of all families, and the published figures."""
    head = ("", *(TITLES[one] for one in _learners_of(records)), "GraphSAGE", "nn-Meter")
    found = {(r.run.config["label"], r.run.learner): r.figures["scores"] for r in records}
    rows = []
    for label, device in DEVICES.items():
        cells = [
            percent(found[label, one]["id"][MEAN]["within_10"]) if (label, one) in found else ""
            for one in _learners_of(records)
        ]
        if any(cells):
            rows.append([device, *cells, *WITHIN_TENTH[label]])
    return table(head, rows)


def _learners_of(records: Sequence[Record]) -> list[str]:
    return [name for name in TITLES if any(r.run.learner == name for r in records)]


def significant(value: float) -> str:
    """Return three significant digits without a leading zero."""
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return number(value, digits)


def _digits(estimate: Estimate) -> str:
    value, low, high = (significant(one) for one in estimate)
    return f"{value} [{low}, {high}]"


def interval(estimate: Estimate) -> str:
    """Return a score with its interval."""
    value, low, high = (number(one) for one in estimate)
    return f"{value} [{low}, {high}]"


def percent(estimate: Estimate) -> str:
    """Return a share in percent with its interval."""
    value, low, high = (100 * one for one in estimate)
    return f"{value:.1f} [{low:.0f}, {high:.0f}]"


SCORES: Mapping[str, tuple[str, Callable[[Estimate], str]]] = {
    "rmse": ("RMSE", _digits),
    "r2": ("R2", interval),
    "within_5": ("within 5 %", percent),
    "within_10": ("within 10 %", percent),
}


def _made(records: Sequence[Record]) -> str:
    """Return how the runs were made, in a few sentences."""
    machine = records[0].hardware
    load = mean(record.hardware["load"][0] for record in records)
    spent = sum(record.processor_seconds for record in records) / 60
    missing = [title for name, title in TITLES.items() if name not in _learners_of(records)]
    absent = f" Not made yet: {', '.join(missing)}." if missing else ""
    fits = {
        name: [r.figures["fit_seconds"] for r in records if r.run.learner == name]
        for name in _learners_of(records)
    }
    seconds = ", ".join(f"{TITLES[n]} {min(s):.0f} to {max(s):.0f}" for n, s in fits.items())
    return (
        f"{len(records)} runs in {spent:.0f} processor minutes, seed 0 "
        f"({machine['cores']} shared {machine['machine']} cores without a GPU, one thread, load "
        f"{load:.1f} in the mean, torch {machine['torch']}); seconds of a fit: {seconds}. "
        f"{TRAINING}{absent}"
    )


BEFORE = (
    "Surrogates of this package on the computational graphs and the amplifiers of the DGRL "
    "benchmark (Wang, Huang, Wu and Li, arXiv 2410.06460), by the splits and scores of its code. "
    "In brackets 95 % intervals over test graphs drawn again; training seeds are not in them. "
    "[Which surrogate](../how-to/surrogate-families.md) says what the families are."
)
CG_WORDS = (
    "The split of `CG_data_processor.py`: of DenseNet, MnasNet, MobileNetV2, MobileNetV3 and "
    "NAS-Bench-201 the first 90 % are for training and the last 5 % for test (100 of each); of "
    "ProxylessNAS, ResNet and SqueezeNet, which training never sees, the first tenth is tested "
    "(200 of each). Scores are means over the families; RMSE is in ms. Networks that were not "
    "measured are left out. Ours learn from fewer graphs than the benchmark's models, which learn "
    "from 9,000 for 500 epochs."
)
ALL_WORDS = (
    "Of each of the 13 families 50 graphs of the first four fifths are for training and 50 of the "
    "last fifth for test; the figure is the mean over families of the percentage within 10 % of "
    "the measured latency. ShuffleNetV2 has labels of the CPU alone."
)
AMP_WORDS = (
    "The split of `AMP_data_processor.py` with its own draw (`np.random.seed(123)`): of amplifiers "
    "with three stages 90 % are for training, 5 % for validation, the rest for test; 500 with two "
    "stages are out of distribution. Figures of an amplifier are no sums over its parts, so "
    "messages help."
)
TRAINING = (
    "Of the benchmark's split `boosting` learned from 200 graphs of each family, "
    "`message_passing` from 100, and both from 2,000 amplifiers, for 8 epochs; more of both would "
    "help. Sizes of nodes are read as numbers here, not as words as `data=dgrl` does with columns "
    "of at most 16 values."
)
END = (
    "This page is made from `benchmarks/results/predictors.jsonl` by `python -m benchmarks.table "
    "predictors --page`; `python -m benchmarks.table predictors --dgrl FOLDER --amp FOLDER` "
    "makes the runs that are missing there."
)
