"""The page of surrogates beside published ones, from the files of the runs alone."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import mean
from typing import Any

from .._page import number, table
from .._runs import Record
from ._published import AMP, CG, DGRL, NN_METER, NOT_FOUND, WITHIN_TENTH
from ._scores import MEAN, Estimate

TITLES = {
    "additive": "`additive`",
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
        parts += networks_tables(groups["cg"])
    if "all" in groups:
        parts += ["## All families, within 10 %", ALL_WORDS, tenth_table(groups["all"]), NN_METER]
    if "without" in groups:
        parts += ["## One family left out", WITHOUT_WORDS, left_out_table(groups["without"])]
    if "amp" in groups:
        parts += ["## Amplifiers, the benchmark's split", AMP_WORDS, amplifier_table(groups["amp"])]
    parts += ["## What is published", DGRL, COLUMNS, "## How it was made", _made(records), END]
    return "\n\n".join(parts) + "\n"


def networks_tables(records: Sequence[Record]) -> list[str]:
    """Return the table of means, then one table of families for each device."""
    head = ("", "part", "surrogate", "RMSE, ms", "within 5 %", "within 10 %", "published RMSE, ms")
    rows = []
    for record, kind in _by_kind(records, DEVICES):
        label = record.run.config["label"]
        found = record.figures["scores"][kind][MEAN]
        rows.append(
            [
                DEVICES[label],
                KINDS[kind],
                TITLES[record.run.learner],
                _digits(found["rmse"]),
                percent(found["within_5"]),
                percent(found["within_10"]),
                CG.get((label, kind), NOT_FOUND),
            ]
        )
    families = _parts_of(records)
    learners = _learners_of(records)
    columns = [f"{DEVICES[label]}, {TITLES[one]}" for label in DEVICES for one in learners]
    found = {(r.run.config["label"], r.run.learner): r.figures["scores"] for r in records}
    lines = [
        [
            f"{family}, {KINDS[kind]}",
            *(
                _cell(found.get((label, one), {}), kind, family)
                for label in DEVICES
                for one in learners
            ),
        ]
        for kind, family in families
    ]
    return [table(head, rows), FAMILY_WORDS, table(("family", *columns), lines)]


def _cell(scores: Mapping[str, Any], kind: str, family: str) -> str:
    """Return RMSE and percent within a tenth of one family; "" where it was not made."""
    one = scores.get(kind, {}).get(family)
    return f"{significant(one['rmse'][0])} ({100 * one['within_10'][0]:.0f} %)" if one else ""


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


def left_out_table(records: Sequence[Record]) -> str:
    """Return errors on each family that training did not have."""
    learners = _learners_of(records)
    head = ["family left out"]
    head += [f"{TITLES[one]}, {what}" for what in ("RMSE, ms", "within 10 %") for one in learners]
    found: dict[str, dict[str, Mapping[str, Estimate]]] = {}
    for record in records:
        name = str(record.run.config["task"]).removeprefix("without-")
        one = found.setdefault(name, {})
        if record.figures["scores"]:  # else it has operators that no other family has
            one[record.run.learner] = record.figures["scores"]["ood"][name]
    rows = []
    for name, by in found.items():
        errors = [_digits(by[one]["rmse"]) if one in by else "" for one in learners]
        shares = [percent(by[one]["within_10"]) if one in by else "" for one in learners]
        rows.append([name, *errors, *shares])
    return table(head, rows)


def amplifier_table(records: Sequence[Record]) -> str:
    """Return RMSE and R2 of each figure of amplifiers."""
    head = ("", "part", "surrogate", "RMSE", "R2", "published RMSE")
    rows = []
    for record, kind in _by_kind(records, AMPLIFIERS):
        label = record.run.config["label"]
        (found,) = record.figures["scores"][kind].values()
        rows.append(
            [
                AMPLIFIERS[label],
                KINDS[kind],
                TITLES[record.run.learner],
                _digits(found["rmse"]),
                interval(found["r2"]),
                AMP.get((label, kind), NOT_FOUND),
            ]
        )
    return table(head, rows)


def _by_kind(records: Sequence[Record], labels: Iterable[str]) -> Iterable[tuple[Record, str]]:
    """Yield runs by label and part, surrogates in the order of their titles."""
    for label in labels:
        for kind in KINDS:
            for learner in _learners_of(records):
                for record in records:
                    if record.run.config["label"] == label and record.run.learner == learner:
                        yield record, kind


def _learners_of(records: Sequence[Record]) -> list[str]:
    return [name for name in TITLES if any(r.run.learner == name for r in records)]


def _parts_of(records: Sequence[Record]) -> list[tuple[str, str]]:
    """Return (kind, name) of all parts."""
    found = records[0].figures["scores"]
    return [(kind, name) for kind in KINDS for name in found.get(kind, {}) if name != MEAN]


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
    "As `CG_data_processor.py` has it: of DenseNet, MnasNet, MobileNetV2, MobileNetV3 and "
    "NAS-Bench-201 the first 90 % are for training and the last 5 % for test (100 of each); of "
    "ProxylessNAS, ResNet and SqueezeNet, which training never sees, the first tenth (200 of "
    "each). Scores are means over the families, as `CG_runner.py` has them. Networks that were not "
    "measured have no label and are left out. **Not the whole training part**: the benchmark's "
    "models learn from 9,000 graphs (500 epochs in its configurations), ours from those drawn "
    "below."
)
FAMILY_WORDS = "RMSE in milliseconds and, in brackets, percent within 10 % of each family:"
ALL_WORDS = (
    "50 graphs of the first four fifths of each of the 13 families for training, 50 of the last "
    "fifth for test; the mean over families of the percentage within 10 % of the measured latency. "
    "ShuffleNetV2 has labels of the CPU alone."
)
WITHOUT_WORDS = (
    "30 graphs of each other family for training, 100 of the family that is left out for test, "
    "latency on the CPU. This is a study of generalization; nothing like it is published for "
    "these graphs as far as we found. Latencies of VGG reach ten seconds, those of no other family "
    "more than two. ShuffleNetV2 has operators that no other family has, so its graphs cannot be "
    "expressed."
)
AMP_WORDS = (
    "As `AMP_data_processor.py` has it: of amplifiers with three stages 90 % are for training, 5 % "
    "for validation, the rest for test; 500 with two stages are out of distribution. The draw is "
    "the benchmark's own (`np.random.seed(123)`). Figures of an amplifier are no sums over its "
    "parts: here messages are what helps."
)
COLUMNS = (
    "The benchmark has 13 tasks in five data sets; six of them are here, each in and out of "
    "distribution, twelve columns. How many of them reach the published figures is therefore open. "
    "What can be compared is the percentage within 10 % above."
)
TRAINING = (
    "Of the benchmark's split `additive` and `boosting` learned from 200 graphs of each family, "
    "`message_passing` from 100, and from 2,000 amplifiers, for 8 epochs, so that no fit takes "
    "longer than a minute: it would be better with more of both. `stacked` fits six networks and "
    "would take many times as long. `additive` was developed on the benchmark's validation graphs, "
    "with the figures out of distribution printed beside them. Sizes of nodes are read as numbers "
    "here, where `data=dgrl` reads columns of at most 16 values as words: on validation graphs "
    "both are alike; out of distribution, where this was seen before it was chosen, numbers are "
    "better, for as a word a size that training lacks has a code without a meaning."
)
END = (
    "This page is made from `benchmarks/results/predictors.jsonl` by `python -m benchmarks.table "
    "predictors --page`; `python -m benchmarks.table predictors --dgrl FOLDER --amp FOLDER` "
    "makes the runs that are missing there."
)
