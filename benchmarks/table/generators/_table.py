"""All generators on several data sets."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from .._base import Folders, Options, make_runs
from .._learners import BASELINES, REFERENCES, Learner, fit_fast
from .._runs import Record, Store
from ._page import page_of
from ._tasks import tasks_in

_SAMPLING = {
    "best_of": None,
    "temperature": None,
    "guidance": None,
    "variants": {"one draw": {"best_of": 1}},
}
"""The package's own defaults, and one draw for each sample."""


def _fast(**options: Any) -> dict[str, Any]:
    return {"sampling": _SAMPLING, **options}


_WIDE: Mapping[str, Mapping[str, Any]] = {
    "reference": {
        "layer_size": {"width": 96},
        "node": {"width": 96},
        "edge": {"width": 96},
    },
    "reference_one_step": {
        "layer_size": {"width": 96},
        "node": {"width": 96, "steps": 1},
        "edge": {"width": 96, "steps": 1},
    },
    "recurrent": {"width": 288, "edge_width": 64},
    "language_model": {"width": 128},
    "diffusion": {"width": 96, "rounds": 10},
    "dvae": {"width": 140},
}
"""Settings with which a learner has about as many parameters as `fast`."""

_OTHER_RATE = {"reference": 3e-3, "reference_one_step": 3e-3}


def _three(learner: Learner) -> Learner:
    """Return the learner with trials as `fast` has them: wide, narrow, and at another rate."""
    if learner.name not in _WIDE:
        return learner
    wide, rate = _WIDE[learner.name], _OTHER_RATE.get(learner.name, 1e-3)
    return replace(learner, trials=(wide, learner.trials[0], {**wide, "learning_rate": rate}))


LEARNERS = (
    Learner(
        "fast",
        "`fast`",
        fit_fast,
        (_fast(), _fast(width=64, depth=2), _fast(learning_rate=2e-3)),
    ),
    *(_three(learner) for learner in (*BASELINES, *REFERENCES)),
)


class Generators:
    """One task for each data set.

    Args:
        folders: Of the data sets.
    """

    name = "generators"
    about = "every generator on every data set: similarity, local structure, valid and new graphs"

    def __init__(self, folders: Folders) -> None:
        self.folders = folders

    def make(self, store: Store, options: Options) -> Iterator[Record]:
        """Make the runs."""
        yield from make_runs(store, tasks_in(self.folders), LEARNERS, options)

    def page(self, records: Sequence[Record]) -> str:
        """Return the page."""
        titles = {learner.name: learner.title for learner in LEARNERS}
        titles = {"fast": titles["fast"], "fast, one draw": "`fast`, one draw", **titles}
        return page_of(self.name, records, titles)
