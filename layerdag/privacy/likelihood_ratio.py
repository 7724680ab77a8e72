"""Attacks by likelihood ratio (LiRA), one attack over several models, and attacks on the schema.

Some graphs are likely under every model. Shadow models, trained as the target was but on other
graphs, say how likely each graph is without having been trained on, and the attack looks at what is
left (Carlini et al., "Membership Inference Attacks From First Principles", S&P 2022).

Where several models are attacked, a graph is a member for some and none for others. Scores of
different models are not on one scale, so pairs are compared within a model only, and rates are
taken of ranks within a model. Models share training graphs, so runs are resampled, each in all the
parts that it plays.

The schema of a checkpoint says what training graphs were like, so that open conditions of a request
can be drawn; its attacks need neither weights nor samples.

Letters: G real graphs (members of the target's training set first), M models, R resamples, S shadow
models.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float

from layerdag.dag.dag import DAG
from layerdag.errors import UsageError
from layerdag.privacy.membership import (
    REPLICATES,
    AttackResult,
    DetectionRate,
    Scores,
    attack_by_scores,
    detection_rates,
    with_members_held_out,
)
from layerdag.runtime.rng import numpy_generator
from layerdag.schema.schema import GraphSchema
from layerdag.statistics import (
    NORMAL_95,
    SampleSizeRequirement,
    auroc,
    bootstrap_weights,
    chance_half_width,
    resampled_wins,
)


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
        from scipy.stats import rankdata

        known_G = ~np.isnan(self.score_G)
        rank_G = np.full(self.score_G.size, np.nan)
        rank_G[known_G] = (rankdata(self.score_G[known_G]) - 0.5) / known_G.sum()
        return replace(self, score_G=rank_G)


def pooled_attack(
    name: str, what: str, models: Sequence[ModelScores], run_G: np.ndarray, seed: int = 0
) -> AttackResult | None:
    """Return how well a score separates members from others, within each of several models.

    ``run_G`` is the run of each graph, numbered from 0; runs are resampled.

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
    areas = [auroc(*_scores(model)) for model in models]
    auc = float(weight_M @ np.array(areas))
    silent = [chance_half_width(members, others) for members, others in sizes]
    rng = numpy_generator(seed, "pooled bootstrap", name)
    draw_RG = bootstrap_weights(rng, REPLICATES, int(run_G.max()) + 1)[:, run_G]
    above_R, pairs_R = np.zeros(REPLICATES), np.zeros(REPLICATES)
    for model in models:
        draw_RM, draw_RO = (draw_RG[:, side] for side in model.sides)
        above_R += resampled_wins(*_scores(model), draw_RM, draw_RO)
        pairs_R += draw_RM.sum(axis=1) * draw_RO.sum(axis=1)
    draws_R = np.where(pairs_R > 0, above_R / np.maximum(pairs_R, 1), 0.5)
    half = max(
        NORMAL_95 * float(draws_R.std(ddof=1)),
        float(np.sqrt(((weight_M * np.array(silent)) ** 2).sum())),
    )
    if any(model.shares_reference for model in models):
        half = float(np.hypot(half, NORMAL_95 * _spread_between(np.array(areas), weight_M)))
    members, others = (
        np.unique(np.concatenate([model.sides[side] for model in models])) for side in (0, 1)
    )
    rounds = _rounds(models)
    resampled = ("distinct runs", np.unique(run_G[others]).size)
    rates = _rates(name, rounds, seed)
    counts = (members.size, others.size)
    return AttackResult.from_auc(name, what, auc, half, counts, rounds, resampled, rates)


def _scores(model: ModelScores) -> Scores:
    members, others = model.sides
    return model.score_G[members], model.score_G[others]


