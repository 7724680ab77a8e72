"""Pages of tables, made from the files of their runs alone."""

import re
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any

from ._figures import wilson
from ._runs import Record

ROOT = Path(__file__).resolve().parents[2]
WIDTH = 138


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def share(successes: int, trials: int) -> str:
    """Return a share in percent with its interval."""
    low, high = (100 * end for end in wilson(successes, trials))
    return f"{100 * successes / trials:.1f} [{low:.0f}, {high:.0f}]"


def number(value: float, digits: int = 2) -> str:
    """Return a number with so many digits after the point."""
    return f"{value:.{digits}f}"


def filled(text: str) -> str:
    """Return a page whose paragraphs have lines of at most 138 characters."""
    parts = text.strip("\n").split("\n\n")
    return "\n\n".join(part if part[0] in "|#!" else _filled(part) for part in parts) + "\n"


def _filled(paragraph: str) -> str:
    """Return a paragraph, or a list whose items begin with a dash, in lines."""
    items = re.split(r"\n(?=- )", paragraph)
    return "\n".join(
        textwrap.fill(
            " ".join(item.split()),
            WIDTH,
            subsequent_indent="  " if item.startswith("- ") else "",
            break_long_words=False,
            break_on_hyphens=False,
        )
        for item in items
    )


@dataclass(frozen=True)
class Row:
    """The figures of one learner on one task.

    Attributes:
        figures: One for each training seed.
        parameters: Of the learner; None for real graphs.
    """

    figures: Sequence[Mapping[str, Any]]
    parameters: int | None

    def count(self, name: str) -> tuple[int, int]:
        """Return how many samples are valid, unique, novel or all, and of how many."""
        trials = sum(int(one["samples"]) for one in self.figures)
        return round(sum(one[name] * one["samples"] for one in self.figures)), trials

    def distance(self, name: str) -> float:
        """Return the mean distance over the seeds."""
        return mean(float(one["distances"][name]) for one in self.figures)


def rows_of(records: Sequence[Record], task: str) -> dict[str, Row]:
    """Return the figures of each learner on a task, and of "learner, variant"."""
    found: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    parameters: dict[str, int | None] = {}
    for record in records:
        config, figures = record.run.config, record.figures
        if config["task"] != task or config.get("part") == "trial":
            continue
        named = {record.run.learner: figures} | {
            f"{record.run.learner}, {name}": variant
            for name, variant in figures.get("variants", {}).items()
        }
        for name, one in named.items():
            found[name].append(one)
            parameters[name] = figures.get("parameters")
    return {name: Row(figures, parameters[name]) for name, figures in found.items()}


def generators_table(
    by_task: Mapping[str, Mapping[str, Row]], titles: Mapping[str, str], words: "Words"
) -> str:
    """Return the figures of the first task, real graphs first, then learners as titled.

    Of further tasks there is the V.U.N.; their other figures are in the files of the runs.

    Args:
        by_task: Rows by learner, of each task.
        titles: Of the learners.
        words: Titles of the tasks, and what papers say of learners.
    """
    first, *others = by_task
    head = [
        "", "valid, %", "V.U.N., %", "published, %",
        *(what for task in others for what in (f"V.U.N., {words.tasks[task]}", "published, %")),
        "W1 of layers", "W1 of nodes", "W1 of edges", "MMD of layer sizes", "parameters", "fits",
    ]  # fmt: skip
    lines = []
    for name, title in {"real": "real graphs of their own", **titles}.items():
        if name in by_task[first]:
            found = [words.figures.get(task, {}).get(name, "") for task in by_task]
            further = [by_task[task].get(name) for task in others]
            lines.append(_generator(title, by_task[first][name], further, found))
    return table(head, lines)


def _generator(
    title: str, row: Row, further: Sequence[Row | None], published: Sequence[str]
) -> list[str]:
    """Return a line: published figures are those of the first and of the further tasks."""
    cells = [title, share(*row.count("valid")), share(*row.count("vun")), published[0]]
    for other, text in zip(further, published[1:], strict=True):
        cells += ["" if other is None else share(*other.count("vun")), text]
    return [
        *cells,
        *(number(row.distance(name)) for name in ("layers", "nodes", "edges")),
        number(row.distance("layer_size_mmd"), 3),
        f"{row.parameters:,}" if row.parameters else "",
        str(len(row.figures)) if row.parameters is not None else "",
    ]


def conditions_of(records: Sequence[Record]) -> str:
    """Return how the runs were made, in a sentence."""
    fits = [record for record in records if record.run.config.get("part") == "final"]
    seconds = sorted({float(record.run.config["seconds"]) for record in fits})
    machine = records[0].hardware
    load = mean(record.hardware["load"][0] for record in records)
    spent = sum(record.seconds for record in records) / 60
    each = f"each fit {' or '.join(f'{s:g}' for s in seconds)} processor seconds" if fits else ""
    return (
        f"{len(records)} runs in {spent:.0f} minutes of one thread, {each} ({machine['cores']} "
        f"shared {machine['machine']} cores without a GPU, load {load:.1f} in the mean, torch "
        f"{machine['torch']}): short fits, which do not show what a model could reach."
    )


def page_of_tasks(
    name: str, records: Sequence[Record], titles: Mapping[str, str], words: "Words"
) -> str:
    """Return the page of a table of generators.

    Args:
        name: Of the table.
        records: All of its runs.
        titles: Of the learners, in their order.
        words: What the page says beside the tables.
    """
    tasks = list(dict.fromkeys(record.run.config["task"] for record in records))
    parts = [f"# {words.title}", words.before]
    by_task = {task: rows_of(records, task) for task in tasks}
    parts.append(generators_table(by_task, titles, words))
    missing = [title for learner, title in titles.items() if learner not in by_task[tasks[0]]]
    if missing:
        parts.append(f"Not made yet: {'; '.join(missing)}.")
    parts += [
        "## How it was made",
        f"{conditions_of(records)} {choice_of(records)}",
        words.published,
    ]
    made = (
        f"This page is made from `benchmarks/results/{name}.jsonl` by "
        f"`python -m benchmarks.table {name} "
        f"--page`; `python -m benchmarks.table {name}` makes the runs that are missing there."
    )
    return "\n\n".join([*parts, made]) + "\n"


def choice_of(records: Sequence[Record]) -> str:
    """Return how settings were chosen, in two sentences."""
    trials = [record for record in records if record.run.config.get("part") == "trial"]
    made = [record.run.learner for record in trials]
    if not trials:
        return SHARES + " No setting was tuned."
    most, seconds = max(map(made.count, made)), float(trials[0].run.config["seconds"])
    return (
        f"{SHARES} Settings were chosen among at most {most} by the V.U.N. of short fits "
        f"({seconds:g} s) with other seeds; no test graph entered the choice."
    )


SHARES = (
    "Three sampling seeds per fit; brackets are Wilson's 95 % intervals. V.U.N.: valid, unique and "
    "novel (no training graph has the same Weisfeiler-Lehman hash)."
)


@dataclass(frozen=True)
class Words:
    """What a page says.

    Attributes:
        title: Heading.
        before: What is measured.
        tasks: Titles of the tasks after the first.
        published: Further figures of papers, and what is not comparable.
        figures: Figures of papers by task and learner, in percent, with what they are of.
    """

    title: str
    before: str
    tasks: Mapping[str, str]
    published: str
    figures: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
