"""The page of what each part of the fast model is worth, from the files of the runs."""

from collections.abc import Sequence
from statistics import mean, stdev

from .._page import Words, number, table
from .._runs import Record
from ._curves_page import made_on
from ._variants import VARIANTS

FIGURES = (
    ("nats", "nats per graph", 1, 1),
    ("mean_ratio", "mean ratio", 1, 2),
    ("copied", "repeat training, %", 100, 0),
    ("new_neighborhoods", "new neighborhoods, %", 100, 1),
    ("agreement", "agreement, nats", 1, 2),
    ("step_processor_s", "training step, processor s", 1, 2),
)
"""Name in a file, title, factor and decimals."""


def ablations_page(records: Sequence[Record]) -> str:
    """Return the page."""
    parts = [f"# {WORDS.title}", WORDS.before]
    for task, title in WORDS.tasks.items():
        mine = [record for record in records if record.run.config["task"] == task]
        if mine:
            parts += [f"## {title}", variants_table(mine), _missing(mine)]
    parts += ["## How it was made", made_on(records), WORDS.published, MADE]
    return "\n\n".join(part for part in parts if part) + "\n"


def variants_table(records: Sequence[Record]) -> str:
    """Return a row for each variant: means over seeds, with deviations where there are two."""
    rows = []
    for name in VARIANTS:
        found = [record for record in records if record.run.config["variant"] == name]
        if found:
            cells = [_cell(found, key, factor, digits) for key, _, factor, digits in FIGURES]
            rows.append([name, *cells, str(len(found))])
    return table(("variant", *(title for _, title, _, _ in FIGURES), "seeds"), rows)


def _cell(records: Sequence[Record], key: str, factor: float, digits: int) -> str:
    values = [record.figures[key] for record in records]
    known = [factor * float(value) for value in values if value is not None]
    if not known:
        return ""
    spread = f" ± {number(stdev(known), digits)}" if len(known) > 1 else ""
    return f"{number(mean(known), digits)}{spread}"


def _missing(records: Sequence[Record]) -> str:
    """Return which variants have no run and how many steps the others have."""
    made = {record.run.config["variant"] for record in records}
    steps = sorted({record.run.config["steps"] for record in records})
    text = f"{' or '.join(f'{count:,}' for count in steps)} steps each."
    missing = [name for name in VARIANTS if name not in made]
    return f"{text} Not made: {'; '.join(missing)}." if missing else text


WORDS = Words(
    title="What is each part of the fast model worth?",
    before=(
        "The fast model without one of its parts. Every variant is a file of "
        "`configs/experiment/ablation` or a setting of sampling; all are trained for equally many "
        "steps from scratch (variants of sampling, and without out-degree constraints, have the "
        "weights of the full model). Unless the variant says otherwise, guidance is 1.5 and the "
        "best of 4 is kept in flow graphs, 1 and 8 in jobs.\n\n"
        "*Nats*: of a validation graph, without its conditions. *Mean ratio*: of seven distances "
        "to the validation graphs over those of the training graphs. *New neighborhoods*: nodes "
        "whose neighborhood of radius 1 no training graph has. *Agreement*: log-likelihood of the "
        "conditions asked for under the posterior of the full model's first seed. Means and "
        "standard deviations over training seeds."
    ),
    tasks={
        "tpu_tile": "TPU Tile, its validation file",
        "jobs": "Jobs of the corpus of at most 80 nodes",
    },
    published=("No test graph is in these figures, since parts are chosen by them."),
)

MADE = (
    "This page is made from `benchmarks/results/ablations.jsonl` by `python -m benchmarks.table "
    "ablations --page`; `python -m benchmarks.table ablations --tpu-tile FOLDER` makes the runs "
    "that are missing there, of the jobs alone without the folder."
)
