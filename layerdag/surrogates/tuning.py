"""Choice of a family's settings by cross-validation inside the training part."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from layerdag.dag.dag import DAG, GraphSizes, graph_hash
from layerdag.datasets.dataset import GraphDataset
from layerdag.errors import UsageError
from layerdag.evaluation.metrics.base import Goal
from layerdag.graph.attributed_graph import LABEL
from layerdag.runtime.terminal import track
from layerdag.surrogates.families.base import SurrogateModel
from layerdag.surrogates.families.registry import SharedFit, draw_settings
from layerdag.surrogates.scoring import EVALUATED, SCORES, PredictionScore, scores
from layerdag.surrogates.surrogate import FittedSurrogate, KnownTargets, fits_of


@final
@dataclass(frozen=True)
class Trial:
    """Settings that were tried.

    Attributes:
        settings: What differs from the family's defaults; empty for the defaults themselves.
        values: The score on each fold.
    """

    settings: Mapping[str, int | float]
    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Mean over the folds."""
        return float(np.mean(self.values))

    @property
    def spread(self) -> float:
        """Standard error of the mean over the folds, which share training graphs."""
        return float(np.std(self.values, ddof=1) / np.sqrt(len(self.values)))


@final
@dataclass(frozen=True, eq=False)
class Tuning:
    """What a search found.

    Attributes:
        surrogate: Fitted with the best settings on the whole training part.
        score: Name of the score that chose.
        trials: The best first.
    """

    surrogate: FittedSurrogate
    score: str
    trials: tuple[Trial, ...]

    @property
    def best(self) -> Trial:
        """The trial whose settings were taken."""
        return self.trials[0]

    @property
    def defaults(self) -> Trial:
        """The trial with the family's defaults."""
        return next(trial for trial in self.trials if not trial.settings)


MOST_TRIALS = 1_000
"""Settings that are drawn and tried at most."""


@final
@dataclass(frozen=True)
class Search:
    """How to choose settings.

    Attributes:
        trials: Number of settings to try, the defaults among them.
        folds: Of the cross-validation; each trial is fitted so many times.
        score: What chooses: one of ``EVALUATED`` by name.
        seed: Of the settings, the folds and the fits.
    """

    trials: int = 16
    folds: int = 3
    score: str = "mape"
    seed: int = 0

    def __post_init__(self) -> None:
        known = [one.name for one in EVALUATED]
        if self.score not in known or not 0 < self.trials <= MOST_TRIALS or self.folds < 2:
            raise UsageError(
                f"score is '{self.score}', trials is {self.trials} and folds is {self.folds}; the "
                f"score must be one of {', '.join(known)}, and there must be 1 to "
                f"{MOST_TRIALS:,} trials and at least two folds."
            )


def tune(
    data: GraphDataset,
    family: str = "boosting",
    search: Search | None = None,
    *,
    target: str | Sequence[str] = LABEL,
    exclude: Sequence[str] = (),
    shared: bool = False,
) -> Tuning:
    """Choose a family's settings by random search (Bergstra and Bengio, JMLR 2012), and fit.

    The first trial is the defaults, so that by cross-validation nothing gets worse. Only the
    training part is used; equal graphs are in one fold. The validation part stays for intervals.

    Args:
        data: The data set.
        family: "boosting", "message_passing", "dag_transformer" or "additive".
        search: How to choose.
        target: Condition to predict, or several with ``shared``: the score is the mean over them.
        exclude: Node attributes to exclude.
        shared: Whether one network predicts all targets.

    Raises:
        UsageError: If there is no such family or attribute, too few distinct graphs, or several
            targets that share no network or no unit of the score.
        DataError: If no graph has the target.
    """
    search = search or Search()
    seed, folds = search.seed, search.folds
    score = next(one for one in EVALUATED if one.name == search.score)
    drawn = [{}, *draw_settings(family, search.trials - 1, seed)][: search.trials]
    names = _tunable(target, score, shared=shared)
    fits = [fits_of(family, settings, shared=shared) for settings in drawn]
    train = KnownTargets.from_dags(data.graphs["train"], data.schema, names, exclude)
    fold_B = _folds(train.dags, folds, seed)
    fitted = _cross_validated(fits, train, fold_B, data.schema.sizes(), score, seed)
    values = list(track(fitted, "trials", total=len(drawn) * folds))
    found = [
        Trial(settings, tuple(values[folds * row : folds * (row + 1)]))
        for row, settings in enumerate(drawn)
    ]
    sign = -1 if score.goal is Goal.MAXIMIZE else 1
    ranked = sorted(found, key=lambda trial: (np.isnan(trial.mean), sign * trial.mean))
    best = FittedSurrogate.fit(
        data,
        family,
        target=names,
        exclude=exclude,
        seed=seed,
        settings=ranked[0].settings,
        shared=shared,
    )
    notes = {
        "trials": len(ranked),
        "folds": folds,
        "score": score.name,
        "settings": ranked[0].settings,
    }
    tuned = replace(best, notes={**best.notes, "tuning": notes})
    return Tuning(tuned, score.name, tuple(ranked))


