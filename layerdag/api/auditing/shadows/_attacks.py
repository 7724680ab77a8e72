"""The white-box attacks of an audit: by likelihood, and by likelihood ratio with shadow models."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from layerdag.api.auditing.shadows._kept import ShadowModel
from layerdag.api.auditing.shadows._recipe import Recipe, recipe_of
from layerdag.api.auditing.shadows._settings import ShadowSettings
from layerdag.api.auditing.shadows._training import Pool, Tell, shadow_models
from layerdag.datasets import GraphDataset
from layerdag.evaluation.privacy import (
    Attack,
    ModelScores,
    ShadowLosses,
    attack_by_scores,
    likelihood_ratio_attacks,
    pooled_attack,
    posing_as_members,
    shadows_as_targets,
)
from layerdag.training import LoadedCheckpoint


@dataclass(frozen=True, eq=False)
class ShadowReport:
    """How shadow models were trained, and what models made in this way give away.

    Attributes:
        models: Number of shadow models.
        graphs: Training graphs of each, the median.
        runs: Distinct programs among training and held-out graphs, of which halves were drawn.
        start: What they started from, in words.
        is_recorded: Whether the checkpoint says how it was trained; else the usual settings were
            taken.
        steps: Of each, the median.
        planned_steps: That make as many passes over the graphs as the checkpoint made.
        seconds: That training them took.
        as_targets: Each model attacked by the others, pooled.
    """

    models: int
    graphs: int
    runs: int
    start: str
    is_recorded: bool
    steps: int
    planned_steps: int
    seconds: float
    as_targets: tuple[Attack, ...]

    @property
    def fraction_of_passes(self) -> float:
        """Passes over its graphs that a shadow model made, as a fraction of the checkpoint's."""
        return min(self.steps / max(self.planned_steps, 1), 1.0)

    def in_words(self) -> str:
        """Return how they were trained, as a line."""
        passes = "as many passes over its graphs as the checkpoint made"
        if self.fraction_of_passes < 1:
            passes = f"{self.fraction_of_passes:.0%} of the passes that the checkpoint made"
        recipe = "" if self.is_recorded else ", with the usual settings (it records none)"
        return (
            f"{self.models} shadow models of {self.graphs:,} graphs, halves of {self.runs:,} "
            f"distinct ones, from {self.start}: {self.steps:,} steps each, {passes}{recipe}; "
            f"{self.seconds:.0f} s. Each as the target of the others:"
        )


def shadow_attacks(
    checkpoint: LoadedCheckpoint, data: GraphDataset, settings: ShadowSettings, tell: Tell
) -> tuple[tuple[Attack, ...], ShadowReport]:
    """Attack weights by likelihood ratio, with shadow models that are trained now.

    Args:
        checkpoint: Whose weights are attacked.
        data: Training and held-out graphs in its codes, with its conditions.
        settings: How many shadow models, and for how long.
        tell: Is told of each model in a line.

    Returns:
        The attacks offline and online. Beside each stands the same one where nothing can leak: on
        each shadow model by the others, the checkpoint's training graphs against its held-out
        ones, of those that the model left out.

    Raises:
        UsageError: If there are too few graphs, or the start is not at hand.
    """
    pool = Pool.of(data, settings.seed)
    recipe = recipe_of(checkpoint, data, settings.init)
    models, member_SG, planned = shadow_models(checkpoint, pool, recipe, settings, tell)
    shadows = ShadowLosses(np.stack([model.loss_K for model in models]), member_SG[:, pool.scored])
    members, run_K, seed = pool.scored_members, pool.run_G[pool.scored], settings.seed
    loss_K = pool.losses_under(checkpoint.model)
    targets = shadows_as_targets(shadows)
    found = tuple(
        replace(attack, holdout=_honest(attack, targets[attack.name], members, run_K, seed))
        for attack in likelihood_ratio_attacks(loss_K, shadows, members, seed)
    )
    pooled = (
        pooled_attack(name, _as_target(len(models)), scores, run_K, seed)
        for name, scores in targets.items()
    )
    report = _report(models, member_SG, pool, recipe, planned)
    return found, replace(report, as_targets=tuple(each for each in pooled if each is not None))


def attacks_on_losses(
    loss_K: np.ndarray, shadows: ShadowLosses, members: int, seed: int
) -> tuple[Attack, ...]:
    """Return the attacks on the losses of graphs under one model: by likelihood, and by ratio.

    Args:
        loss_K: Nats per node, members first; NaN where the model cannot express a graph.
        shadows: Losses under shadow models.
        members: Number of members.
        seed: Of the bootstrap.
    """
    known_K = np.where(np.isnan(loss_K), np.inf, loss_K)
    what = "likelihood of the graph, by the weights"
    scores = [(-known_K[:members], -known_K[members:])]
    return (
        attack_by_scores("likelihood", what, scores, seed),
        *likelihood_ratio_attacks(loss_K, shadows, members, seed),
    )


def _honest(
    attack: Attack, models: Sequence[ModelScores], members: int, run_K: np.ndarray, seed: int
) -> Attack | None:
    """Return an attack where nothing can leak."""
    what = f"graphs that {len(models)} shadow models left out, each model as the target"
    left_out = posing_as_members(models, members)
    return pooled_attack(attack.name, what, left_out, run_K, seed)


def _as_target(models: int) -> str:
    return f"each of {models} shadow models as the target of the others"


def _report(
    models: Sequence[ShadowModel],
    member_SG: np.ndarray,
    pool: Pool,
    recipe: Recipe,
    planned: int,
) -> ShadowReport:
    """Return how the models were trained."""
    further = len(pool.data.graphs["train"]) - len(pool.data.members)
    return ShadowReport(
        models=len(models),
        graphs=further + int(np.median(member_SG.sum(axis=1))),
        runs=int(pool.run_G.max()) + 1,
        start="random weights" if recipe.init is None else "the checkpoint's own start",
        is_recorded=recipe.is_recorded,
        steps=int(np.median([model.steps for model in models])),
        planned_steps=planned,
        seconds=sum(model.seconds for model in models),
        as_targets=(),
    )
