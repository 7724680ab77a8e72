"""How good samples of the fast model are over training time, number of graphs, and width.

Each point is a fit of its own, with a cosine schedule over its whole length: weights of a longer
run that is not yet at its end would be worse than a run of that length. All points of a data set
are held against the same real graphs.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from layerdag.dag.dag import DAG
from layerdag.datasets.corpus import load_corpus
from layerdag.datasets.dataset import GraphDataset
from layerdag.datasets.settings import CorpusConfig, TpuTileConfig
from layerdag.datasets.tpu_tile import load_tpu_tile
from layerdag.graph.attributed_graph import LABEL
from layerdag.runtime.rng import numpy_generator

from .._base import Options
from .._runs import Figures, Record, Run, Store
from ..labels._parts import generators_data
from ._curves_page import charts_of, page_of
from ._fit import fit_steps
from ._judge import Judge, copied

STEPS_A_SECOND = 10
"""What is taken for a processor second, so that a fit does not depend on the machine's load."""

SHORT, LONG, LONGEST = 1 / 3, 10 / 3, 10
"""Other training times, times the usual one; the longest for the first data set and seed alone."""

DRAWS, REAL_DRAWS = 3, 10
SETTINGS = {"batch_nodes": 1350, "learning_rate": 2e-3, "evaluations": 6}


@dataclass(frozen=True)
class Source:
    """A data set of the table.

    Attributes:
        name: In the names of runs.
        load: Returns it.
        samples: Graphs for each of three sampling seeds.
        graphs: Numbers of training graphs beside all of them.
        widths: Widths beside the default.
        hidden: Attributes that surrogates may not see.
    """

    name: str
    load: Callable[[], GraphDataset]
    samples: int
    graphs: Sequence[int]
    widths: Sequence[int]
    hidden: Sequence[str] = field(default_factory=tuple)


@dataclass(frozen=True)
class Point:
    """What is fitted.

    Attributes:
        name: In the names of runs.
        steps: Of training.
        graphs: Training graphs; None: all.
        width: Of the encoder; None: the default.
    """

    name: str
    steps: int
    graphs: int | None = None
    width: int | None = None


def points_of(source: Source, usual: int) -> list[Point]:
    """Return the points around a usual number of steps; the first lies on all three axes."""
    return [
        Point("usual", usual),
        *(trained(usual, times) for times in (LONG, SHORT)),
        *(Point(f"width{width}", usual, width=width) for width in source.widths),
        *(Point(f"graphs{count}", usual, graphs=count) for count in source.graphs),
    ]


def trained(usual: int, times: float) -> Point:
    """Return the point of another number of steps."""
    steps = max(round(usual * times), 1)
    return Point(f"steps{steps}", steps)


def seen_of(data: GraphDataset, count: int | None, seed: int) -> list[DAG]:
    """Return the training graphs of a point: the first of one order, so that more include fewer."""
    known = [dag for dag in data.graphs["train"] if LABEL in dag.conditions]
    order = numpy_generator(seed, "curve").permutation(len(known)).tolist()
    return [known[row] for row in order[:count]]


def figures_of(judge: Judge, run: Run) -> Figures:
    """Fit the generator and judge draws of its samples."""
    config = run.config
    data = judge.data
    seen = seen_of(data, config["graphs"], run.seed)
    given = {} if config["width"] is None else {"width": config["width"]}
    part = generators_data(data, seen, data.graphs["val"])
    began = time.process_time()
    fitted = fit_steps(part, config["steps"], run.seed, config["settings"], **given)
    spent = time.process_time() - began
    rows = [seen[i % len(seen)].conditions for i in range(config["samples"])]
    found = []
    for draw in range(config["draws"]):
        made = fitted.sample_rows(rows, 1000 * draw, labels="predicted")
        found.append(judge.figures([dag for dag in made if dag is not None], seen))
    return {
        "fit_seconds": round(spent, 1),
        "parameters": fitted.parameters,
        "seen": len(seen),
        "width": fitted.checkpoint.spec.config.width,
        "nats": round(fitted.checkpoint.meta.metrics["validation/total_per_graph"], 3),
        "real": judge.taught(seen),
        "draws": found,
    }


