"""One attack on several models, whose scores of the same graphs are pooled.

Where several models are attacked, each on its own choice of training graphs, a graph is a member
for some and none for others. Scores of different models are not on one scale, so that pairs are
compared within a model only, and rates are taken of ranks within a model. Models share training
graphs, so that what is resampled are runs, each in all the parts that it plays: a run that is
always near to samples counts as a member and as none alike, and its share cancels out.

Letters: M models, G real graphs, R resamples.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import rankdata

from layerdag._runtime import numpy_generator
from layerdag.evaluation.metrics import NORMAL_95, Interval, bootstrap_weights
from layerdag.evaluation.privacy._membership import (
    REPLICATES,
    Attack,
    area_under_curve,
    true_positive_rate,
)
from layerdag.evaluation.privacy._rates import DetectionRate, Scores, detection_rates
from layerdag.evaluation.privacy._verdict import Need, Verdict, chance_half_width, needed


@dataclass(frozen=True, eq=False)
class ModelScores:
    """Scores of real graphs under one model.

    Attributes:
        score_G: Higher for what was likelier trained on; NaN for what is not scored here.
        member_G: Whether the model was trained on the graph.
        shares_reference: Whether all scores compare with the same few real graphs, which no other
            model's scores do: what these few happen to be moves all of them together.
    """

    score_G: np.ndarray
    member_G: np.ndarray
    shares_reference: bool = False

    @property
    def sides(self) -> tuple[np.ndarray, np.ndarray]:
        """Numbers of the scored members, and of the other scored graphs."""
        known_G = ~np.isnan(self.score_G)
        return np.flatnonzero(known_G & self.member_G), np.flatnonzero(known_G & ~self.member_G)

    @property
    def is_comparable(self) -> bool:
        """Whether there is a graph on either side."""
        return all(side.size for side in self.sides)

    def ranked(self) -> "ModelScores":
        """Return the scores as shares of the scored graphs that lie below, ties in the middle."""
        known_G = ~np.isnan(self.score_G)
        rank_G = np.full(self.score_G.size, np.nan)
        rank_G[known_G] = (rankdata(self.score_G[known_G]) - 0.5) / known_G.sum()
        return replace(self, score_G=rank_G)


def pooled_attack(
    name: str, what: str, models: Sequence[ModelScores], run_G: np.ndarray, seed: int = 0
) -> Attack | None:
    """Return how well a score tells members from others, within each of several models.

    Args:
        name: Of the attack.
        what: The score.
        models: The scores under each model.
        run_G: The run of each graph, numbers from 0; what is resampled.
        seed: Of the bootstrap.

    Returns:
        The attack, its graphs counted once whatever the number of models; None if no model has
        graphs on both sides.
    """
    models = [model for model in models if model.is_comparable]
    if not models:
        return None
    sizes = [tuple(side.size for side in model.sides) for model in models]
    weight_M = np.array([members * others for members, others in sizes], dtype=float)
    weight_M /= weight_M.sum()
    areas = [area_under_curve(*_scores(model)) for model in models]
    auc = float(weight_M @ np.array(areas))
    silent = [chance_half_width(members, others) for members, others in sizes]
    draws_R = _bootstrap(name, models, run_G, seed)
    half = max(
        NORMAL_95 * float(draws_R.std(ddof=1)),
        float(np.sqrt(((weight_M * np.array(silent)) ** 2).sum())),
    )
    if any(model.shares_reference for model in models):
        half = float(np.hypot(half, NORMAL_95 * _spread_between(np.array(areas), weight_M)))
    interval = Interval(max(auc - half, 0.0), min(auc + half, 1.0))
    verdict = Verdict.of(interval)
    members, others = (_distinct(models, side) for side in (0, 1))
    rounds = _rounds(models)
    return Attack(
        name=name,
        description=what,
        auc=auc,
        interval=interval,
        true_positive_rate=float(np.mean([true_positive_rate(*each) for each in rounds])),
        members=members.size,
        non_members=others.size,
        verdict=verdict,
        need=_need(auc, half, np.unique(run_G[others]).size, verdict),
        rates=_rates(name, rounds, seed),
    )


def _scores(model: ModelScores) -> Scores:
    members, others = model.sides
    return model.score_G[members], model.score_G[others]


def _distinct(models: Sequence[ModelScores], side: int) -> np.ndarray:
    """Return the graphs that are on one side under some model."""
    found: np.ndarray = np.unique(np.concatenate([model.sides[side] for model in models]))
    return found


def _need(auc: float, half: float, runs: int, verdict: Verdict) -> Need | None:
    """Return how many runs a verdict would take."""
    if verdict is not Verdict.TOO_FEW:
        return None
    return Need("distinct runs", runs, needed(auc, half, runs))


def _bootstrap(
    name: str, models: Sequence[ModelScores], run_G: np.ndarray, seed: int
) -> np.ndarray:
    """Return the pooled area of resampled runs."""
    rng = numpy_generator(seed, "pooled bootstrap", name)
    draw_RG = bootstrap_weights(rng, REPLICATES, int(run_G.max()) + 1)[:, run_G]
    above_R, pairs_R = np.zeros(REPLICATES), np.zeros(REPLICATES)
    for model in models:
        members, others = model.sides
        score_M1, score_O = model.score_G[members][:, None], model.score_G[others]
        above_MO = (score_M1 > score_O) + 0.5 * (score_M1 == score_O)
        draw_RM, draw_RO = draw_RG[:, members], draw_RG[:, others]
        above_R += ((draw_RM @ above_MO) * draw_RO).sum(axis=1)
        pairs_R += draw_RM.sum(axis=1) * draw_RO.sum(axis=1)
    found: np.ndarray = np.where(pairs_R > 0, above_R / np.maximum(pairs_R, 1), 0.5)
    return found


def _spread_between(area_M: np.ndarray, weight_M: np.ndarray) -> float:
    """Return the standard error of the pooled area by what sets models apart; 0 of one model.

    Resampling runs does not resample what scores are compared with. That differs between models,
    and so do their areas. They differ by the runs scored, too, so that this errs on the wide side.
    """
    count = area_M.size
    if count < 2:
        return 0.0
    away_M = weight_M * (area_M - weight_M @ area_M)
    return float(np.sqrt((away_M**2).sum() * count / (count - 1)))


def _rounds(models: Sequence[ModelScores]) -> list[Scores]:
    """Return rounds in which each graph has one score as a member and one as none, by rank.

    A graph with fewer scores on a side than another begins anew with its first one there.
    """
    ranked = [model.ranked() for model in models]
    of_members, of_others = (_by_graph(ranked, side) for side in (0, 1))
    count = max(len(found) for side in (of_members, of_others) for found in side)
    return [
        (
            np.array([found[i % len(found)] for found in of_members]),
            np.array([found[i % len(found)] for found in of_others]),
        )
        for i in range(count)
    ]


def _by_graph(models: Sequence[ModelScores], side: int) -> list[list[float]]:
    """Return the scores of each graph that is on one side under some model."""
    found: dict[int, list[float]] = {}
    for model in models:
        for graph in model.sides[side].tolist():
            found.setdefault(graph, []).append(float(model.score_G[graph]))
    return [found[graph] for graph in sorted(found)]


def _rates(name: str, rounds: Sequence[Scores], seed: int) -> tuple[DetectionRate, ...]:
    """Return the rates at few false positives; what cannot be told is about distinct graphs."""
    others = rounds[0][1].size
    found = []
    for rate in detection_rates(name, rounds, seed):
        least = round(1 / rate.false_positive_rate)
        need = None if rate.need is None else Need("held-out graphs", others, least)
        found.append(replace(rate, need=need))
    return tuple(found)
