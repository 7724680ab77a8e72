"""Surrogates on the DGRL benchmark's computational graphs and amplifiers.

Shape letters: B graphs.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np

from layerdag.dag.dag import DAG
from layerdag.surrogates.families.base import SurrogateModel
from layerdag.surrogates.families.networks import NetworkSettings, fit_message_passing
from layerdag.surrogates.families.registry import FAMILIES

from .._base import Options
from .._runs import Figures, Record, Run, Store
from ._data import (
    FIGURES,
    LABELS,
    Problem,
    amplifiers,
    dgrl_split,
    every_family,
    families,
    with_label,
    without_family,
)
from ._page import page
from ._scores import scored

SURROGATES = ("boosting", "message_passing")
GRAPHS = {"cg": 200, "all": 50, "without": 30, "amp": None}
"""Training graphs of each family of networks, and of amplifiers: None, all."""
# Message passing takes minutes where the others take seconds.
FEWER = {"cg": 100, "all": 50, "without": 30, "amp": 2000}
EPOCHS = 8
TEST = {"all": 50, "without": 100}


@dataclass(frozen=True)
class Task:
    """Graphs and a label.

    Attributes:
        group: "cg", "amp", "all" or "without".
        name: In the names of runs.
        label: What is predicted.
        load: Returns the graphs, given the number of training graphs.
    """

    group: str
    name: str
    label: str
    load: Callable[[int | None], Problem]


class Predictors:
    """One run for each label, family of networks that is left out, and family of surrogates.

    Args:
        networks: Folder of the families of computational graphs.
        amps: Folder of the amplifiers; without it they are left out.
    """

    name = "predictors"
    about = "surrogates beside published ones on computational graphs and amplifiers"

    def __init__(self, networks: Path | None = None, amps: Path | None = None) -> None:
        self.networks, self.amps = networks, amps

    def tasks(self) -> list[Task]:
        """Return the tasks that the data at hand suffice for."""
        if self.networks is None:
            raise SystemExit("predictors: name the folder with the families, --dgrl FOLDER.")
        root = self.networks
        cg = cache(partial(dgrl_split, root))
        every = cache(partial(every_family, root, test=TEST["all"]))
        found = [Task("cg", f"cg-{label}", label, cg) for label in LABELS]
        found += [Task("all", f"all-{label}", label, every) for label in LABELS]
        if self.amps is not None:
            amps = cache(partial(amplifiers, self.amps))
            found += [Task("amp", f"amp-{label}", label, amps) for label in FIGURES]
        for name in families(root):
            load = cache(partial(without_family, root, name, test=TEST["without"]))
            found.append(Task("without", f"without-{name}", LABELS[0], load))
        return found

    def make(self, store: Store, options: Options) -> Iterator[Record]:
        """Make the runs, group by group, so that data are read once."""
        tasks = self.tasks()[: options.tasks]
        for group in dict.fromkeys(task.group for task in tasks):
            for family in SURROGATES:
                for task in tasks:
                    if task.group == group and options.only in (None, group, task.name):
                        run = _run(task, family, options)
                        yield store.made(run, partial(figures_of, task))

    def page(self, records: Sequence[Record]) -> str:
        """Return the page."""
        return page(records)


def _run(task: Task, family: str, options: Options) -> Run:
    """Return what is asked for."""
    slow = family == "message_passing"
    config = {
        "task": task.name,
        "group": task.group,
        "label": task.label,
        "train": options.train or (FEWER if slow else GRAPHS)[task.group],
        "settings": {"epochs": 1 if options.train else EPOCHS} if slow else {},
    }
    return Run(f"{task.name}-{family}", family, 0, config)


def figures_of(task: Task, run: Run) -> Figures:
    """Fit a surrogate and score its predictions of every part."""
    problem = task.load(run.config["train"])
    dags, label_B = problem.known(task.label)
    began = time.process_time()
    model = _fitted(run, problem, dags, label_B)
    fit_seconds = time.process_time() - began
    judged = {}
    for part in problem.parts:
        kept, target_B = with_label(part.dags, task.label)
        if kept:
            judged[part.name] = (part.kind, target_B, model.predict(kept))
    return {
        "train": len(dags),
        "test": {name: int(target_B.size) for name, (_, target_B, _) in judged.items()},
        "fit_seconds": round(fit_seconds, 1),
        "scores": scored(judged),
    }


def _fitted(run: Run, problem: Problem, dags: Sequence[DAG], label_B: np.ndarray) -> SurrogateModel:
    if run.learner == "message_passing":
        settings = NetworkSettings(**run.config["settings"])
        return fit_message_passing(dags, label_B, problem.sizes, seed=run.seed, settings=settings)
    return FAMILIES[run.learner](dags, label_B, problem.sizes, run.seed)
