"""How samples of every model of a release are drawn, so that shadow models draw as targets do."""

from layerdag.api.publication import ReleaseSettings
from layerdag.sampling import GenerationSettings

ONE_DRAW, PLAIN_TEMPERATURE = 1, 1.0
"""Of models for weights: what a posterior of few graphs chooses is less like real jobs than any
draw, and a sharp model of sharp samples repeats their most frequent parts
(docs/dev/experiments.md, "Weights for a release")."""


def drawing_plan(settings: ReleaseSettings, num: int, seed: int) -> GenerationSettings:
    """Return how to draw; what the release leaves open is the model's own without weights.

    Args:
        settings: Of the release.
        num: Number of samples.
        seed: Of the first one.
    """
    best_of, temperature = settings.best_of, settings.temperature
    if settings.with_weights:
        best_of = ONE_DRAW if best_of is None else best_of
        temperature = PLAIN_TEMPERATURE if temperature is None else temperature
    return GenerationSettings(
        num=num,
        seed=seed,
        max_nodes=settings.max_nodes,
        best_of=best_of,
        temperature=temperature,
    )
