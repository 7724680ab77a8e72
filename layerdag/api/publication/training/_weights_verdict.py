"""From the white-box audit to one line: may the weights be published?"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from layerdag.api.publication import Outcome, ReleaseSettings, Work
from layerdag.api.publication.training._public import public_graphs
from layerdag.api.publication.training._shadows import RealGraphs
from layerdag.api.publication.training._student import student_data, trained_student
from layerdag.api.publication.training._weights_audit import WeightsAudit, audited_weights
from layerdag.datasets import GraphDataset
from layerdag.errors import LayerdagError
from layerdag.evaluation.privacy import Verdict
from layerdag.report.sections import attack_words
from layerdag.sampling import GeneratedGraph
from layerdag.training import LoadedCheckpoint
from layerdag.viz import interval, number

MOST_AREA = 0.6
"""Area under the curve that the interval of every attack must lie below."""


@dataclass(frozen=True)
class WeightsVerdict:
    """The decision on the weights, which are published beside the samples or not at all.

    Attributes:
        outcome: Whether they may be published.
        reasons: Why not, or why with a reserve, in clauses.
        found: What was looked for and not found, in clauses.
        remedies: What helps, each with its cost, as sentences.
    """

    outcome: Outcome
    reasons: tuple[str, ...] = ()
    found: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """The verdict of one line."""
        if self.outcome is Outcome.NO:
            text = "; ".join(self.reasons)
        elif self.outcome is Outcome.RESERVED:
            text = f"{'; '.join(self.found)}. But {'; '.join(self.reasons)}"
        else:
            text = "; ".join(self.found)
        return f"The weights {self.outcome.value}: {text}."


@dataclass(frozen=True, eq=False)
class AuditedWeights:
    """The student of a release with what was found on it.

    Attributes:
        checkpoint: The student; None if there are too few samples to train one.
        audit: What its weights give away; None as above.
        verdict: Whether they may be published.
    """

    checkpoint: LoadedCheckpoint | None
    audit: WeightsAudit | None
    verdict: WeightsVerdict

    @property
    def released(self) -> bool:
        """Whether the weights may be published."""
        return self.verdict.outcome is not Outcome.NO


def verdict_on_weights(audit: WeightsAudit, num_samples: int) -> WeightsVerdict:
    """Decide; stricter than on samples, for weights cannot be called back and answer any question.

    Args:
        audit: What was found.
        num_samples: Number of samples that the student learned from.
    """
    refused = tuple(_refused(audit))
    if refused:
        return WeightsVerdict(Outcome.NO, refused, (), tuple(_remedies(num_samples)))
    doubts = tuple(
        f"“{attack_words(attack.name)}” cannot be told from chance ({attack.in_words()})"
        for attack in audit.attacks
        if attack.verdict is not Verdict.CHANCE
    )
    area = max(audit.attacks, key=lambda attack: attack.interval.high)
    found = (
        f"a model of the {num_samples} published samples alone, attacked with {audit.shadows} "
        f"shadow models, largest area {number(area.auc, 2)} {interval(area.interval)} "
        f"(“{attack_words(area.name)}”); no copy among {audit.sampled} graphs drawn from it"
    )
    return WeightsVerdict(Outcome.RESERVED if doubts else Outcome.YES, doubts, (found,))


def _refused(audit: WeightsAudit) -> Iterator[str]:
    """Yield why the weights must stay."""
    for attack in audit.attacks:
        name = attack_words(attack.name)
        area = f"area {number(attack.auc, 2)} {interval(attack.interval)}"
        if attack.verdict is Verdict.LEAKS:
            yield f"the attack “{name}” tells which graphs were trained on ({area})"
        elif any(rate.is_above_chance for rate in attack.rates):
            reported = next(rate for rate in attack.rates if rate.is_above_chance)
            yield f"the attack “{name}” is sure of some training graphs ({reported.in_words()})"
        elif attack.interval.high > MOST_AREA:
            yield (
                f"too few graphs to rule out that the attack “{name}” succeeds ({area}; the "
                f"interval must end below {MOST_AREA})"
            )
    if audit.copied:
        yield f"{audit.copied} of {audit.sampled} graphs drawn from them copy a real graph"


def _remedies(num_samples: int) -> Iterator[str]:
    """Yield what helps against a leak in the weights, and what it costs."""
    yield (
        f"--num {max(num_samples // 2, 1)} trains the weights on fewer samples; costs similarity, "
        "and the audit again."
    )
    yield "More runs: both the audit and the model gain; costs collecting."
    yield "Without --with-weights the samples go out as they are, and the weights stay with you."


def audited_student(
    settings: ReleaseSettings,
    data: GraphDataset,
    real: RealGraphs,
    kept: Sequence[GeneratedGraph],
    work: Work,
    seconds: float,
) -> AuditedWeights:
    """Train a student on the published samples, attack its weights, and decide.

    Args:
        settings: Of the release.
        data: The split real graphs.
        real: The same in words and numbers.
        kept: The published samples.
        work: The private folder.
        seconds: Most seconds that training one model may take.
    """
    try:
        samples = student_data(kept, settings.seed)
        real = replace(real, public=public_graphs(settings))
        student = trained_student(settings, samples, work, seconds, real.public)
        audit = audited_weights(settings, data, real, student, samples, work, seconds)
    except LayerdagError as error:  # the samples go out all the same
        reason = f"they could not be audited: {str(error).rstrip('.')}"
        return AuditedWeights(None, None, WeightsVerdict(Outcome.NO, (reason,)))
    return AuditedWeights(student, audit, verdict_on_weights(audit, len(kept)))
