"""The card that lies beside published weights."""

from collections.abc import Iterator

from layerdag._version import __version__
from layerdag.api.publication import ReleaseSettings
from layerdag.api.publication.training._weights_verdict import AuditedWeights
from layerdag.viz import interval, number


def model_card(audited: AuditedWeights, settings: ReleaseSettings) -> str:
    """Return the card as Markdown.

    Args:
        audited: Weights that may be published.
        settings: Of the release.
    """
    return "\n".join(_lines(audited, settings)) + "\n"


def _lines(audited: AuditedWeights, settings: ReleaseSettings) -> Iterator[str]:
    checkpoint, audit = audited.checkpoint, audited.audit
    assert checkpoint is not None
    assert audit is not None
    origin = checkpoint.meta.origin
    start = "random weights" if origin is None else f"{origin.name} (step {origin.step:,})"
    count = sum(parameter.numel() for parameter in checkpoint.model.parameters())
    yield "# Weights of a generator of synthetic graphs"
    yield ""
    yield audited.verdict.line
    yield ""
    yield "| | |"
    yield "|---|---|"
    yield f"| model | {checkpoint.spec.name}, {count:,} parameters, layerdag {__version__} |"
    yield "| learned from | the samples in `samples` of this folder, and from nothing else |"
    yield f"| started from | {start} |"
    yield f"| steps | {checkpoint.meta.step:,} |"
    if settings.license:
        yield f"| license | {settings.license} |"
    yield ""
    yield "Further samples: `layerdag sample checkpoint=weights num=100 out=more`. They were not"
    yield "checked: compare them with the samples here (`layerdag validate`)."
    yield ""
    yield "## What the weights give away"
    yield ""
    yield f"{audit.scored:,} real graphs, {audit.shadows} shadow models that went the same way"
    yield "(teacher, samples, student) on other halves of the real graphs. An area of .5 is chance,"
    yield "1 is certainty; in brackets the 95 % interval."
    yield ""
    yield "| attack | area under the curve | | on what it started from | graphs found (TPR) |"
    yield "|---|---|---|---|---|"
    for attack in audit.attacks:
        area = f"{number(attack.auc, 2)} {interval(attack.interval)}"
        rates = "; ".join(rate.in_words() for rate in attack.rates)
        start = "" if attack.holdout is None else number(attack.holdout.auc, 2)
        yield f"| {attack.description} | {area} | {attack.in_words()} | {start} | {rates} |"
    yield ""
    yield f"Of {audit.sampled} graphs drawn from the weights {audit.copied} are copies of a real"
    yield f"graph, and {audit.near} near copies."
    if audit.ratio is not None:
        yield f"Their distance to held-out real graphs is {number(audit.ratio, 2)} times that of"
        yield "as many real graphs, in the median over all metrics."
