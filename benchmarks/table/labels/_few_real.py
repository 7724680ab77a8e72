"""What a generator that learned from fifty graphs adds to these fifty.

Fifty graphs of the training part are drawn; a generator learns from forty of them and is selected
by ten. Surrogates are fitted to the fifty, to the samples, and to both, and predict the labels of
the test part. Samples get their labels in one of several ways, none of which sees another label.

Shape letters: B graphs.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from layerdag.dag.dag import DAG
from layerdag.datasets.corpus import load_corpus
from layerdag.datasets.dataset import GraphDataset
from layerdag.datasets.dgrl import load_dgrl
from layerdag.datasets.settings import CorpusConfig, DgrlConfig, TpuTileConfig
from layerdag.datasets.tpu_tile import load_tpu_tile
from layerdag.graph.attributed_graph import LABEL
from layerdag.runtime.rng import numpy_generator
from layerdag.surrogates.families.registry import FAMILIES
from layerdag.surrogates.targets import Labeled, labeled, mask_attributes
from layerdag.surrogates.training_sets import AUGMENTED, REAL, SYNTHETIC
from layerdag.surrogates.tstr import TransferReport, evaluate_tstr

from .._base import Options
from .._learners import fit_fast
from .._page import conditions_of
from .._runs import Figures, Record, Run, Store
from ._gains import JUDGED, SCORE_TITLES, SCORED, WORDS, gain_table
from ._parts import generators_data, labels_of
from ._scheduled import makespan, scheduled

REAL_GRAPHS, VALIDATION = 50, 10
COPIES = 6
"""Samples for the conditions of each of the real graphs."""

Measure = Callable[[DAG], float]


@dataclass(frozen=True)
class Source:
    """A data set of the table.

    Attributes:
        name: In the names of runs.
        load: Returns it.
        fast: Settings of the generator.
        measure: Returns the true label of any graph, where that can be computed.
        hidden: Attributes that surrogates may not see.
    """

    name: str
    load: Callable[[], GraphDataset]
    fast: Mapping[str, Any]
    measure: Measure | None = None
    hidden: Sequence[str] = field(default_factory=tuple)


@dataclass(frozen=True)
class Fifty:
    """What one run starts from.

    Attributes:
        data: The generator's training and validation graphs; its scales, too.
        real: The real graphs, both parts.
        test: Real graphs of the test part.
        everything: All graphs of the training part, which no generator here sees.
    """

    data: GraphDataset
    real: tuple[DAG, ...]
    test: tuple[DAG, ...]
    everything: tuple[DAG, ...]


def fifty_of(data: GraphDataset, seed: int, count: int = REAL_GRAPHS) -> Fifty:
    """Draw the real graphs of a run from those of the training part that have a label."""
    known = {
        split: [d for d in dags if LABEL in d.conditions] for split, dags in data.graphs.items()
    }
    order = numpy_generator(seed, "fifty real graphs").permutation(len(known["train"]))
    real = [known["train"][row] for row in order[:count].tolist()]
    val = max(count * VALIDATION // REAL_GRAPHS, 1)
    return Fifty(
        generators_data(data, real[val:], real[:val]),
        tuple(real),
        tuple(known["test"]),
        tuple(known["train"]),
    )


def labelings(
    source: Source, fifty: Fifty, samples: Sequence[DAG], asked_B: np.ndarray, seed: int
) -> dict[str, np.ndarray]:
    """Return labels of samples in each way.

    Args:
        source: Of the graphs.
        fifty: The real graphs.
        samples: Their condition "label" is what the generator's posterior predicts.
        asked_B: What each was asked for.
        seed: Of the fits.
    """
    sizes = fifty.data.schema.sizes()
    shown = mask_attributes(list(samples), fifty.data.schema, source.hidden)
    real = labeled(fifty.real, fifty.data.schema, LABEL, source.hidden)
    both = [
        np.log(
            np.maximum(FAMILIES[name](real.dags, real.target_B, sizes, seed).predict(shown), 1e-30)
        )
        for name in JUDGED
    ]
    found = {
        "asked for": asked_B,
        "of the posterior": labels_of(samples),
        "of surrogates": np.exp(np.mean(both, axis=0)),
    }
    if source.measure is not None:
        found["measured"] = np.array([source.measure(dag) for dag in samples])
    return found


def figures_of(source: Source, fifty: Fifty, run: Run) -> Figures:
    """Fit the generator, sample, and fit surrogates with each kind of labels."""
    fitted = fit_fast(fifty.data, run.config["seconds"], run.seed, **run.config["settings"])
    rows = [dag.conditions for dag in fifty.real for _ in range(COPIES)]
    made = fitted.sample_rows(rows, 1000 * run.seed, labels="predicted", best_of=4)
    kept = [(dag, float(row[LABEL])) for dag, row in zip(made, rows, strict=True) if dag]
    samples, asked_B = [dag for dag, _ in kept], np.array([label for _, label in kept])
    schema, sizes = fifty.data.schema, fifty.data.schema.sizes()
    shown = tuple(mask_attributes(samples, schema, source.hidden))
    real, test, everything = (
        labeled(dags, schema, LABEL, source.hidden)
        for dags in (fifty.real, fifty.test, fifty.everything)
    )
    families = {name: FAMILIES[name] for name in JUDGED}

    def report(first: Labeled, second: Labeled, conditions: Sequence[str]) -> TransferReport:
        return evaluate_tstr(
            first, second, test, sizes, families, seeds=(run.seed,), conditions=conditions
        )

    found: Figures = {"steps": fitted.steps, "samples": len(samples), "test": len(test.dags)}
    found["ceiling"] = _scores(report(everything, everything, (REAL,)), REAL)
    for how, label_B in labelings(source, fifty, samples, asked_B, run.seed).items():
        one = report(real, Labeled(shown, label_B), (REAL, SYNTHETIC, AUGMENTED))
        found["alone"] = _scores(one, REAL)
        found.setdefault("labels", {})[how] = {
            "samples": _scores(one, SYNTHETIC),
            "together": _scores(one, AUGMENTED),
            "gain": _gains(one),
        }
    return found


def _scores(report: TransferReport, condition: str) -> dict[str, dict[str, float]]:
    return {
        family: {
            score: round(report.row(family, condition).scores[score].mean, 4) for score in SCORED
        }
        for family in JUDGED
    }


def _gains(report: TransferReport) -> dict[str, dict[str, list[float]]]:
    """Return each gain with the standard deviation over test graphs drawn again."""
    found: dict[str, dict[str, list[float]]] = {}
    for family in JUDGED:
        for score in SCORED:
            gain = report.gain(family, AUGMENTED, score)
            spread = (gain.interval.high - gain.value) / 1.96 if gain.interval else float("nan")
            found.setdefault(family, {})[score] = [round(gain.value, 4), round(spread, 4)]
    return found


class FewReal:
    """Two data sets that need no files, and three that do.

    Args:
        tpu_tile: Folder of TPU Tile.
        na_edge: Folder of NA-Edge.
        amp: Folder of DGRL's operational amplifiers.
    """

    name = "few-real"
    about = "fifty real graphs and samples of a model of these, against the fifty alone"

    def __init__(
        self, tpu_tile: Path | None = None, na_edge: Path | None = None, amp: Path | None = None
    ) -> None:
        self.tpu_tile, self.na_edge, self.amp = tpu_tile, na_edge, amp

    def sources(self) -> list[Source]:
        """Return the data sets that are at hand."""
        small = {"width": 64, "depth": 2}
        flow = {**small, "predict_out_degree": False}
        found = [
            Source("scheduled", partial(scheduled, 800), flow, makespan),
            Source(
                "jobs",
                partial(load_corpus, CorpusConfig(max_nodes=160)),
                small,
                hidden=("duration",),
            ),
        ]
        if self.tpu_tile is not None:
            found.append(
                Source(
                    "tpu_tile", partial(load_tpu_tile, TpuTileConfig(folder=self.tpu_tile)), small
                )
            )
        if self.na_edge is not None:
            found.append(
                Source(
                    "na_edge",
                    partial(load_dgrl, DgrlConfig(folder=self.na_edge, num_graphs=600)),
                    flow,
                )
            )
        if self.amp is not None:
            found.append(
                Source(
                    "amp", partial(load_dgrl, DgrlConfig(folder=self.amp, num_graphs=2000)), small
                )
            )
        return found

    def make(self, store: Store, options: Options) -> Iterator[Record]:
        """Make the runs."""
        for source in self.sources()[: options.tasks]:
            if options.only not in (None, source.name):
                continue
            data = source.load()
            for seed in range(options.seeds):
                fifty = fifty_of(data, seed, min(options.train or REAL_GRAPHS, REAL_GRAPHS))
                config = {
                    "task": source.name,
                    "part": "final",
                    "real": len(fifty.real),
                    "copies": COPIES,
                    "seconds": options.seconds,
                    "settings": dict(source.fast),
                }
                run = Run(f"{source.name}-seed{seed}", "fast", seed, config)
                yield store.made(run, partial(figures_of, source, fifty))

    def page(self, records: Sequence[Record]) -> str:
        """Return the page."""
        parts = [f"# {WORDS.title}", WORDS.before]
        by_task = {
            title: [record for record in records if record.run.config["task"] == task]
            for task, title in WORDS.tasks.items()
        }
        made = {title: mine for title, mine in by_task.items() if mine}
        for score in SCORE_TITLES:
            parts += [f"## {SCORE_TITLES[score]}", gain_table(made, score)]
        parts += ["## How it was made", conditions_of(records), WORDS.published]
        source = (
            "This page is made from `benchmarks/results/few-real.jsonl` by "
            "`python -m benchmarks.table few-real --page`."
        )
        return "\n\n".join([*parts, source]) + "\n"
