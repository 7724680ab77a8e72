"""The two reports of a release: what anybody may see, and what the owner sees."""

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
from layerdag.api.publication.training import AuditedWeights
from layerdag.api.stages import (
    can_be_drawn,
    neighbors_of,
    picture_of,
    systems,
    timelines_of,
    vocabularies,
)
from layerdag.codec import repair_in_words
from layerdag.datasets import GraphDataset
from layerdag.evaluation.privacy import Attack, Verdict
from layerdag.graph import DAG
from layerdag.report import (
    MAY_BE_SHARED,
    Answer,
    ReportContent,
    SummaryRow,
    Timeline,
    attribute_shares,
    likeness,
    structure_distributions,
    usefulness_of,
)
from layerdag.sampling import GeneratedGraph
from layerdag.viz import Picture, interval, number, percent, percents

_TONES = {Outcome.YES: "good", Outcome.RESERVED: "fair", Outcome.NO: "poor"}
_SHORT = {Outcome.YES: "yes", Outcome.RESERVED: "yes, with a reserve", Outcome.NO: "no"}
CAVEATS = (
    "What these attacks do not find, another one may; none of them is a proof of anonymity.",
    "More samples can only reveal more: the figures hold for this number of samples.",
    "Structure and sizes of the samples are like those of the real jobs: who knows that a family "
    "of models was traced learns how such jobs look.",
)
SAMPLES_ALONE = (
    "The weights and the table of conditions are not part of the release and were not made for it."
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
    weights: AuditedWeights | None = None

    @property
    def gives_weights(self) -> bool:
        """Whether weights are published beside the samples."""
        published = self.verdict.outcome is not Outcome.NO
        return published and self.weights is not None and self.weights.released


def public_content(results: Results) -> ReportContent:
    """Return the report that goes out with the samples: no figure of a single real job."""
    evaluation = results.evaluation
    return ReportContent(
        title="Synthetic execution traces: what may be shared",
        lead=_lead(results),
        answers=tuple(_answers(results)),
        summary=tuple(_summary(results)),
        structure=evaluation.structure if evaluation else None,
        novelty=evaluation.novelty if evaluation else None,
        leaks=evaluation.leaks if evaluation else (),
        similarity=evaluation.similarity if evaluation else None,
        transfer=evaluation.transfer if evaluation else None,
        target="the step time in seconds",
        repairs=_repairs(evaluation),
        timelines=_timelines(results, ()),
        simulated_on=next(iter(systems())),
        pictures=_samples_drawn(results),
        provenance=tuple(_provenance(results)),
        caveats=(*CAVEATS, *(() if results.gives_weights else (SAMPLES_ALONE,))),
        weight_attacks=_published_weight_attacks(results),
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
    pairs = neighbors_of(data, dags)
    return replace(
        content,
        title="Release: the owner's report (not to be shared)",
        real_structure=evaluation.real_structure,
        weight_attacks=evaluation.weights,
        distributions=structure_distributions(*sets, views),
        shares=attribute_shares(*sets, views, vocabularies(data)),
        simulations=evaluation.simulations,
        systems=evaluation.systems,
        neighbors=pairs,
        timelines=_timelines(results, data.held_out),
        pictures=() if pairs else content.pictures,
    )


def _published_weight_attacks(results: Results) -> tuple[Attack, ...]:
    """Return the attacks on the weights that are published, if any are."""
    audited = results.weights
    if audited is None or audited.audit is None or not audited.released:
        return ()
    return audited.audit.attacks


def _lead(results: Results) -> str:
    """Return what the page is about."""
    data, verdict = results.data, results.verdict
    if data is None or not results.kept:
        return verdict.line
    of = "traces of jobs" if data.schema.kind == "trace" else "graphs"
    return (
        f"{len(results.kept):,} synthetic {of}, made by a model that learned from "
        f"{len(data.graphs['train']):,} real ones; {len(data.held_out):,} real ones that it never "
        f"saw are what they are compared with. They {verdict.outcome.value}."
    )


def _timelines(results: Results, real: Sequence[DAG]) -> tuple[Timeline, ...]:
    """Return the timeline of a sample, beside that of a real job if there are any to show."""
    if results.data is None or results.verdict.outcome is Outcome.NO:
        return ()
    return timelines_of(results.data, real, [sample.dag for sample in results.kept])


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
        MAY_BE_SHARED,
        _SHORT[verdict.outcome],
        _TONES[verdict.outcome],
        reason[:1].upper() + reason[1:],
        "membership" if results.evaluation and results.evaluation.leaks else "summary",
    )
    if results.evaluation is not None:
        yield likeness(results.evaluation.ratio)
        yield _use(results)


def _use(results: Results) -> Answer:
    """Return whether predictors learn from the samples what they learn from real graphs."""
    assert results.evaluation is not None
    need = results.needs[-1]
    missing = (
        f"There are {need.found} labeled held-out graphs, and {need.needed} are needed."
        if not need.is_met
        else "Step times could not be predicted: there are too few of them, or all are alike."
    )
    return usefulness_of(results.evaluation.transfer, missing)


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
            f"{drawn.renumbered:,} nodes of these samples got other numbers than were drawn",
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
            fraction = len(evaluation.failed)
            yield SummaryRow("samples that did not simulate to their end", f"{fraction}", "0")
    if results.weights is not None:
        yield from _weights_rows(results.weights)
    for need in results.needs:
        note = f"needs {need.needed:,}: {'enough' if need.is_met else 'too few to tell'}"
        yield SummaryRow(f"graphs for {need.test}", f"{need.found:,} {need.part}", "", note)


def _weights_rows(audited: AuditedWeights) -> Iterator[SummaryRow]:
    """Yield what was found on the weights."""
    outcome = _SHORT[audited.verdict.outcome]
    yield SummaryRow("may the weights be shared?", outcome, "", audited.verdict.line)
    audit = audited.audit
    if audit is None:
        return
    for attack in audit.attacks:
        area = f"{number(attack.auc, 2)} {interval(attack.interval)}"
        yield SummaryRow(f"attack on the weights, {attack.description}", area, "0.5")
    yield SummaryRow(
        "copies among graphs drawn from the weights",
        f"{audit.copied} of {audit.sampled}",
        "0",
        f"{audit.near} near copies",
    )
    if audit.ratio is not None:
        note = "of graphs drawn from the weights"
        yield SummaryRow("median ratio of distances", number(audit.ratio, 2), "1", note)


def _price_in_words(drawn: Drawn) -> str:
    if drawn.price is None:
        return f"{len(drawn.outcomes):,} drawn, none kept"
    return f"{len(drawn.outcomes):,} drawn, {number(drawn.price, 2)} for each one kept"


def _rejected(drawn: Drawn) -> Iterator[SummaryRow]:
    """Yield a line on each reason of rejection."""
    for word, count in sorted(drawn.counts().items()):
        if word != KEPT:
            fraction = percent(count / len(drawn.outcomes))
            yield SummaryRow(f"drawn and rejected: {word}", f"{count:,}", "", f"{fraction} of all")


def _attack_rows(evaluation: SampleEvaluation) -> Iterator[SummaryRow]:
    """Yield nearness and attacks on all samples."""
    if not evaluation.leaks:
        return
    last = evaluation.leaks[-1]
    fraction = f"{percent(last.nearness.dcr_share)} {percents(last.nearness.interval)}"
    yield SummaryRow(
        "samples nearer to training than to held-out graphs",
        fraction,
        "50%",
        _verdict_word(last.nearness.verdict),
    )
    folded = evaluation.cross_fit
    pairs = [("membership attack", attack) for attack in last.attacks]
    if folded is not None:
        pairs += [(f"membership attack, {folded.in_words()}", each) for each in folded.attacks]
    yield from (_attack_row(what, attack) for what, attack in pairs)
    for read in last.inferences:
        yield SummaryRow(
            f"read from samples, {read.description}",
            percent(read.of_training),
            f"{percent(read.of_held_out)} of held-out graphs",
            read.in_words(),
        )


def _attack_row(what: str, attack: Attack) -> SummaryRow:
    """Return the line of one attack."""
    beside = "0.5"
    if attack.holdout is not None:
        honest = attack.holdout
        beside = f"{number(honest.auc, 2)} {interval(honest.interval)} of held-out graphs"
    area = f"{number(attack.auc, 2)} {interval(attack.interval)}"
    return SummaryRow(f"{what}, {attack.description}", area, beside, attack.in_words())


def _verdict_word(verdict: Verdict) -> str:
    return "as near to both" if verdict is Verdict.CHANCE else verdict.value


def _samples_drawn(results: Results) -> tuple[Picture, ...]:
    """Return pictures of two samples of middling size; none of samples that stay private."""
    if results.data is None or len(results.kept) < 2 or results.verdict.outcome is Outcome.NO:
        return ()
    if not can_be_drawn(results.data):
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