def real_figures(judge: Judge, run: Run) -> Figures:
    """Judge real training graphs, drawn with replacement, as if they were samples.

    Copies and new neighborhoods are those of the test part, which no draw can repeat.
    """
    known, test = seen_of(judge.data, None, run.seed), judge.data.graphs["test"]
    found = []
    for draw in range(run.config["draws"]):
        rng = numpy_generator(draw, "real graphs")
        rows = rng.integers(0, len(known), run.config["samples"]).tolist()
        one = judge.figures([known[row] for row in rows], known)
        found.append(
            {
                **one,
                "copied": copied(test, known),
                "new_neighborhoods": one["new_neighborhoods_real"],
            }
        )
    return {"seen": len(known), "real": judge.taught(known), "draws": found}


class Curves:
    """TPU Tile where its folder is given, and jobs of the embedded corpus.

    Args:
        folder: Of TPU Tile.
    """

    name = "curves"
    about = "quality over training time, number of training graphs, and width"

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder

    def sources(self) -> list[Source]:
        """Return the data sets that are at hand."""
        tpu_tile, jobs = _sources(self.folder or Path())
        return [jobs] if self.folder is None else [tpu_tile, jobs]

    def make(self, store: Store, options: Options) -> Iterator[Record]:
        """Make the runs: one seed of all data sets, further ones of the first, the longest fit."""
        first, *others = self.sources()[: options.tasks]
        usual = round(STEPS_A_SECOND * options.seconds)
        rounds = [
            *((source, 0, points_of(source, usual)) for source in (first, *others)),
            *((first, seed, points_of(first, usual)) for seed in range(1, options.seeds)),
            (first, 0, [trained(usual, LONGEST)]),
        ]
        for source, seed, points in rounds:
            if options.only in (None, source.name):
                yield from _made(store, source, seed, points, options)

    def page(self, records: Sequence[Record]) -> str:
        """Return the page."""
        return page_of(records, missing(records))

    def pictures(self, records: Sequence[Record]) -> Mapping[str, str]:
        """Return the charts by the names of their files."""
        return charts_of(records)


def _sources(folder: Path) -> tuple[Source, Source]:
    """Return TPU Tile, which lies in a folder, and the jobs."""
    jobs = partial(load_corpus, CorpusConfig(max_nodes=160))
    return (
        Source(
            "tpu_tile",
            partial(load_tpu_tile, TpuTileConfig(folder=folder)),
            200,
            (25, 100, 50, 200),
            (32, 64),
        ),
        Source("jobs", jobs, 60, (50, 200), (64,), hidden=("duration",)),
    )


def missing(records: Sequence[Record]) -> dict[str, list[str]]:
    """Return the names of the points of each data set that no fit has been made of."""
    fits = [record.run for record in records if record.run.learner != "real"]
    usual = next((run.config["steps"] for run in fits if run.config["name"] == "usual"), 0)
    made = {(run.config["task"], run.config["name"]) for run in fits}
    longest = trained(usual, LONGEST)
    found: dict[str, list[str]] = {}
    for source in _sources(Path()):
        points = [*points_of(source, usual), *([longest] if source.name == "tpu_tile" else [])]
        names = [point.name for point in points if (source.name, point.name) not in made]
        if names:
            found[source.name] = names
    return found


def _made(
    store: Store, source: Source, seed: int, points: Sequence[Point], options: Options
) -> Iterator[Record]:
    judge = Judge(source.load(), source.hidden)
    common: dict[str, Any] = {
        "task": source.name,
        "samples": min(source.samples, 2 * options.samples),
    }
    real = Run(f"{source.name}-real", "real", 0, {**common, "draws": REAL_DRAWS})
    yield store.made(real, partial(real_figures, judge))
    for point in points:
        config = {**common, "draws": DRAWS, "part": "final", "settings": SETTINGS, **asdict(point)}
        run = Run(f"{source.name}-{point.name}-seed{seed}", "fast", seed, config)
        yield store.made(run, partial(figures_of, judge))
