"""Membership by likelihood ratio: is a graph likelier than it would be, had it not been trained on?

Some graphs are likely under every model. Shadow models, trained as the target was but on other
graphs, say how likely each graph is without having been trained on, and the attack looks at what is
left (Carlini et al., "Membership Inference Attacks From First Principles", S&P 2022).

Letters: S shadow models, G real graphs, members of the target's training set first.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from layerdag.errors import UsageError
from layerdag.evaluation.privacy._membership import Attack, attack_by_scores
from layerdag.evaluation.privacy._pooled import ModelScores

PRIOR_MODELS = 8.0
"""Models that the variance over all graphs counts for beside those of a graph itself."""


@dataclass(frozen=True, eq=False)
class ShadowLosses:
    """Losses of real graphs under shadow models.

    Attributes:
        loss_SG: Nats per node of each graph under each model; NaN where a model cannot express it.
        member_SG: Whether a model was trained on a graph; each graph is left out by two at least.

    Raises:
        UsageError: If fewer than two models left a graph out.
    """

    loss_SG: Float[np.ndarray, "S G"]
    member_SG: Bool[np.ndarray, "S G"]

    def __post_init__(self) -> None:
        fewest = int((~self.member_SG).sum(axis=0).min(initial=2))
        if fewest < 2:
            raise UsageError(
                f"A graph was left out by {fewest} of {len(self.member_SG)} shadow models, and two "
                "are needed; train more of them."
            )


def balanced_members(
    num_shadows: int, num_runs: int, rng: np.random.Generator
) -> Bool[np.ndarray, "S R"]:
    """Return which runs each shadow model is trained on: every run by half of the models.

    Args:
        num_shadows: Number of shadow models, S.
        num_runs: Number of runs, R; graphs of one run stay together.
        rng: Draws the halves.
    """
    order_SR = rng.permuted(np.tile(np.arange(num_shadows)[:, None], (1, num_runs)), axis=0)
    return order_SR < num_shadows // 2


def likelihood_ratio_attacks(
    target_loss_G: Float[np.ndarray, " G"], shadows: ShadowLosses, members: int, seed: int = 0
) -> tuple[Attack, ...]:
    """Return two attacks of somebody who has the weights and can train models like them.

    "likelihood_ratio_offline" has shadow models that were not trained on the graph: how many
    standard deviations its loss lies below theirs. "likelihood_ratio" also has models that were:
    the ratio of two normal densities with one variance. A model that is a little better or worse
    on all graphs tells nothing, so every model's losses are taken relative to its median.

    Args:
        target_loss_G: Nats per node of each graph under the attacked model; NaN where it cannot
            express the graph, which then scores lowest.
        shadows: The same of the shadow models.
        members: Number of training graphs of the target, which come first.
        seed: Of the bootstrap.

    Raises:
        UsageError: If there are no members, or no other graphs.
    """
    if not 0 < members < target_loss_G.size:
        raise UsageError(
            f"{members} of {target_loss_G.size} graphs are members; an attack needs both kinds."
        )
    return tuple(
        attack_by_scores(name, what, [(score_G[:members], score_G[members:])], seed)
        for name, what, score_G in _ratios(target_loss_G, shadows)
    )


def _ratios(
    target_loss_G: np.ndarray, shadows: ShadowLosses
) -> Iterator[tuple[str, str, np.ndarray]]:
    """Yield name, description and scores of the two attacks."""
    loss_G = target_loss_G - np.nanmedian(target_loss_G)
    loss_SG = shadows.loss_SG - np.nanmedian(shadows.loss_SG, axis=1, keepdims=True)
    out_SG = np.where(shadows.member_SG, np.nan, loss_SG)
    in_SG = np.where(shadows.member_SG, loss_SG, np.nan)
    mean_out_G, mean_in_G = _mean(out_SG), _mean(in_SG)
    variance_G = _variance(out_SG, mean_out_G)
    offline_G = (mean_out_G - loss_G) / np.sqrt(variance_G)
    online_G = ((loss_G - mean_out_G) ** 2 - (loss_G - mean_in_G) ** 2) / (2 * variance_G)
    models = len(loss_SG)
    yield (
        "likelihood_ratio_offline",
        f"likelihood by the weights, beside {models // 2} models not trained on the graph",
        _ranked_last(offline_G),
    )
    yield (
        "likelihood_ratio",
        f"likelihood by the weights, beside {models} models of which half were trained on it",
        _ranked_last(online_G),
    )


def shadows_as_targets(shadows: ShadowLosses) -> Mapping[str, tuple[ModelScores, ...]]:
    """Return, by attack, the scores of all graphs under each shadow model, by the other models.

    What a model cannot express, nobody can score under it: it is left out.

    Args:
        shadows: Losses under at least six models, each graph left out by half of them.

    Raises:
        UsageError: If there are too few models.
    """
    found: dict[str, list[ModelScores]] = {}
    for target in range(len(shadows.loss_SG)):
        others = np.arange(len(shadows.loss_SG)) != target
        left = ShadowLosses(shadows.loss_SG[others], shadows.member_SG[others])
        loss_G, member_G = shadows.loss_SG[target], shadows.member_SG[target]
        for name, _, score_G in _ratios(loss_G, left):
            known_G = np.where(np.isnan(loss_G), np.nan, score_G)
            found.setdefault(name, []).append(ModelScores(known_G, member_G))
        found.setdefault("likelihood", []).append(ModelScores(-loss_G, member_G))
    return {name: tuple(models) for name, models in found.items()}


def posing_as_members(models: Sequence[ModelScores], members: int) -> tuple[ModelScores, ...]:
    """Return scores of what no model was trained on, the first ``members`` graphs as its members.

    Training and held-out graphs of a target are told apart by these only as far as they differ
    from each other, for both were left out.
    """
    posing_G = np.arange(models[0].score_G.size) < members
    return tuple(
        ModelScores(np.where(model.member_G, np.nan, model.score_G), posing_G) for model in models
    )


def areas_over_shadows(shadows: ShadowLosses) -> Float[np.ndarray, " S"]:
    """Return the area under the curve of the offline attack on each shadow model, by the others.

    One target is one draw of what it was trained on; the mean over all models says what a model
    made in this way gives away.

    Args:
        shadows: Losses under at least four models.

    Raises:
        UsageError: If there are too few models.
    """
    models = np.arange(len(shadows.loss_SG))
    areas = []
    for target in models:
        others = models != target
        order_G = np.argsort(~shadows.member_SG[target], kind="stable")
        left = ShadowLosses(
            shadows.loss_SG[others][:, order_G], shadows.member_SG[others][:, order_G]
        )
        members = int(shadows.member_SG[target].sum())
        offline, _ = likelihood_ratio_attacks(shadows.loss_SG[target][order_G], left, members)
        areas.append(offline.auc)
    return np.array(areas)


def _mean(loss_SG: np.ndarray) -> np.ndarray:
    """Return the mean over the models that have a loss; NaN where none has."""
    known_SG = ~np.isnan(loss_SG)
    count_G = known_SG.sum(axis=0)
    total_G = np.where(known_SG, loss_SG, 0.0).sum(axis=0)
    return np.where(count_G > 0, total_G / np.maximum(count_G, 1), np.nan)


def _variance(loss_SG: np.ndarray, mean_G: np.ndarray) -> np.ndarray:
    """Return the variance of each graph over models, drawn towards that over all graphs.

    With few models the variance of one graph is hardly known (S&P 2022, section VI-C).
    """
    square_SG = (loss_SG - mean_G) ** 2
    known_SG = ~np.isnan(square_SG)
    count_G = known_SG.sum(axis=0)
    total_G = np.where(known_SG, square_SG, 0.0).sum(axis=0)
    free = max(float(np.maximum(count_G - 1, 0).sum()), 1.0)
    over_all = max(float(total_G.sum()) / free, np.finfo(np.float64).tiny)
    return (PRIOR_MODELS * over_all + total_G) / (PRIOR_MODELS + np.maximum(count_G - 1, 0))


def _ranked_last(score_G: np.ndarray) -> np.ndarray:
    """Return scores in which unknown ones are the lowest."""
    known_G = ~np.isnan(score_G)
    lowest = score_G[known_G].min(initial=0.0) - 1.0
    return np.where(known_G, score_G, lowest)