def _spread_between(area_M: np.ndarray, weight_M: np.ndarray) -> float:
    """Return the standard error of the pooled AUROC by what sets models apart; 0 of one model.

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
    found: dict[int, list[float]] = {}
    for model in models:
        for graph in model.sides[side].tolist():
            found.setdefault(graph, []).append(float(model.score_G[graph]))
    return [found[graph] for graph in sorted(found)]


def _rates(name: str, rounds: Sequence[Scores], seed: int) -> tuple[DetectionRate, ...]:
    """Return the rates at few false positives; needs count distinct graphs."""
    others = rounds[0][1].size
    found = []
    for rate in detection_rates(name, rounds, seed):
        least = round(1 / rate.false_positive_rate)
        need = (
            None if rate.need is None else SampleSizeRequirement("held-out graphs", others, least)
        )
        found.append(replace(rate, need=need))
    return tuple(found)


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
    """Return which runs each shadow model is trained on: every run by half of the models."""
    order_SR = rng.permuted(np.tile(np.arange(num_shadows)[:, None], (1, num_runs)), axis=0)
    return order_SR < num_shadows // 2


def likelihood_ratio_attacks(
    target_loss_G: Float[np.ndarray, " G"], shadows: ShadowLosses, members: int, seed: int = 0
) -> tuple[AttackResult, ...]:
    """Return two attacks of somebody who has the weights and can train models like them.

    "likelihood_ratio_offline" has shadow models that were not trained on the graph: how many
    standard deviations its loss lies below theirs. "likelihood_ratio" also has models that were:
    the ratio of two normal densities with one variance. A model that is a little better or worse
    on all graphs reveals nothing, so every model's losses are taken relative to its median.

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


def scores_as_members(models: Sequence[ModelScores], members: int) -> tuple[ModelScores, ...]:
    """Return scores of what no model was trained on, the first ``members`` graphs as its members.

    These separate training and held-out graphs of a target only as far as they differ
    from each other, for both were left out.
    """
    posing_G = np.arange(models[0].score_G.size) < members
    return tuple(
        ModelScores(np.where(model.member_G, np.nan, model.score_G), posing_G) for model in models
    )


def _mean(loss_SG: np.ndarray) -> np.ndarray:
    """Return the mean over the models that have a loss; NaN where none has."""
    known_SG = ~np.isnan(loss_SG)
    count_G = known_SG.sum(axis=0)
    total_G = np.where(known_SG, loss_SG, 0.0).sum(axis=0)
    return np.where(count_G > 0, total_G / np.maximum(count_G, 1), np.nan)


def _variance(loss_SG: np.ndarray, mean_G: np.ndarray) -> np.ndarray:
    """Return the variance of each graph over models, drawn towards that over all graphs.

    With few models the variance of one graph is poorly known (S&P 2022, section VI-C).
    """
    square_SG = (loss_SG - mean_G) ** 2
    known_SG = ~np.isnan(square_SG)
    count_G = known_SG.sum(axis=0)
    total_G = np.where(known_SG, square_SG, 0.0).sum(axis=0)
    free = max(float(np.maximum(count_G - 1, 0).sum()), 1.0)
    over_all = max(float(total_G.sum()) / free, np.finfo(np.float64).tiny)
    return (PRIOR_MODELS * over_all + total_G) / (PRIOR_MODELS + np.maximum(count_G - 1, 0))


def _ranked_last(score_G: np.ndarray) -> np.ndarray:
    known_G = ~np.isnan(score_G)
    lowest = score_G[known_G].min(initial=0.0) - 1.0
    return np.where(known_G, score_G, lowest)


def schema_attacks(
    schema: GraphSchema, train: Sequence[DAG], held_out: Sequence[DAG]
) -> tuple[AttackResult, ...]:
    """Return the attacks of somebody who has the schema alone; none if it has no table.

    "schema_lookup" asks whether the table has an entry for the conditions of a graph,
    "schema_density" how much weight it gives to them. The second also says by how much training and
    held-out graphs differ in themselves.
    """
    table = schema.condition_table
    if not table.cells or not train or not held_out:
        return ()
    members, others = _encoded(schema, train), _encoded(schema, held_out)
    found = (table.holds(*members).astype(np.float64), table.holds(*others).astype(np.float64))
    weight = (table.log_density(*members), table.log_density(*others))
    said = (
        ("schema_lookup", "an entry of the schema for its conditions", found),
        ("schema_density", "weight of its conditions, by the schema", weight),
    )
    return tuple(
        with_members_held_out(attack_by_scores(name, what, [scores], 0), scores[1], 0)
        for name, what, scores in said
    )


def _encoded(schema: GraphSchema, dags: Sequence[DAG]) -> tuple[np.ndarray, np.ndarray]:
    known = set(schema.condition_names)
    rows = [{k: v for k, v in dag.conditions.items() if k in known} for dag in dags]
    numeric_BC, category_BM = schema.encode_conditions(rows)
    return category_BM.numpy(), numeric_BC.double().numpy()
