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
    rows: Mapping[str, Row], titles: Mapping[str, str], published: Mapping[str, str]
) -> str:
    """Return the table of one task: real graphs first, then learners in the order of titles.

    Args:
        rows: Of the task, by learner.
        titles: Of the learners.
        published: What a paper says of a learner.
    """
    head = (
        "", "valid, %", "V.U.N., %", "published, %", "W1 of layers", "W1 of nodes", "W1 of edges",
        "MMD of layer sizes", "parameters", "fits",
    )  # fmt: skip
    named = {"real": "real graphs of their own", **titles}
    return table(
        head,
        [
            _generator(named[name], rows[name], published.get(name, ""))
            for name in named
            if name in rows
        ],
    )


def _generator(title: str, row: Row, published: str) -> list[str]:
    return [
        title,
        share(*row.count("valid")),
        share(*row.count("vun")),
        published,
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
    first = rows_of(records, tasks[0])
    if tasks[0] in words.tasks:
        parts.append(f"## {words.tasks[tasks[0]]}")
    parts.append(generators_table(first, titles, words.figures.get(tasks[0], {})))
    missing = [title for learner, title in titles.items() if learner not in first]
    if missing:
        parts.append(f"Not made yet: {'; '.join(missing)}.")
    if tasks[1:]:
        parts += [f"## {words.others}", shares_table(records, tasks[1:], titles, words)]
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


def shares_table(
    records: Sequence[Record], tasks: Sequence[str], titles: Mapping[str, str], words: "Words"
) -> str:
    """Return the V.U.N. of further tasks, whose other figures are in the files of the runs."""
    named = {"real": "real graphs of their own", **titles}
    by_task = {task: rows_of(records, task) for task in tasks}
    rows = []
    for name, title in named.items():
        if any(name in found for found in by_task.values()):
            cells = []
            for task, found in by_task.items():
                cells.append(share(*found[name].count("vun")) if name in found else "")
                cells.append(words.figures.get(task, {}).get(name, ""))
            rows.append([title, *cells])
    head = [
        what
        for task in tasks
        for what in (f"{words.tasks[task].lower()}: V.U.N., %", "published, %")
    ]
    return table(("", *head), rows)


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
        tasks: Titles of the tasks; that of the first is a heading.
        published: Further figures of papers, and what is not comparable.
        figures: Figures of papers by task and learner, in percent, with what they are of.
        others: Heading of the table of all tasks but the first.
    """

    title: str
    before: str
    tasks: Mapping[str, str]
    published: str
    figures: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    others: str = "Other tasks"
