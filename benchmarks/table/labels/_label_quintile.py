"""Extrapolation: graphs for labels beyond all of training, judged by what they teach a surrogate.

The fifth of the graphs with the largest labels is held out of training and of every choice, and cut
at random into two halves. A model is asked for the labels of one half; a surrogate that is fitted
to what it sampled predicts the labels of the real graphs of the other half. The ceiling is a
surrogate fitted to the real graphs of the first half; a surrogate fitted to the graphs below, with
no generator at all, stands beside it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from layerdag._runtime import numpy_generator
from layerdag.datasets import GraphDataset
from layerdag.datasets.schema import LABEL
from layerdag.datasets.sources import load_tpu_tile
from layerdag.graph import DAG, Condition
from layerdag.surrogates.families import FAMILIES

from .._base import Options
from .._figures import Sample
from .._learners import fit_fast
from .._page import Words, conditions_of, number, table
from .._runs import Figures, Record, Run, Store
from ._parts import labels_of
from ._quintile import LinearTeacher, Quintile, cut
from ._scheduled import makespan, scheduled

COPIES = 6
"""Samples for each label that is asked for."""

REDRAWS = 500
FAMILY = "boosting"


def requests(quintile: Quintile, *, sizes: bool) -> list[Mapping[str, Condition]]:
    """Return what is asked for: each label several times, with the sizes that go with it or alone.

    The sizes follow from the label by a line through the logarithms of the training graphs.
    """
    wanted_B = labels_of(quintile.asked)
    rows: list[dict[str, Condition]] = [{LABEL: float(label)} for label in wanted_B]
    if sizes:
        train = quintile.data.graphs["train"]
        log_label_B = np.log(labels_of(train))
        for name in quintile.data.schema.condition_names:
            if name == LABEL:
                continue
            log_size_B = np.log([float(dag.conditions[name]) for dag in train])
            slope, start = np.polyfit(log_label_B, log_size_B, 1)
            for row, label in zip(rows, wanted_B, strict=True):
                row[name] = round(float(np.exp(start + slope * np.log(label))))
    return [row for row in rows for _ in range(COPIES)]


def correlation(
    quintile: Quintile, dags: Sequence[DAG], label_B: np.ndarray, seed: int
) -> dict[str, Any]:
    """Return Pearson's correlation on the real test graphs of a surrogate fitted to graphs.

    Its interval is of test graphs drawn again.
    """
    sizes = quintile.data.schema.sizes()
    model = FAMILIES[FAMILY](list(dags), label_B, sizes, seed)
    return _scored(quintile, model.predict(quintile.test), len(dags))


def _scored(quintile: Quintile, predicted_B: np.ndarray, count: int) -> dict[str, Any]:
    real_B = labels_of(quintile.test)
    rng = numpy_generator(0, "quintile bootstrap")
    draws = rng.integers(0, real_B.size, (REDRAWS, real_B.size))
    found_R = np.array([_pearson(real_B[rows], predicted_B[rows]) for rows in draws])
    return {
        "graphs": count,
        "pearson": round(_pearson(real_B, predicted_B), 4),
        "sd": round(float(found_R.std()), 4),
    }


def _pearson(one_B: np.ndarray, other_B: np.ndarray) -> float:
    """Return the correlation, 0 with a constant."""
    if one_B.std() < 1e-12 or other_B.std() < 1e-12:
        return 0.0
    return float(np.corrcoef(one_B, other_B)[0, 1])


@dataclass(frozen=True)
class _Source:
    """A data set of the table.

    Attributes:
        name: In the names of runs.
        load: Returns it, given the number of training graphs.
        measure: Returns the true label of any graph, where that can be computed.
        fast: Settings of the generator.
    """

    name: str
    load: Callable[[int | None], GraphDataset]
    measure: Callable[[DAG], float] | None
    fast: Mapping[str, Any]


def _figures(source: _Source, quintile: Quintile, run: Run) -> Figures:
    """Fit the generator, sample, and fit a surrogate to each kind of samples and labels."""
    fitted = fit_fast(quintile.data, run.config["seconds"], run.seed, **run.config["settings"])
    train = quintile.data.graphs["train"]
    teacher = LinearTeacher(train, quintile.data.schema.sizes().attributes[0])
    found: Figures = {"steps": fitted.steps, "parameters": fitted.parameters, "rows": {}}
    for kind, sizes in (("label", False), ("label and sizes", True)):
        rows = requests(quintile, sizes=sizes)
        made = fitted.sample_like(rows, 1000 * run.seed)
        dags, asked_B = _kept(made, rows)
        for how, label_B in _labelings(source, teacher, dags, asked_B).items():
            found["rows"][f"{kind}, {how}"] = {
                **correlation(quintile, dags, label_B, run.seed),
                "beyond": round(float(np.mean(label_B > labels_of(train).max())), 3),
            }
    return found


def _kept(
    made: Sequence[Sample], rows: Sequence[Mapping[str, Condition]]
) -> tuple[list[DAG], np.ndarray]:
    pairs = [(dag, float(row[LABEL])) for dag, row in zip(made, rows, strict=True) if dag]
    return [dag for dag, _ in pairs], np.array([label for _, label in pairs])


def _labelings(
    source: _Source, teacher: LinearTeacher, dags: Sequence[DAG], asked_B: np.ndarray
) -> dict[str, np.ndarray]:
    found = {"as asked": asked_B, "by the line": teacher.predict(dags)}
    if source.measure is not None:
        found["measured"] = np.array([source.measure(dag) for dag in dags])
    return found


def _real(quintile: Quintile, run: Run) -> Figures:
    """Return the figures without a generator: real graphs of the quintile, and those below."""
    train = quintile.data.graphs["train"]
    teacher = LinearTeacher(train, quintile.data.schema.sizes().attributes[0])
    shuffled_B = numpy_generator(run.seed, "shuffled").permutation(labels_of(quintile.asked))
    return {
        "rows": {
            "real graphs of the quintile": correlation(
                quintile, quintile.asked, labels_of(quintile.asked), run.seed
            ),
            "the same, labels shuffled": correlation(
                quintile, quintile.asked, shuffled_B, run.seed
            ),
            "real graphs below the quintile": correlation(
                quintile, train, labels_of(train), run.seed
            ),
            "the line alone": _scored(quintile, teacher.predict(quintile.test), len(train)),
        }
    }


def _scheduled(train: int | None) -> GraphDataset:
    return scheduled(train or 800)


def _tpu_tile(folder: Path, train: int | None) -> GraphDataset:
    return load_tpu_tile(folder)


class LabelQuintile:
    """Latent-preferential graphs on two workers, and TPU Tile where its folder is given."""

    name = "label-quintile"
    about = "graphs for labels beyond all of training: do they teach a surrogate?"

    def __init__(self, tpu_tile: Path | None = None) -> None:
        self.tpu_tile = tpu_tile

    def sources(self) -> list[_Source]:
        """Return the data sets that are at hand."""
        small = {"width": 64, "depth": 2, "predict_out_degree": False}
        found = [_Source("scheduled", _scheduled, makespan, small)]
        if self.tpu_tile is not None:
            own = {"width": 64, "batch_nodes": 2000}
            found.append(_Source("tpu_tile", partial(_tpu_tile, self.tpu_tile), None, own))
        return found

    def make(self, store: Store, options: Options) -> Iterator[Record]:
        """Make the runs."""
        for source in self.sources():
            if options.only not in (None, source.name):
                continue
            data = source.load(options.train)
            for seed in range(options.seeds):
                quintile = cut(data, seed)
                plain = {"task": source.name, "train": options.train, "samples": COPIES}
                real = Run(f"{source.name}-real-seed{seed}", "real", seed, plain)
                yield store.made(real, partial(_real, quintile))
                config = {
                    **plain,
                    "part": "final",
                    "seconds": options.seconds,
                    "settings": dict(source.fast),
                }
                run = Run(f"{source.name}-fast-seed{seed}", "fast", seed, config)
                yield store.made(run, partial(_figures, source, quintile))

    def page(self, records: Sequence[Record]) -> str:
        """Return the page."""
        parts = [f"# {WORDS.title}", WORDS.before]
        for task in dict.fromkeys(record.run.config["task"] for record in records):
            mine = [record for record in records if record.run.config["task"] == task]
            parts += [f"## {WORDS.tasks[task]}", _pearson_table(mine)]
        parts += ["## How it was made", conditions_of(records), WORDS.published]
        made = (
            "This page is made from `benchmarks/results/label-quintile` by `python -m "
            "benchmarks.table label-quintile --page`."
        )
        return "\n\n".join([*parts, made]) + "\n"


def _pearson_table(records: Sequence[Record]) -> str:
    """Return the correlations, means over the fits, with their intervals."""
    names = dict.fromkeys(
        name
        for record in sorted(records, key=lambda r: r.run.learner != "real")
        for name in record.figures["rows"]
    )
    rows = []
    for name in names:
        found = _found(records, name)
        title = f"samples for {name}" if name.startswith(LABEL) else name
        rows.append([title, pearson_of(records, name), str(found[0]["graphs"]), str(len(found))])
    head = ("a surrogate fitted to", "Pearson on real graphs of the quintile", "graphs", "fits")
    return table(head, rows)


def pearson_of(records: Sequence[Record], name: str) -> str:
    """Return the mean over fits of a row's correlation, with its interval."""
    found = _found(records, name)
    pearson = np.array([one["pearson"] for one in found])
    spread = pearson.std(ddof=1) if len(found) > 1 else 0.0
    half = 1.96 * float(np.hypot(np.mean([one["sd"] for one in found]), spread))
    mean = float(pearson.mean())
    return f"{number(mean)} [{number(mean - half)}, {number(min(mean + half, 1.0))}]"


