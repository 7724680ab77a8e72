"""Evaluate a release and decide its verdict."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from layerdag.dag.dag import DAG
from layerdag.dag.statistics import GraphStatistics
from layerdag.datasets.dataset import GraphDataset
from layerdag.errors import LayerdagError
from layerdag.evaluation.metrics.base import attribute_views
from layerdag.evaluation.metrics.whole_programs import jobs_beside
from layerdag.evaluation.similarity import MIN_COMPARED, QualityReport, compare
from layerdag.evaluation.validity import StructureReport, check_structure
from layerdag.graph.attributed_graph import LABEL, AttributedGraph, Split
from layerdag.privacy.attacks import Inference, significant_after_correction
from layerdag.privacy.auditing import weight_attacks
from layerdag.privacy.copies import Novelty, novelty
from layerdag.privacy.membership import AttackResult
from layerdag.privacy.sample_leaks import SampleLeaks, sample_leaks
from layerdag.publication.cross_fitting import (
    MIN_RUNS,
    CrossFit,
    RunRequirement,
    runs_for_membership,
)
from layerdag.publication.drawing import KEPT, AcceptedSamples
from layerdag.publication.schedule import TimeLeft
from layerdag.publication.settings import ReleaseSettings
from layerdag.report.content import Distribution, SystemTimes, median_ratio
from layerdag.report.gather import (
    SimulatedWorkloads,
    decoded_jobs,
    simulate_stage,
    simulation_parts,
    transferred,
)
from layerdag.sampling.generated import GeneratedGraph, as_workload
from layerdag.statistics import Verdict
from layerdag.surrogates.scoring import MIN_TESTED
from layerdag.surrogates.tstr import TransferReport
from layerdag.traces.trace import Workload
from layerdag.training.checkpoint import LoadedCheckpoint
from layerdag.viz.numbers import interval, number, percent, percents

SIMULATED = 64
"""Jobs of each side that are simulated."""


@dataclass(frozen=True, eq=False)
class SampleEvaluation:
    """All figures on the samples that were kept.

    Attributes:
        structure: Rules on graphs.
        real_structure: The same of held-out graphs.
        novelty: Valid, unique, novel.
        leaks: Nearness and attacks; None if nothing is held out.
        weights: Attacks on weights and schema, which stay with the owner.
        similarity: Distances beside those of real training graphs; None of too few.
        ratio: Median ratio at equal count; 1 is as near as real graphs are.
        ratio_with_copies: The same if copies had not been rejected.
        transfer: What predictors learn; None without enough labels.
        repairs: What was repaired when samples became traces.
        simulations: Distributions of simulated quantities.
        systems: Mean simulated times.
        failed: Samples that did not simulate to their end, with the reason.
        cross_fit: Membership attacks on models of folds; None if none were trained.
        left_out: What did not fit into the budget, in words.
    """

    structure: StructureReport
    real_structure: StructureReport
    novelty: Novelty
    leaks: SampleLeaks | None
    weights: tuple[AttackResult, ...]
    similarity: QualityReport | None
    ratio: float | None
    ratio_with_copies: float | None
    transfer: TransferReport | None
    repairs: dict[str, int]
    simulations: tuple[Distribution, ...]
    systems: SystemTimes | None
    failed: tuple[str, ...]
    cross_fit: CrossFit | None = None
    left_out: tuple[str, ...] = ()

    @property
    def verdicts(self) -> dict[str, Verdict]:
        """The verdict on nearness, and on each attack and inference on all samples."""
        return {} if self.leaks is None else self.leaks.verdicts


SIMILARITY, USEFULNESS = "similarity to real graphs", "usefulness for predictors"
"""Parts of an evaluation that a page answers a question by."""


def evaluate_samples(
    data: GraphDataset,
    real: Sequence[AttributedGraph],
    drawn: AcceptedSamples,
    kept: Sequence[GeneratedGraph],
    checkpoint: LoadedCheckpoint,
    time_left: TimeLeft | None = None,
) -> SampleEvaluation:
    """Evaluate samples beside the real graphs.

    What the verdict needs is always computed: rules, copies, attacks on all samples. The rest
    follows in the order of its use, as far as there is time.

    Args:
        data: The split real graphs.
        real: Held-out graphs in names and numbers, for simulation.
        drawn: Everything that was drawn.
        kept: What is to be published, at least one sample.
        checkpoint: What was sampled from.
        time_left: Of the budget; None is without end.
    """
    time_left = time_left or TimeLeft()
    train, held_out = data.graphs["train"], data.held_out
    dags = [sample.dag for sample in kept]
    statistics = GraphStatistics.measure(train, data.schema.sizes())
    structure = check_structure(dags, statistics, [sample.name for sample in kept])
    copies = novelty(train, held_out, dags, structure.valid_B)
    leaks = time_left.always(
        lambda: sample_leaks(
            train,
            held_out,
            dags,
            measured=data.schema.measured_columns,
            numeric=data.schema.size_columns,
        )
    )
    similarity = time_left.if_time(SIMILARITY, lambda: similarity_of(data, dags, kept))
    ratio = median_ratio(similarity)
    transfer = time_left.if_time(USEFULNESS, lambda: _transfer(data, kept))
    simulated = time_left.if_time(
        "simulated times beside those of real jobs", lambda: _simulated(data, real, kept)
    )
    simulations, systems, failed, repairs = simulated or _NOTHING_SIMULATED
    weights = time_left.if_time(
        "attacks on weights that are not published", lambda: weight_attacks(checkpoint, data)
    )
    others = [sample.dag for sample in drawn.with_copies]
    ratio_with_copies = ratio
    if len(others) > len(kept):
        ratio_with_copies = time_left.if_time(
            "similarity without rejecting copies",
            lambda: median_ratio(similarity_of(data, others)),
        )
    return SampleEvaluation(
        structure=structure,
        real_structure=check_structure(held_out, statistics),
        novelty=copies,
        leaks=leaks,
        weights=weights or (),
        similarity=similarity,
        ratio=ratio,
        ratio_with_copies=ratio_with_copies,
        transfer=transfer,
        repairs=repairs,
        simulations=simulations,
        systems=systems,
        failed=failed,
        left_out=time_left.left_out,
    )


def similarity_of(
    data: GraphDataset, dags: Sequence[DAG], samples: Sequence[GeneratedGraph] = ()
) -> QualityReport | None:
    """Compare with all held-out graphs; None if there are too few on a side.

    With samples, jobs are also judged by the rules of whole programs.
    """
    if len(data.held_out) < MIN_COMPARED or len(dags) < MIN_COMPARED:
        return None
    held_out = (*data.jobs.get("val", ()), *data.jobs.get("test", ()))
    jobs = jobs_beside(data.jobs.get("train", ()), held_out, samples)
    views = attribute_views(data.schema)
    return compare(data.graphs["train"], data.held_out, dags, views, jobs=jobs)


def _transfer(data: GraphDataset, kept: Sequence[GeneratedGraph]) -> TransferReport | None:
    """Fit predictors of the label; None where there are too few labels."""
    parts: dict[Split, list[DAG]] = {
        "train": [dag for dag in data.graphs["train"] if _has_label(dag)],
        "val": [],
        "test": [dag for dag in data.held_out if _has_label(dag)],
    }
    made = [sample for sample in kept if _has_label(sample.dag)]
    fewest = min(len(parts["train"]), len(parts["test"]), len(made))
    if fewest < MIN_TESTED:
        return None
    labeled = data.replaced(graphs={part: tuple(dags) for part, dags in parts.items()})
    try:
        return transferred(labeled, made)
    except LayerdagError:  # all labels alike, and the like: nothing to predict
        return None


def _has_label(dag: DAG) -> bool:
    return isinstance(dag.conditions.get(LABEL), float)


_Simulated = tuple[tuple[Distribution, ...], SystemTimes | None, tuple[str, ...], dict[str, int]]
_NOTHING_SIMULATED: _Simulated = ((), None, (), {})


def _simulated(
    data: GraphDataset, real: Sequence[AttributedGraph], kept: Sequence[GeneratedGraph]
) -> _Simulated:
    if not data.schema.kind.has_traces:
        return _NOTHING_SIMULATED
    made = decoded_jobs(sample.graph for sample in kept)
    repairs = made.repairs
    ours = simulate_stage(made.workloads[:SIMULATED], "simulating samples")
    theirs = simulate_stage(_real_workloads(real), "simulating real jobs")
    if not _takes_time(ours) or not _takes_time(theirs):
        return (), None, ours.failed, repairs
    drawn, times = simulation_parts(theirs, ours)
    return drawn, times, ours.failed, repairs


def _real_workloads(real: Sequence[AttributedGraph]) -> list[Workload]:
    found = []
    for graph in real[:SIMULATED]:
        try:
            found.append(as_workload(graph).workload)
        except LayerdagError:  # a real job that our own form of traces cannot hold
            continue
    return found


def _takes_time(part: SimulatedWorkloads) -> bool:
    return bool(part.num_ranks.size) and bool((part.makespan_ns > 0).all())


MIN_KEPT = 8


class ReleaseDecision(Enum):
    """Whether the samples may be published."""

    YES = "may be published"
    RESERVED = "may be published, with a reserve"
    NO = "must not be published"


@dataclass(frozen=True)
class Reason:
    """Why nothing is published.

    Attributes:
        what: What was found, in a clause.
        remedies: What helps, each with its cost, as sentences.
    """

    what: str
    remedies: tuple[str, ...]


@dataclass(frozen=True)
class ReleaseVerdict:
    """The decision.

    Attributes:
        outcome: Whether the samples may be published.
        reasons: Why not.
        reserves: What could not be told, in clauses.
        found: What was found in order, in clauses.
    """

    outcome: ReleaseDecision
    reasons: tuple[Reason, ...] = ()
    reserves: tuple[str, ...] = ()
    found: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """The verdict of one line."""
        if self.outcome is ReleaseDecision.NO:
            text = "; ".join(reason.what for reason in self.reasons)
        elif self.outcome is ReleaseDecision.RESERVED:
            text = f"{'; '.join(self.found)}. But {'; '.join(self.reserves)}"
        else:
            text = "; ".join(self.found)
        return f"The samples {self.outcome.value}: {text}."

    @property
    def remedies(self) -> tuple[str, ...]:
        """What helps, without repetition."""
        return tuple(dict.fromkeys(word for reason in self.reasons for word in reason.remedies))


def too_few_runs(runs: int) -> ReleaseVerdict:
    """Return the verdict on a folder with hardly any jobs."""
    what = (
        f"too few graphs to tell: {runs} distinct {'run was' if runs == 1 else 'runs were'} found, "
        f"and a release needs at least {MIN_RUNS}"
    )
    return ReleaseVerdict(
        ReleaseDecision.NO,
        (
            Reason(
                what,
                (
                    f"Collect at least {MIN_RUNS - runs} more runs of other sizes or settings "
                    "(layerdag collect; about ten seconds each).",
                    f"From about {runs_for_membership()} runs on, membership attacks can be told "
                    "from chance, too.",
                ),
            ),
        ),
    )


def verdict_of(
    settings: ReleaseSettings,
    drawn: AcceptedSamples,
    evaluation: SampleEvaluation | None,
    needs: Sequence[RunRequirement],
    foreign: Sequence[str] = (),
) -> ReleaseVerdict:
    """Decide.

    Args:
        settings: Of the release.
        drawn: What was drawn.
        evaluation: What was found on what was kept; None if too little was kept to evaluate.
        needs: What each test needs and has.
        foreign: Sentences on what the written files hold and must not.
    """
    reasons = [*_of_drawing(settings, drawn)]
    if evaluation is not None:
        reasons += [*_of_rules(evaluation), *_of_attacks(settings, evaluation)]
    if foreign:
        more = f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""
        reasons.append(
            Reason(
                f"a file of the release says what it must not: {foreign[0].rstrip('.')}{more}",
                (
                    "Take the word out of the traces (layerdag convert --scrub) and start anew "
                    "with --overwrite; costs one whole run.",
                ),
            )
        )
    if reasons or evaluation is None:
        return ReleaseVerdict(ReleaseDecision.NO, tuple(reasons))
    reserves = tuple(_reserves(evaluation, needs))
    found = tuple(_in_order(drawn, evaluation, settings))
    outcome = ReleaseDecision.RESERVED if reserves else ReleaseDecision.YES
    return ReleaseVerdict(outcome, (), reserves, found)


def _of_drawing(settings: ReleaseSettings, drawn: AcceptedSamples) -> Iterator[Reason]:
    kept = len(drawn.kept(settings.num))
    if kept >= min(MIN_KEPT, settings.num):
        return
    counts = {word: n for word, n in drawn.counts().items() if word != KEPT}
    worst = max(counts, key=lambda word: counts[word]) if counts else "nothing was drawn"
    yield Reason(
        f"only {kept} of {len(drawn.outcomes)} drawn samples could be kept (most often, a sample "
        f"{worst if worst[0] in 'bhr' else 'was a ' + worst})",
        (
            "A higher --temperature (1.0 or 1.2) makes samples less like single real jobs; costs "
            f"sampling again, about {drawn.seconds:.0f} s, and some similarity.",
            f"Fewer --steps ({max(settings.steps // 2, 1)}) with --overwrite leave the model "
            "further from single jobs; costs a whole run and some similarity.",
            "A larger --budget draws more; costs the time.",
        ),
    )


def _of_rules(evaluation: SampleEvaluation) -> Iterator[Reason]:
    wrong = int((~evaluation.structure.valid_B).sum())
    if wrong:
        yield Reason(
            f"{wrong} samples break rules that consumers rely on",
            ("Start anew with --overwrite and another --seed; costs a whole run.",),
        )
    if evaluation.novelty.copied > 0:
        count = round(evaluation.novelty.copied * evaluation.novelty.graphs)
        yield Reason(
            f"{count} samples are copies of training graphs",
            ("Start anew with --overwrite and another --seed; costs a whole run.",),
        )


def _of_attacks(settings: ReleaseSettings, evaluation: SampleEvaluation) -> Iterator[Reason]:
    if evaluation.leaks is None:
        return
    remedies = (
        f"--steps {max(settings.steps // 2, 1)} --overwrite trains less; costs a whole run and "
        "some similarity.",
        "More runs: the more a model learns from, the less it holds of each; costs collecting.",
    )
    yield from (Reason(what, remedies) for what in _successes(evaluation.leaks))
    if evaluation.cross_fit is not None:
        yield from (Reason(what, remedies) for what in evaluation.cross_fit.successes())


def _successes(last: SampleLeaks) -> Iterator[str]:
    near = last.nearness
    if near.verdict is Verdict.LEAKS:
        yield (
            f"{percent(near.dcr_share)} of the samples are nearer to training than to held-out "
            f"graphs ({percents(near.interval)}, 50% is chance)"
        )
    for attack in last.attacks:
        if significant_after_correction(attack):
            yield (
                f"the attack {attack.name} tells which graphs were trained on, from "
                f"{last.samples} samples (AUROC {number(attack.auc, 2)} "
                f"{interval(attack.interval)}, 0.5 is chance)"
            )
        elif attack.finds_some:
            rate = next(rate.in_words() for rate in attack.rates if rate.is_above_chance)
            yield (
                f"the attack {attack.name} finds single training graphs, from {last.samples} "
                f"samples ({rate})"
            )
    for read in last.inferences:
        if significant_after_correction(read):
            yield (
                f"{read.name} is read of training graphs: {read.description} for "
                f"{percent(read.of_training)} of them and for {percent(read.of_held_out)} of "
                f"held-out ones, from {last.samples} samples"
            )


def _reserves(evaluation: SampleEvaluation, needs: Sequence[RunRequirement]) -> Iterator[str]:
    unknown = _named(evaluation, Verdict.TOO_FEW)
    uneven = _named(evaluation, Verdict.REVERSED)
    folded = evaluation.cross_fit
    if folded is not None:
        yield from folded.reserves()
        attacks = {attack.name for attack in folded.attacks}
        unknown = [name for name in unknown if name not in attacks]
        uneven = [name for name in uneven if name not in attacks]
        if unknown:
            need = _largest_need(evaluation, unknown)
            yield f"too few graphs to tell by {', '.join(unknown)} alone ({need})"
    elif not needs[0].is_met and (unknown or not evaluation.verdicts):
        yield (
            "too few graphs to tell whether membership attacks succeed "
            f"({needs[0].found:,} {needs[0].part}, about {needs[0].needed:,} needed)"
        )
    elif unknown:
        need = _largest_need(evaluation, unknown)
        yield f"too few graphs to tell by {', '.join(unknown)} ({need})"
    leaks = evaluation.leaks
    every: list[AttackResult | Inference] = []
    if leaks is not None:
        every = [*leaks.attacks, *leaks.inferences]
    alone = [one.name for one in every if one.leaks and not significant_after_correction(one)]
    if alone:
        yield (
            f"{' and '.join(alone)} alone would tell training graphs apart, which among so many "
            "attacks chance does, too"
        )
    if uneven:
        yield (
            f"training and held-out graphs are not alike by {', '.join(uneven)}, so that it says "
            "nothing"
        )


def _named(evaluation: SampleEvaluation, verdict: Verdict) -> list[str]:
    """Return the figures of a verdict; the traits of models are one."""
    names = [name for name, found in evaluation.verdicts.items() if found is verdict]
    return list(dict.fromkeys(name.partition(":")[0] for name in names))


def _largest_need(evaluation: SampleEvaluation, names: Sequence[str]) -> str:
    last = evaluation.leaks
    assert last is not None  # it has the figures of these names
    needs = [("nearness", last.nearness.need)]
    needs += [(attack.name, attack.need) for attack in last.attacks]
    needs += [(read.name, read.need) for read in last.inferences]
    known = [need for name, need in needs if need is not None and name.partition(":")[0] in names]
    return max(known, key=lambda need: need.count).in_words()


def _in_order(
    drawn: AcceptedSamples, evaluation: SampleEvaluation, settings: ReleaseSettings
) -> Iterator[str]:
    yield f"{len(drawn.kept(settings.num))} samples, no error, no copy, no foreign word"
    if evaluation.cross_fit is not None:
        yield evaluation.cross_fit.told()
    chance = _named(evaluation, Verdict.CHANCE)
    if chance:
        yield f"no better than chance: {', '.join(chance)}"
