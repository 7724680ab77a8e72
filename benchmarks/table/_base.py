"""What a table is, and the part that all tables of generators share."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from layerdag.dag.dag import DAG
from layerdag.datasets.dataset import GraphDataset
from layerdag.graph.attributed_graph import Split

from ._figures import Sample, distances, validity
from ._learners import Learner
from ._runs import Figures, Record, Run, Store
from .baselines import Fitted

TUNING_SEED = 10_000
"""First of the sampling seeds that choose among trials; no reported figure uses them."""

DRAWS = 3

Further = Callable[[GraphDataset, Split, Sequence[Sample]], Figures]
"""Figures of samples beside the graphs of a split."""


def nothing_further(data: GraphDataset, split: Split, samples: Sequence[Sample]) -> Figures:
    """Return no figures."""
    return {}


class Table(Protocol):
    """A table that can be made.

    Attributes:
        name: On the command line and of its page.
        about: One line about it.
    """

    name: str
    about: str

    def make(self, store: Store, options: "Options") -> Iterator[Record]:
        """Make the runs one after the other, those that are finished without computing."""
        ...

    def page(self, records: Sequence[Record]) -> str:
        """Return the page."""
        ...


@runtime_checkable
class Illustrated(Protocol):
    """A table with charts on its page."""

    def pictures(self, records: Sequence[Record]) -> Mapping[str, str]:
        """Return the text of SVG files by name."""
        ...


@dataclass(frozen=True)
class Folders:
    """Where data sets lie that do not come with the repository; None: not at hand.

    Attributes:
        tpu_tile: TPU Tile.
        na_edge: NA-Edge, DGRL's family nasbench201s.
        dgrl: All of DGRL's families of computational graphs.
        amp: DGRL's operational amplifiers.
    """

    tpu_tile: Path | None = None
    na_edge: Path | None = None
    dgrl: Path | None = None
    amp: Path | None = None


NOWHERE = Folders()


@dataclass(frozen=True)
class Options:
    """How much a table spends.

    Attributes:
        seconds: Processor seconds of each fit, on one thread.
        trial_seconds: The same of each trial, by which settings are chosen.
        seeds: Training seeds, from 0, of the first task; the others have one.
        samples: Graphs for each sampling seed.
        train: Training graphs; None: as many as the table has.
        trials: Settings that are tried for each learner at most.
        tasks: How many of the table's tasks are made.
        only: The one task that is made; None: all.
    """

    seconds: float = 30.0
    trial_seconds: float = 9.0
    seeds: int = 2
    samples: int = 100
    train: int | None = None
    trials: int = 3
    tasks: int | None = None
    only: str | None = None


QUICK = Options(1.0, 1.0, seeds=1, samples=8, train=60, trials=1, tasks=1)


@dataclass(frozen=True)
class Task:
    """A data set on which generators are compared.

    Attributes:
        name: In the names of runs.
        load: Returns the data set, given the number of training graphs.
        is_valid: The rule that a graph must keep.
        others: Real graphs that no model learns from, to pose as samples.
        further: Figures beside validity and sizes; a "ratio" among them chooses settings.
        draws: Sampling seeds of a fit.
        left_out: Learners that are not run here, with the reason.
        budget: Times the usual seconds of each final fit.
    """

    name: str
    load: Callable[[int | None], GraphDataset]
    is_valid: Callable[[DAG], bool]
    others: Callable[[int], Sequence[DAG]]
    further: Further = nothing_further
    draws: int = DRAWS
    left_out: Mapping[str, str] = field(default_factory=dict)
    budget: float = 1.0


def make_runs(
    store: Store, tasks: Sequence[Task], learners: Sequence[Learner], options: Options
) -> Iterator[Record]:
    """Make the runs of learners on tasks; trials on the first task choose each one's settings.

    A learner's trials come just before its first fit, so that what is finished is a table.
    """
    chosen: dict[str, int] = {}
    for task in tasks[: options.tasks]:
        if options.only not in (None, task.name):
            continue
        real = Run(f"{task.name}-real", "real", 0, _config(task, options))
        yield store.made(real, _real(task))
        mine = [learner for learner in learners if task is tasks[0] or learner.everywhere]
        for seed in range(options.seeds if task is tasks[0] else 1):
            for learner in (learner for learner in mine if learner.name not in task.left_out):
                if learner.name not in chosen:
                    trials = list(_trials(store, tasks[0], learner, options))
                    yield from trials
                    chosen[learner.name] = best_trial(trials)
                run = _final(task, learner, chosen[learner.name], seed, options)
                yield store.made(run, _judge(task, learner))


def _trials(store: Store, task: Task, learner: Learner, options: Options) -> Iterator[Record]:
    """Make the trials of a learner; none where there is nothing to choose."""
    count = min(len(learner.trials), options.trials)
    for trial in range(count if count > 1 else 0):
        yield store.made(_trial(task, learner, trial, options), _chooser(task, learner))


def best_trial(records: Sequence[Record]) -> int:
    """Return the number of the trial with the best figure; 0 without trials.

    That is the mean ratio of distances where there is one, and V.U.N. otherwise.
    """
    if not records:
        return 0
    best = max(records, key=lambda record: _worth(record.figures))
    return int(best.run.config["trial"])


def _worth(figures: Figures) -> float:
    if "ratio" not in figures:
        return float(figures["vun"])
    return float("-inf") if figures["ratio"] is None else -float(figures["ratio"])


def _config(task: Task, options: Options) -> dict[str, Any]:
    draws = {} if task.draws == DRAWS else {"draws": task.draws}
    return {"task": task.name, "samples": options.samples, "train": options.train, **draws}


def _trial(task: Task, learner: Learner, trial: int, options: Options) -> Run:
    config = {
        **_config(task, options),
        "part": "trial",
        "trial": trial,
        "settings": dict(learner.trials[trial]),
        "seconds": options.trial_seconds,
    }
    return Run(f"{task.name}-{learner.name}-trial{trial}", learner.name, 0, config)


def _final(task: Task, learner: Learner, trial: int, seed: int, options: Options) -> Run:
    config = {
        **_config(task, options),
        "part": "final",
        "trial": trial,
        "settings": dict(learner.trials[trial]),
        "seconds": options.seconds * learner.budget * task.budget,
    }
    return Run(f"{task.name}-{learner.name}-seed{seed}", learner.name, seed, config)


def _real(task: Task) -> Callable[[Run], Figures]:
    """Return what judges real graphs as if they were samples."""

    def compute(run: Run) -> Figures:
        data = task.load(run.config["train"])
        return _judged(task, data, task.others(task.draws * run.config["samples"]))

    return compute


def _chooser(task: Task, learner: Learner) -> Callable[[Run], Figures]:
    """Return what fits a learner and judges samples of seeds that no final run uses."""

    def compute(run: Run) -> Figures:
        data = task.load(run.config["train"])
        fitted = learner.fit(data, run.config["seconds"], TUNING_SEED, **run.config["settings"])
        samples = fitted.sample(run.config["samples"], TUNING_SEED)
        shapes = distances(data.graphs["val"], samples)
        found = validity(data.graphs["train"], samples, task.is_valid)
        further = task.further(data, "val", samples)
        return {**found, **further, "distances": shapes, "steps": fitted.steps}

    return compute


def _judge(task: Task, learner: Learner) -> Callable[[Run], Figures]:
    """Return what fits a learner and judges its samples, those of its variants, too."""

    def compute(run: Run) -> Figures:
        data = task.load(run.config["train"])
        began = time.process_time()
        fitted = learner.fit(data, run.config["seconds"], run.seed, **run.config["settings"])
        fit_seconds = time.process_time() - began
        samples = _drawn(task, fitted.sample, run)
        sampling = time.process_time() - began - fit_seconds
        found = {
            **_judged(task, data, samples),
            "parameters": fitted.parameters,
            "steps": fitted.steps,
            "fit_seconds": round(fit_seconds, 1),
            "sampling_seconds": round(sampling / len(samples), 4),
        }
        for name, sample in variants_of(fitted).items():
            drawn = _drawn(task, sample, run)
            found.setdefault("variants", {})[name] = _judged(task, data, drawn)
        return found

    return compute


def _drawn(task: Task, sample: Callable[[int, int], list[Sample]], run: Run) -> list[Sample]:
    """Return the samples of all sampling seeds."""
    seeds = [1000 * draw for draw in range(task.draws)]
    return [dag for seed in seeds for dag in sample(run.config["samples"], seed)]


def variants_of(fitted: Fitted) -> dict[str, Callable[[int, int], list[Sample]]]:
    """Return other ways to sample, by name, of what has any."""
    found: dict[str, Callable[[int, int], list[Sample]]] = getattr(fitted, "variants", {})
    return found


def _judged(task: Task, data: GraphDataset, samples: Sequence[Sample]) -> Figures:
    return {
        **validity(data.graphs["train"], samples, task.is_valid),
        **task.further(data, "test", samples),
        "distances": distances(data.graphs["test"], samples),
    }