def _found(records: Sequence[Record], name: str) -> list[Mapping[str, Any]]:
    return [r.figures["rows"][name] for r in records if name in r.figures["rows"]]


WORDS = Words(
    title="Graphs for labels beyond training",
    before=(
        "The fifth of the graphs with the largest labels is held out of training and of every "
        "choice, and cut at random into two halves, another cut for each training seed. `fast` is "
        f"asked for the labels of one half, {COPIES} graphs each, alone or with the numbers of "
        "nodes and layers that a line through the logarithms of the training graphs gives. "
        "Boosted trees are fitted to the samples and predict the real graphs of the other half. "
        "The samples' labels are those asked for, or what a line in logarithms of sizes and kinds "
        "says, fitted below the quintile, or measured where a label can be computed.\n\n"
        "Real graphs of the first half are the ceiling; real graphs below the quintile, and the "
        "line itself, are what one has without a generator."
    ),
    tasks={
        "scheduled": "Latent-preferential graphs, time on two workers",
        "tpu_tile": "TPU Tile, the 630 graphs of its validation file",
    },
    published=(
        "The LayerDAG paper has .22 ± .11 on the whole of TPU Tile (D-VAE -.06, GraphRNN -.05, "
        "GraphPNAS .02, one-shot diffusion -.11), its ceiling .81, with a message-passing "
        "surrogate. **Not comparable** one to one: a tenth of its graphs, other surrogates, and "
        "short training. With 63 test graphs shuffled labels show what chance gives."
    ),
)
