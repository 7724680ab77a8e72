"""The two reports of a release: what anybody may see, and what the owner sees."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from layerdag._version import __version__
from layerdag.api import attribute_views
from layerdag.api.publication._evaluation import SampleEvaluation
from layerdag.api.publication._settings import ReleaseSettings
from layerdag.api.publication._split import Need
from layerdag.api.publication._verdict import Outcome, ReleaseVerdict
from layerdag.api.publication.drawing import KEPT, Drawn
from layerdag.api.publication.reading import FoundJobs
from layerdag.api.stages import picture_of, vocabularies
from layerdag.codec import repair_in_words
from layerdag.datasets import GraphDataset
from layerdag.evaluation.privacy import Verdict
from layerdag.report import (
    Answer,
    ReportContent,
    SummaryRow,
    attribute_shares,
    structure_distributions,
)
from layerdag.sampling import GeneratedGraph
from layerdag.surrogates import REAL, SYNTHETIC
from layerdag.viz import Picture, interval, number, percent

AS_REAL, CLOSE = 1.25, 2.5
_TONES = {Outcome.YES: "good", Outcome.RESERVED: "fair", Outcome.NO: "poor"}
_SHORT = {Outcome.YES: "yes", Outcome.RESERVED: "yes, with a reserve", Outcome.NO: "no"}
CAVEATS = (
    "What these attacks do not find, another one may; none of them is a proof of anonymity.",
    "More samples can only reveal more: the figures hold for this number of samples.",
    "Structure and sizes of the samples are like those of the real jobs: who knows that a family "
    "of models was traced learns how such jobs look.",
    "The weights and the table of conditions are not part of the release and were not made for it.",
)


@dataclass(frozen=True, eq=False)
class Results:
    """Everything that the stages found."""

    settings: ReleaseSettings
    jobs: FoundJobs
    data: GraphDataset | None
    needs: tuple[Need, ...]
    drawn: Drawn | None
    kept: tuple[GeneratedGraph, ...]
    evaluation: SampleEvaluation | None
    verdict: ReleaseVerdict
    seconds: Mapping[str, float]
    training: Mapping[str, object]


def public_content(results: Results) -> ReportContent:
    """Return the report that goes out with the samples: no figure of a single real job."""
    evaluation, verdict = results.evaluation, results.verdict
    return ReportContent(
        title="Synthetic execution traces: what may be shared",
        lead=verdict.line,
        answers=tuple(_answers(results)),
        summary=tuple(_summary(results)),
        structure=evaluation.structure if evaluation else None,
        novelty=evaluation.novelty if evaluation else None,
        leaks=evaluation.leaks if evaluation else (),
        similarity=evaluation.similarity if evaluation else None,
        transfer=evaluation.transfer if evaluation else None,
        target="the step time in seconds",
        repairs=_repairs(evaluation),
        pictures=_samples_drawn(results),
        provenance=tuple(_provenance(results)),
        caveats=CAVEATS,
    )


def owners_content(results: Results) -> ReportContent:
    """Return the report for the owner: the same, with real graphs, weights and schema."""
    content = public_content(results)
    data, evaluation = results.data, results.evaluation
    if data is None or evaluation is None:
        return content
    dags = [sample.dag for sample in results.kept]
    views = attribute_views(data.schema)
    sets = (data.graphs["train"], data.held_out, dags)
    return replace(
        content,
        title="Release: the owner's report (not to be shared)",
        real_structure=evaluation.real_structure,
        weight_attacks=evaluation.weights,
        distributions=structure_distributions(*sets, views),
        shares=attribute_shares(*sets, views, vocabularies(data)),
        simulations=evaluation.simulations,
        systems=evaluation.systems,
    )


def _repairs(evaluation: SampleEvaluation | None) -> tuple[tuple[str, int], ...]:
    if evaluation is None:
        return ()
    return tuple((repair_in_words(name), count) for name, count in evaluation.repairs.items())


def _answers(results: Results) -> Iterator[Answer]:
    """Yield the three verdicts."""
    verdict = results.verdict
    reason = {
        Outcome.YES: "Nothing that was looked for was found, and there were enough graphs to look.",
        Outcome.RESERVED: f"Nothing was found, but {'; '.join(verdict.reserves)}.",
        Outcome.NO: f"{'; '.join(one.what for one in verdict.reasons)}.",
    }[verdict.outcome]
    yield Answer(
        "May it be shared?",
        _SHORT[verdict.outcome],
        _TONES[verdict.outcome],
        reason[:1].upper() + reason[1:],
        "membership" if results.evaluation and results.evaluation.leaks else "",
    )
    if results.evaluation is not None:
        yield _likeness(results.evaluation)
        yield _use(results)


def _likeness(evaluation: SampleEvaluation) -> Answer:
    """Return whether the samples are like real graphs."""
    question = "Is it like the real traces?"
    if evaluation.ratio is None:
        return Answer(
            question, "too few to tell", "fair", "There are fewer than 8 held-out graphs."
        )
    words = ("as real", "good") if evaluation.ratio <= AS_REAL else ("close", "fair")
    word, tone = words if evaluation.ratio <= CLOSE else ("far", "poor")
    return Answer(
        question,
        word,
        tone,
        f"The distance to held-out graphs is {number(evaluation.ratio, 2)} times that of as many "
        "real graphs, in the median over all metrics (1 is as near as real graphs are).",
        "similarity",
    )


def _use(results: Results) -> Answer:
    """Return whether predictors learn from the samples what they learn from real graphs."""
    question = "Is it useful?"
    assert results.evaluation is not None
    report = results.evaluation.transfer
    if report is None:
        need = results.needs[-1]
        return Answer(
            question, "too few to tell", "fair",
            f"There are {need.found} labeled held-out graphs, and {need.needed} are needed."
        )  # fmt: skip
    family = report.rows[0].family
    real, made = (report.row(family, one).scores["spearman"].mean for one in (REAL, SYNTHETIC))
    known = math.isfinite(real) and math.isfinite(made)
    tone = "good" if known and made >= 0.9 * real else "fair" if known and made >= 0.5 else "poor"
    word = {"good": "as real ones", "fair": "partly", "poor": "hardly"}[tone]
    return Answer(
        question,
        word,
        tone,
        f"A predictor of step times that learned from the samples orders {report.tested_on} real "
        f"jobs with a rank correlation of {number(made, 2)}; learned from real jobs, "
        f"{number(real, 2)}.",
        "usefulness",
    )


def _summary(results: Results) -> Iterator[SummaryRow]:
    """Yield what was looked for, and what it cost."""
    drawn, evaluation = results.drawn, results.evaluation
    if drawn is not None:
        yield SummaryRow("samples", f"{len(results.kept):,}", "", _price_in_words(drawn))
        yield from _rejected(drawn)
        yield SummaryRow(
            "nodes with numbers of a single real run",
            "0",
            "",
            f"{drawn.redrawn:,} nodes got other numbers of the same bins",
        )
    if evaluation is not None:
        yield SummaryRow(
            "samples that break a rule", percent(1 - evaluation.structure.validity),
            percent(1 - evaluation.real_structure.validity), "beside it, real held-out graphs",
        )  # fmt: skip
        if evaluation.ratio is not None:
            yield SummaryRow(
                "median ratio of distances",
                number(evaluation.ratio, 2),
                "1",
                f"without rejecting copies {number(evaluation.ratio_with_copies, 2)}",
            )
        yield from _attack_rows(evaluation)
        if evaluation.systems is not None or evaluation.simulations:
            share = len(evaluation.failed)
            yield SummaryRow("samples that did not simulate to their end", f"{share}", "0")
    for need in results.needs:
        note = f"needs {need.needed:,}: {'enough' if need.is_met else 'too few to tell'}"
        yield SummaryRow(f"graphs for {need.test}", f"{need.found:,} {need.part}", "", note)


def _price_in_words(drawn: Drawn) -> str:
    if drawn.price is None:
        return f"{len(drawn.outcomes):,} drawn, none kept"
    return f"{len(drawn.outcomes):,} drawn, {number(drawn.price, 2)} for each one kept"


def _rejected(drawn: Drawn) -> Iterator[SummaryRow]:
    """Yield a line on each reason of rejection."""
    for word, count in sorted(drawn.counts().items()):
        if word != KEPT:
            share = percent(count / len(drawn.outcomes))
            yield SummaryRow(f"drawn and rejected: {word}", f"{count:,}", "", f"{share} of all")


def _attack_rows(evaluation: SampleEvaluation) -> Iterator[SummaryRow]:
    """Yield nearness and attacks on all samples."""
    if not evaluation.leaks:
        return
    last = evaluation.leaks[-1]
    share = f"{percent(last.nearness.dcr_share)} {interval(last.nearness.interval)}"
    yield SummaryRow(
        "samples nearer to training than to held-out graphs",
        share,
        "50%",
        _verdict_word(last.nearness.verdict),
    )
    for attack in last.attacks:
        area = f"{number(attack.auc, 2)} {interval(attack.interval)}"
        beside = "0.5"
        if attack.holdout is not None:
            honest = attack.holdout
            beside = f"{number(honest.auc, 2)} {interval(honest.interval)} of held-out graphs"
        yield SummaryRow(
            f"membership attack, {attack.description}", area, beside, attack.in_words()
        )
    for read in last.inferences:
        yield SummaryRow(
            f"{read.name}: {read.description}",
            percent(read.of_training),
            f"{percent(read.of_held_out)} of held-out graphs",
            read.in_words(),
        )


def _verdict_word(verdict: Verdict) -> str:
    return "as near to both" if verdict is Verdict.CHANCE else verdict.value


def _samples_drawn(results: Results) -> tuple[Picture, ...]:
    """Return pictures of two samples of middling size."""
    if results.data is None or len(results.kept) < 2:
        return ()
    if not {"op", "type"} <= {attribute.name for attribute in results.data.schema.attributes}:
        return ()
    ordered = sorted(results.kept, key=lambda sample: sample.dag.num_nodes)
    chosen = (ordered[len(ordered) // 3], ordered[len(ordered) // 2])
    if chosen[1].dag.num_nodes > 400:
        return ()
    return tuple(picture_of(results.data, sample.dag, sample.name) for sample in chosen)


def _provenance(results: Results) -> Iterator[tuple[str, str]]:
    """Yield how the release was made, in words that say nothing of a single job."""
    yield "layerdag", __version__
    data = results.data
    if data is not None:
        train, held = len(data.graphs["train"]), len(data.held_out)
        yield "real graphs", f"{train:,} for training, {held:,} held out, split by run"
    if results.training:
        steps, best = results.training.get("steps"), results.training.get("best_step")
        yield "training", f"from {results.training.get('start')}, {steps} steps, best at {best}"
    if results.drawn is not None:
        yield "near copies", f"nearer than {number(results.drawn.threshold)} to a real graph"
    yield "seed", str(results.settings.seed)
    if results.seconds:
        yield "time", ", ".join(f"{name} {spent:.0f} s" for name, spent in results.seconds.items())


def needs_in_words(needs: Sequence[Need]) -> list[str]:
    """Return a line on each test."""
    return [need.sentence() for need in needs]