def _tunable(
    target: str | Sequence[str], score: PredictionScore, *, shared: bool
) -> tuple[str, ...]:
    """Return the targets. Raises UsageError where one choice of settings cannot serve them."""
    names = (target,) if isinstance(target, str) else tuple(dict.fromkeys(target))
    if not names:
        raise UsageError("A surrogate predicts something; name at least one target.")
    if len(names) > 1 and not shared:
        raise UsageError(
            f"{len(names)} targets are to be tuned, {', '.join(names)}, and each has a model with "
            "settings of its own; tune one at a time, or one network for all with 'shared'."
        )
    if len(names) > 1 and score.name == "mae":
        raise UsageError(
            "'mae' has the unit of its target, so that it has no mean over several; choose by "
            "another score, such as 'mape'."
        )
    return names


def scored(surrogate: FittedSurrogate, data: GraphDataset) -> FittedSurrogate:
    """Return a surrogate whose notes, and card, say how good it is on the test part.

    So do those of its further targets.
    """
    found = surrogate.evaluate(data)
    figures = {score.name: found.scores[score.name].value for score in SCORES}
    evaluated = {"test": found.graphs, "scores": figures, "evaluation": found.to_dict()}
    others = tuple(scored(one, data) for one in surrogate.others)
    return replace(surrogate, notes={**surrogate.notes, **evaluated}, others=others)


def _folds(dags: Sequence[DAG], folds: int, seed: int) -> np.ndarray:
    """Return the fold of each graph, int64 (B,); equal graphs are in one.

    Raises:
        UsageError: If there are fewer distinct graphs than twice the folds.
    """
    from sklearn.model_selection import GroupKFold

    hashes = np.array([graph_hash(dag) for dag in dags])
    if len(set(hashes)) < 2 * folds:
        raise UsageError(
            f"{len(set(hashes))} distinct training graphs are too few for {folds} folds; use fewer "
            "folds or more graphs."
        )
    fold_B = np.empty(len(hashes), dtype=np.int64)
    splits = GroupKFold(folds, shuffle=True, random_state=seed % 2**32)
    for fold, (_, held) in enumerate(splits.split(hashes, groups=hashes)):
        fold_B[held] = fold
    return fold_B


def _cross_validated(
    fits: Sequence[SharedFit],
    train: KnownTargets,
    fold_B: np.ndarray,
    sizes: GraphSizes,
    score: PredictionScore,
    seed: int,
) -> Iterator[float]:
    for fit in fits:
        for fold in range(int(fold_B.max()) + 1):
            inside = train.rows(np.flatnonzero(fold_B != fold))
            held = train.rows(np.flatnonzero(fold_B == fold))
            models = fit(inside.dags, inside.target_B, sizes, seed)
            found = [
                _score(model, *held.having(name), score)
                for name, model in zip(train.target_B, models, strict=True)
                if np.isfinite(held.target_B[name]).any()
            ]
            yield float(np.mean(found)) if found else float("nan")


def _score(
    model: SurrogateModel, dags: Sequence[DAG], target_B: np.ndarray, score: PredictionScore
) -> float:
    return float(scores(target_B, model.predict(dags), named=(score,))[score.name][0])
