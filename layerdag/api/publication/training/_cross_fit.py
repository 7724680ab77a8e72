"""Cross-fitting: models of folds, so that every run is both trained on and held out.

A release holds out at most two fifths of its runs, and membership attacks need hundreds of them.
Here the runs are cut into folds; for each a model is trained on all the others, from the same start
and by the same recipe, and sampled as the published one was. What is attacked is how such models
are made, on all runs; the published samples are one draw of it.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from layerdag._runtime import derive_seed, numpy_generator
from layerdag.api.publication import (
    FOLDS,
    ReleaseSettings,
    Work,
    runs_by_likeness,
    runs_for_cross_fitting,
)
from layerdag.api.publication.drawing import draw_samples
from layerdag.api.publication.reading import FoundJobs
from layerdag.api.publication.training._teacher import trained_teacher
from layerdag.codec import AttributedGraph
from layerdag.datasets import GraphDataset, Split
from layerdag.evaluation.privacy import Attack, Verdict
from layerdag.evaluation.privacy.attacks import Fold, Pool, cross_fitted_attacks, succeeds_among_all
from layerdag.viz import interval, number

MOST_FOLDS, RUNS_OF_A_FOLD = 5, 8
"""Where no number is named: half of a fold is what some attacks compare with."""
LEAST_SAMPLES = 8
"""Of a fold, below which it says nothing."""
TRAINING_SHARE = 0.5
"""Of the seconds of a fold; the rest is for sampling."""
LEAST_SECONDS = 10.0
LEAST_SHARE = 0.5
"""Of the budget, that folds may take where they are asked for, whatever is left."""


@dataclass(frozen=True, eq=False)
class CrossFit:
    """What membership attacks find on models of folds.

    Attributes:
        folds: Number of models whose samples were attacked.
        runs: Distinct runs, each of them held out in one fold.
        samples: Samples of the fold that has the fewest.
        attacks: The attacks on samples, pooled over folds.
        seconds: That all of it took.
    """

    folds: int
    runs: int
    samples: int
    attacks: tuple[Attack, ...]
    seconds: float

    def in_words(self) -> str:
        """Return what was done, in a clause."""
        return f"cross-fitted over {self.folds} folds of {self.runs} runs"

    def told(self) -> str:
        """Return what was found, in a clause."""
        widest = max(self.attacks, key=lambda attack: attack.interval.high)
        area = f"{number(widest.auc, 2)} {interval(widest.interval)} ({widest.name})"
        return f"{self.in_words()}, {self.samples} samples of each: largest area {area}"

    def successes(self) -> Iterator[str]:
        """Yield, in a clause each, what succeeds, the attacks run beside it considered."""
        for attack in self.attacks:
            if succeeds_among_all(attack):
                area = f"area {number(attack.auc, 2)} {interval(attack.interval)}, .5 is chance"
                yield (
                    f"{self.in_words()}, the attack {attack.name} tells which graphs were trained "
                    f"on ({area})"
                )
            elif attack.finds_some:
                rate = next(rate.in_words() for rate in attack.rates if rate.is_above_chance)
                yield (
                    f"{self.in_words()}, the attack {attack.name} finds single training graphs "
                    f"({rate})"
                )

    def reserves(self) -> Iterator[str]:
        """Yield, in a clause each, what could not be told."""
        unknown, uneven = self._of(Verdict.TOO_FEW), self._of(Verdict.REVERSED)
        alone = [a.name for a in self.attacks if a.leaks and not succeeds_among_all(a)]
        if unknown:
            yield (
                f"{self.in_words()}, too few runs to tell whether membership attacks succeed by "
                f"{', '.join(unknown)} (about {runs_for_cross_fitting(self.folds):,} needed)"
            )
        if alone:
            yield (
                f"{self.in_words()}, {' and '.join(alone)} alone would tell training graphs "
                "apart, which among so many attacks chance does, too"
            )
        if uneven:
            yield f"{self.in_words()}, {', '.join(uneven)} prefers held-out graphs"

    def _of(self, verdict: Verdict) -> list[str]:
        """Return the attacks with a verdict."""
        return [attack.name for attack in self.attacks if attack.verdict is verdict]

    def to_dict(self) -> dict[str, object]:
        """Return the figures as plain data."""
        return {
            "folds": self.folds,
            "runs": self.runs,
            "samples": self.samples,
            "seconds": round(self.seconds, 1),
            "attacks": [
                {
                    "name": attack.name,
                    "auc": attack.auc,
                    "interval": [attack.interval.low, attack.interval.high],
                    "verdict": attack.verdict.value,
                    "where_nothing_can_leak": attack.holdout and attack.holdout.auc,
                }
                for attack in self.attacks
            ],
        }


def cross_fitted_if_affordable(
    settings: ReleaseSettings,
    jobs: FoundJobs,
    work: Work,
    evaluating: float,
    tell: Callable[[str], None],
) -> CrossFit | None:
    """Attack models of folds if that is asked for, or if the budget allows.

    Args:
        settings: Of the release; ``num`` samples are wanted of each fold.
        jobs: The real graphs.
        work: The private folder, with what training and sampling took.
        evaluating: Seconds that evaluating the samples took.
        tell: Takes a line on each fold.
    """
    spent = [float(work.stages.get(stage, {}).get("seconds", 0.0)) for stage in ("train", "sample")]
    left = settings.budget - sum(spent) - evaluating
    folds = planned_folds(settings, jobs, work, left)
    if folds < 2:
        if settings.cross_fit is None and not jobs.parts:
            usual = usual_folds(jobs.num_runs)
            tell(
                f"not cross-fitted: {max(left, 0):.0f} s of the budget are left, too few for "
                f"{usual} more models; --cross-fit {usual} trains them all the same"
            )
        return None
    asked = settings.cross_fit is not None
    seconds = max(left, LEAST_SHARE * settings.budget) if asked else left
    tell(f"cross-fitting: {folds} more models, for at most {seconds:.0f} s")
    return cross_fitted(settings, jobs, work, folds, seconds, tell)


def cross_fitted(
    settings: ReleaseSettings,
    jobs: FoundJobs,
    work: Work,
    folds: int,
    seconds: float,
    tell: Callable[[str], None],
) -> CrossFit | None:
    """Train a model for each fold, sample from it, and attack; what a stopped call did is taken up.

    Args:
        settings: Of the release; ``num`` samples are wanted of each fold.
        jobs: The real graphs.
        work: The private folder.
        folds: Number of folds.
        seconds: For all folds, about.
        tell: Takes a line on each fold.

    Returns:
        What was found; None if no fold has enough samples.
    """
    began = time.monotonic()
    fold_of = fold_of_runs(jobs, folds, settings.seed)
    number = {graph.name: i for i, graph in enumerate(jobs.graphs)}
    found: list[Fold] = []
    sizes: list[int] = []
    for fold in range(folds):
        data = _data_of(jobs, fold_of, fold)
        if not data.graphs["val"]:
            tell(f"fold {fold + 1} of {folds}: no graph of it can be expressed by the others")
            continue
        own = work.inside(f"{FOLDS}/{folds}-{fold}")
        pool = _sampled(settings, jobs, data, own, fold, seconds / folds)
        count = pool.roles.sample_K.size
        tell(f"fold {fold + 1} of {folds}: {count} samples")
        names = (*data.names["train"], *data.names["val"], *data.names["test"])
        if count >= LEAST_SAMPLES:
            found.append(Fold(pool, np.array([number[name] for name in names])))
            sizes.append(count)
    if not found:
        return None
    runs, run_G = np.unique(np.array(jobs.runs), return_inverse=True)
    attacks = cross_fitted_attacks(found, run_G, settings.seed)
    spent = time.monotonic() - began
    return CrossFit(len(found), len(runs), min(sizes), attacks, spent)


def usual_folds(runs: int) -> int:
    """Return the number of folds where none is named."""
    return min(MOST_FOLDS, max(runs // RUNS_OF_A_FOLD, 2))


def planned_folds(settings: ReleaseSettings, jobs: FoundJobs, work: Work, left: float) -> int:
    """Return the number of folds to train, 0 for none.

    A call that goes on with the same budget decides as the first one did.

    Args:
        settings: Of the release.
        jobs: The real graphs.
        work: The private folder, with what training and sampling took.
        left: Seconds of the budget that are left.
    """
    most = jobs.num_runs // 2
    if settings.cross_fit is not None:
        return min(settings.cross_fit, most)
    if jobs.parts:
        return 0
    noted = work.stages.get("cross_fit", {})
    if noted.get("budget") == settings.budget and isinstance(noted.get("folds"), int):
        return int(noted["folds"])
    spent = [work.stages.get(stage, {}).get("seconds") for stage in ("train", "sample")]
    folds = usual_folds(jobs.num_runs)
    known = [float(seconds) for seconds in spent if isinstance(seconds, int | float)]
    allowed = len(known) == len(spent) and folds * sum(known) <= left
    work.note("cross_fit", {"budget": settings.budget, "folds": folds if allowed else 0})
    return folds if allowed else 0


def fold_of_runs(jobs: FoundJobs, folds: int, seed: int) -> dict[str, int]:
    """Return the fold of each run; like runs are spread over the folds.

    Args:
        jobs: The real graphs.
        folds: Number of folds.
        seed: Of the draw.
    """
    runs = runs_by_likeness(jobs, seed)
    rng = numpy_generator(seed, "folds of a release")
    found: dict[str, int] = {}
    for begin in range(0, len(runs), folds):
        block = runs[begin : begin + folds]
        found |= dict(zip(block, rng.permutation(folds)[: len(block)].tolist(), strict=True))
    return found


def _data_of(jobs: FoundJobs, fold_of: dict[str, int], fold: int) -> GraphDataset:
    """Return the graphs of one fold: its own are held out, half of them to validate on."""
    parts: dict[Split, list[AttributedGraph]] = {"train": [], "val": [], "test": []}
    held: dict[str, Split] = {}
    for graph, run in zip(jobs.graphs, jobs.runs, strict=True):
        part: Split = "train"
        if fold_of[run] == fold:
            part = held.setdefault(run, "test" if len(held) % 2 else "val")
        parts[part].append(graph)
    data = GraphDataset.build("fold", jobs.kind, parts)
    if data.graphs["val"]:
        return data
    return replace(
        data,
        graphs={**data.graphs, "val": data.graphs["test"], "test": ()},
        names={**data.names, "val": data.names["test"], "test": ()},
    )


def _sampled(
    settings: ReleaseSettings,
    jobs: FoundJobs,
    data: GraphDataset,
    work: Work,
    fold: int,
    seconds: float,
) -> Pool:
    """Train the model of a fold, draw its samples, and return them beside its graphs."""
    seed = derive_seed(settings.seed, "fold", str(fold)) % 2**31
    own = replace(settings, seed=seed)
    training = max(TRAINING_SHARE * seconds, LEAST_SECONDS)
    checkpoint = trained_teacher(own, data, work, training)
    sampling = max((1 - TRAINING_SHARE) * seconds, LEAST_SECONDS)
    drawn = draw_samples(own, jobs, data, checkpoint, work, sampling)
    return Pool(
        data.graphs["train"],
        data.held_out,
        [sample.dag for sample in drawn.kept(settings.num)],
        measured=data.schema.measured_columns,
        numeric=data.schema.size_columns,
    )
