"""The card that lies beside published weights."""

import statistics
from collections.abc import Sequence

from layerdag._version import __version__
from layerdag.api.publication import ReleaseSettings
from layerdag.api.publication.drawing import drawing_plan
from layerdag.api.publication.training._weights_audit import WeightsAudit
from layerdag.api.publication.training._weights_verdict import AuditedWeights
from layerdag.evaluation.privacy import Attack
from layerdag.training import LoadedCheckpoint
from layerdag.viz import interval, number

_CARD = """# Weights of a generator of synthetic graphs

{verdict}

| | |
|---|---|
{facts}

Further samples: `{command}`, drawn as for
the figures below. They were not checked: compare them with the samples here (`layerdag audit`).

## What the weights give away

{scored:,} real graphs, {shadows} shadow models that went the same way (teacher, samples,
student) on other halves of the real graphs. An area of .5 is chance, 1 is certainty; in
brackets the 95 % interval. Beside it, the same attack where nothing can leak: on the weights
that training started from, which saw none of these graphs; on the schema, with held-out graphs
that pose as training graphs.

| attack | area under the curve | | where nothing can leak | graphs found (TPR) |
|---|---|---|---|---|
{attacks}
{over_shadows}
Of {sampled} graphs drawn from the weights {copied} are copies of a real graph, and {near} near
copies.{ratio}
"""


def model_card(audited: AuditedWeights, settings: ReleaseSettings) -> str:
    """Return the card as Markdown.

    Args:
        audited: Weights that may be published.
        settings: Of the release.
    """
    checkpoint, audit = audited.checkpoint, audited.audit
    assert checkpoint is not None
    assert audit is not None
    return _CARD.format(
        verdict=audited.verdict.line,
        facts="\n".join(f"| {name} | {fact} |" for name, fact in _facts(checkpoint, settings)),
        command=_command(settings),
        scored=audit.scored,
        shadows=audit.shadows,
        attacks="\n".join(_row(attack) for attack in audit.attacks),
        over_shadows=_over_shadows(audit.over_shadows),
        sampled=audit.sampled,
        copied=audit.copied,
        near=audit.near,
        ratio=_ratio(audit),
    )


def _command(settings: ReleaseSettings) -> str:
    """Return what draws as the audit drew."""
    plan = drawing_plan(settings, 100, 0)
    return (
        "layerdag sample checkpoint=weights num=100 out=more "
        f"best_of={plan.best_of} temperature={plan.temperature:g}"
    )


def _facts(checkpoint: LoadedCheckpoint, settings: ReleaseSettings) -> list[tuple[str, str]]:
    """Return what the weights are, by name."""
    origin = checkpoint.meta.origin
    start = "random weights" if origin is None else f"{origin.name} (step {origin.step:,})"
    count = sum(parameter.numel() for parameter in checkpoint.model.parameters())
    beside = "" if settings.public is None else ", from public graphs"
    facts = [
        ("model", f"{checkpoint.spec.name}, {count:,} parameters, layerdag {__version__}"),
        ("learned from", f"the samples in `samples` of this folder{beside}, and from nothing else"),
        ("started from", start),
        ("steps", f"{checkpoint.meta.step:,}"),
    ]
    return [*facts, ("license", settings.license)] if settings.license else facts


def _row(attack: Attack) -> str:
    """Return the line of an attack."""
    area = f"{number(attack.auc, 2)} {interval(attack.interval)}"
    silent = "" if attack.holdout is None else number(attack.holdout.auc, 2)
    rates = "; ".join(rate.in_words() for rate in attack.rates)
    return f"| {attack.description} | {area} | {attack.in_words()} | {silent} | {rates} |"


def _over_shadows(areas: Sequence[float]) -> str:
    """Return what models that are made in this way give away, from as many of them."""
    if len(areas) < 2:
        return ""
    mean, spread = statistics.mean(areas), statistics.stdev(areas)
    return (
        f"\nEach shadow model attacked by the others: a mean area of {number(mean, 2)}, standard\n"
        f"deviation {number(spread, 2)}. Their samples were not sifted for copies.\n"
    )


def _ratio(audit: WeightsAudit) -> str:
    """Return how far their samples are from real graphs."""
    if audit.ratio is None:
        return ""
    return (
        f" Their distance to held-out real graphs is {number(audit.ratio, 2)} times that of as\n"
        f"many real graphs, in the median over all metrics; {number(audit.mean_ratio, 2)} times in "
        "the mean."
    )
