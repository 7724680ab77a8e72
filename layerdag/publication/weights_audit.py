"""Decide whether the weights of a release may be published.

Shadow models: the whole way from real graphs to a student, on other halves of the graphs.

Their losses alone are kept, in one file per model, so that a stopped audit goes on.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from layerdag.datasets.dataset import GraphDataset
from layerdag.datasets.encoding import encoded
from layerdag.errors import DataError, LayerdagError, UsageError
from layerdag.graph.attributed_graph import AttributedGraph, Split
from layerdag.models.base import DAGModel
from layerdag.privacy.copies import CopyComparison, CopyTest
from layerdag.privacy.likelihood_ratio import (
    ShadowLosses,
    auroc_over_shadows,
    balanced_members,
    schema_attacks,
)
from layerdag.privacy.membership import MOST_SCORED, Attack, Verdict, graph_losses
from layerdag.privacy.shadows import ShadowModel, attacks_on_losses, kept_models
from layerdag.publication.drawing import drawing_plan, published_graphs
from layerdag.publication.evaluation import ReleaseDecision, similarity_of
from layerdag.publication.settings import SHADOWS, STUDENT, PrivateWorkspace, ReleaseSettings
from layerdag.publication.training import (
    public_graphs,
    run_of,
    start_model,
    student_data,
    train_or_resume,
    train_student,
    with_public,
)
from layerdag.report.content import mean_ratio, median_ratio
from layerdag.report.sections import attack_words
from layerdag.runtime.files import discard_folder, write_text
from layerdag.runtime.rng import derive_seed, numpy_generator
from layerdag.sampling.generated import GeneratedGraph
from layerdag.sampling.generation import generate
from layerdag.sampling.settings import GenerationSettings
from layerdag.schema.schema import GraphSchema
from layerdag.training.checkpoint import LoadedCheckpoint, load_checkpoint
from layerdag.viz.html import interval, number

VALIDATION_FRACTION = 0.1


@dataclass(frozen=True, eq=False)
class RealGraphs:
    """The real graphs of an audit.

    Attributes:
        graphs: Those that the target's teacher was trained on, then the held-out ones.
        runs: The run of each; graphs of one run are members together.
        members: Number of the former.
        scored: Positions of the graphs whose losses are taken, in ascending order.
        public: Public graphs that every student learns beside its samples; none is scored.
    """

    graphs: tuple[AttributedGraph, ...]
    runs: tuple[str, ...]
    members: int
    scored: np.ndarray
    public: tuple[AttributedGraph, ...] = ()

    @property
    def scored_members(self) -> int:
        """Number of scored graphs that are members."""
        return int((self.scored < self.members).sum())

    def losses_under(self, model: DAGModel, schema: GraphSchema) -> np.ndarray:
        """Return nats per node of the scored graphs; NaN where the model cannot express one.

        Args:
            model: A model.
            schema: Of what it was trained on.
        """
        chosen = [self.graphs[i] for i in self.scored.tolist()]
        coded = GraphDataset.with_schema("real", schema, {"train": chosen})
        loss_K = graph_losses(model, schema, coded.graphs["train"])
        known = dict(zip(coded.names["train"], loss_K.tolist(), strict=True))
        return np.array([known.get(graph.name, np.nan) for graph in chosen])


def shadow_losses(
    settings: ReleaseSettings,
    real: RealGraphs,
    target: LoadedCheckpoint,
    data: GraphDataset,
    work: PrivateWorkspace,
    seconds: float,
) -> ShadowLosses:
    """Return the losses of the scored graphs under ``settings.shadows`` models.

    Each model goes the way of the target, on a random half of the real runs: teacher, as many
    samples as the target learned from, student.
    Its student has the target's schema, so that losses are in the same units.

    Args:
        settings: Of the release.
        real: The real graphs.
        target: The student that is attacked.
        data: The published samples, which it was trained on.
        work: The private folder.
        seconds: Most seconds that training one model may take.
    """
    folder = work.path / SHADOWS
    _start_anew_if_other(folder, settings, with_public(data, real.public))
    names = sorted(set(real.runs))
    rng = numpy_generator(settings.seed, "shadow members")
    member_SR = balanced_members(settings.shadows, len(names), rng)
    column = {name: i for i, name in enumerate(names)}
    run_G = np.array([column[run] for run in real.runs])

    def trained(shadow: int, path: Path) -> ShadowModel:
        chosen = np.flatnonzero(member_SR[shadow][run_G])
        own = replace(settings, seed=derive_seed(settings.seed, "shadow", str(shadow)) % 2**31)
        graphs = [real.graphs[i] for i in chosen]
        return _trained(own, graphs, real, target, data, path, seconds)

    models = kept_models(folder, settings.shadows, len(real.scored), trained)
    loss_SG = np.stack([model.loss_K for model in models])
    return ShadowLosses(loss_SG, member_SR[:, run_G[real.scored]])


def _start_anew_if_other(folder: Path, settings: ReleaseSettings, data: GraphDataset) -> None:
    note = folder / "target.json"
    wanted = json.dumps({"samples": data.fingerprint, "shadows": settings.shadows})
    if folder.is_dir() and not (note.is_file() and note.read_text() == wanted):
        discard_folder(folder)
    folder.mkdir(exist_ok=True)
    write_text(note, wanted)


def _trained(
    settings: ReleaseSettings,
    graphs: Sequence[AttributedGraph],
    real: RealGraphs,
    target: LoadedCheckpoint,
    data: GraphDataset,
    path: Path,
    seconds: float,
) -> ShadowModel:
    made = _drawn(settings, graphs, data, path, seconds)
    copy = GraphDataset.with_schema("samples", data.schema, _parts(made, settings.seed))
    run = run_of(settings, with_public(copy, real.public), path / "student", target.spec)
    result = train_or_resume(run, settings, seconds)
    student = load_checkpoint(result.best)
    return ShadowModel(real.losses_under(student.model, copy.schema), result.step, result.seconds)


def _drawn(
    settings: ReleaseSettings,
    graphs: Sequence[AttributedGraph],
    data: GraphDataset,
    path: Path,
    seconds: float,
) -> list[AttributedGraph]:
    kind = data.schema.kind
    own = GraphDataset.build("shadow", kind, _parts(graphs, settings.seed))
    run = run_of(settings, own, path / "teacher")
    teacher = load_checkpoint(train_or_resume(run, settings, seconds).best)
    num = len(data.graphs["train"]) + len(data.graphs["val"])
    plan = drawing_plan(settings, num, settings.seed)
    samples = [s for s in _generated(teacher, own, plan) if not s.truncated]
    kept = list(published_graphs(samples))
    if len(kept) < 2:
        raise DataError(
            f"A shadow model of {len(graphs)} graphs drew {len(kept)} samples that can be written, "
            "and two are needed; train it for more --steps."
        )
    return kept


def _generated(
    teacher: LoadedCheckpoint, data: GraphDataset, plan: GenerationSettings
) -> list[GeneratedGraph]:
    """Return samples with predicted labels, or requested ones where there are none to predict."""
    with torch.no_grad():
        try:
            predicted = replace(plan, labels="predicted")
            return list(generate(teacher.model, data.schema, predicted))
        except UsageError:
            return list(generate(teacher.model, data.schema, plan))


def _parts(graphs: Sequence[AttributedGraph], seed: int) -> dict[Split, list[AttributedGraph]]:
    order = numpy_generator(seed, "shadow split").permutation(len(graphs))
    held = max(round(VALIDATION_FRACTION * len(graphs)), 1)
    return {
        "train": [graphs[i] for i in np.sort(order[held:]).tolist()],
        "val": [graphs[i] for i in np.sort(order[:held]).tolist()],
    }


SAMPLED = 128
"""Graphs that are drawn from a student, to look for copies and for what it is worth."""


@dataclass(frozen=True, eq=False)
class WeightsAudit:
    """What the weights of a student give away, and what they are worth.

    Attributes:
        attacks: By likelihood, by likelihood ratio, and on the schema. Each has a holdout, where
            nothing can leak: for the former, the same attack on what the student started from,
            which saw none of these graphs; on the schema, held-out graphs pose as training graphs.
        shadows: Number of shadow models.
        over_shadows: AUROC of the attack without models trained on the graph, on each shadow model
            as the target of the others: what models made in this way give away.
        scored: Real graphs that were scored.
        inexpressible: Of these, graphs with an operator that no published sample has.
        sampled: Graphs that were drawn from the student.
        copied: Of these, copies of a real graph.
        near: Of these, near copies.
        ratio: Median ratio of the distances of its samples to held-out graphs, as for the release's
            own samples, without those cut off; None if there are too few graphs.
        seconds: That the audit took.
        mean_ratio: As ``ratio``, the mean, which the worst distances weigh on.
    """

    attacks: tuple[Attack, ...]
    shadows: int
    over_shadows: tuple[float, ...]
    scored: int
    inexpressible: int
    sampled: int
    copied: int
    near: int
    ratio: float | None
    seconds: float
    mean_ratio: float | None = None

    def to_dict(self) -> dict[str, object]:
        """Return the figures as plain data."""
        return {
            "attacks": [_plain(attack) for attack in self.attacks],
            "shadows": self.shadows,
            "over_shadows": list(self.over_shadows),
            "scored": self.scored,
            "inexpressible": self.inexpressible,
            "sampled": self.sampled,
            "copied": self.copied,
            "near_copies": self.near,
            "median_ratio": self.ratio,
            "mean_ratio": self.mean_ratio,
            "seconds": round(self.seconds, 1),
        }


def _plain(attack: Attack) -> dict[str, object]:
    return {
        "name": attack.name,
        "what": attack.description,
        "auc": attack.auc,
        "interval": {"low": attack.interval.low, "high": attack.interval.high},
        "members": attack.members,
        "others": attack.non_members,
        "verdict": attack.verdict.value,
        "where_nothing_can_leak": None if attack.holdout is None else attack.holdout.auc,
        "rates": [
            {
                "false_positive_rate": rate.false_positive_rate,
                "true_positive_rate": rate.true_positive_rate,
            }
            for rate in attack.rates
        ],
    }


def real_graphs(
    data: GraphDataset, graphs: Mapping[str, AttributedGraph], runs: Mapping[str, str], seed: int
) -> RealGraphs:
    """Return the real graphs of an audit, of which ``MOST_SCORED`` of each kind are scored.

    Args:
        data: The split real graphs.
        graphs: The same by name, in words and numbers.
        runs: The run of each by name.
        seed: Draws the graphs that are scored, where there are more.
    """
    train, held = data.names["train"], (*data.names["val"], *data.names["test"])
    rng = numpy_generator(seed, "scored graphs")
    scored = [
        start + np.sort(rng.permutation(count)[:MOST_SCORED])
        for start, count in ((0, len(train)), (len(train), len(held)))
    ]
    names = (*train, *held)
    return RealGraphs(
        graphs=tuple(graphs[name] for name in names),
        runs=tuple(runs[name] for name in names),
        members=len(train),
        scored=np.concatenate(scored),
    )


def audited_weights(
    settings: ReleaseSettings,
    data: GraphDataset,
    real: RealGraphs,
    student: LoadedCheckpoint,
    samples: GraphDataset,
    work: PrivateWorkspace,
    seconds: float,
) -> WeightsAudit:
    """Attack the weights of a student, with shadow models.

    Args:
        settings: Of the release.
        data: The split real graphs.
        real: The same in words and numbers.
        student: Whose weights are attacked.
        samples: The published samples, which it was trained on.
        work: The private folder.
        seconds: Most seconds that training one shadow model may take.
    """
    began = time.monotonic()
    loss_K = real.losses_under(student.model, samples.schema)
    shadows = shadow_losses(settings, real, student, samples, work, seconds)
    members, seed = real.scored_members, settings.seed
    start = start_model(run_of(settings, samples, work.path / STUDENT, student.spec), seed)
    start_K = real.losses_under(start, samples.schema)
    by_student, by_start = (
        attacks_on_losses(loss, shadows, members, seed) for loss in (loss_K, start_K)
    )
    plan = drawing_plan(settings, SAMPLED, settings.seed)
    drawn = list(generate(student.model, samples.schema, plan))
    dags = encoded(drawn, data.schema)
    whole = [dag for dag, one in zip(dags, drawn, strict=True) if not one.truncated]
    similarity = similarity_of(data, whole)
    test = CopyTest.from_sets(data.graphs["train"], data.held_out, data.schema.measured_columns)
    found = test.resemblances(dags)
    return WeightsAudit(
        attacks=(
            *(replace(a, holdout=b) for a, b in zip(by_student, by_start, strict=True)),
            *_on_schema(samples.schema, real),
        ),
        shadows=settings.shadows,
        over_shadows=tuple(auroc_over_shadows(shadows).tolist()),
        scored=loss_K.size,
        inexpressible=int(np.isnan(loss_K).sum()),
        sampled=len(dags),
        copied=found.count(CopyComparison.COPY),
        near=found.count(CopyComparison.NEAR),
        ratio=median_ratio(similarity),
        seconds=time.monotonic() - began,
        mean_ratio=mean_ratio(similarity),
    )


def _on_schema(schema: GraphSchema, real: RealGraphs) -> tuple[Attack, ...]:
    """Return the attacks on the student's schema; conditions that it does not have are unknown."""
    parts: dict[Split, tuple[AttributedGraph, ...]] = {
        "train": real.graphs[: real.members],
        "test": real.graphs[real.members :],
    }
    coded = GraphDataset.with_schema("real", schema, parts)
    return schema_attacks(schema, coded.graphs["train"], coded.graphs["test"])


MOST_AREA = 0.6
"""AUROC that the interval of every attack must lie below."""


@dataclass(frozen=True)
class WeightsVerdict:
    """The decision on the weights, which are published beside the samples or not at all.

    Attributes:
        outcome: Whether they may be published.
        reasons: Why not, or why with a reserve, in clauses.
        found: What was looked for and not found, in clauses.
        remedies: What helps, each with its cost, as sentences.
    """

    outcome: ReleaseDecision
    reasons: tuple[str, ...] = ()
    found: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """The verdict of one line."""
        if self.outcome is ReleaseDecision.NO:
            text = "; ".join(self.reasons)
        elif self.outcome is ReleaseDecision.RESERVED:
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
        return self.verdict.outcome is not ReleaseDecision.NO


def verdict_on_weights(audit: WeightsAudit, num_samples: int) -> WeightsVerdict:
    """Decide; stricter than on samples, for weights cannot be called back and answer any question.

    Args:
        audit: What was found.
        num_samples: Number of samples that the student learned from.
    """
    refused = tuple(_refused(audit))
    if refused:
        return WeightsVerdict(ReleaseDecision.NO, refused, (), tuple(_remedies(num_samples)))
    doubts = tuple(
        f"“{attack_words(attack.name)}” cannot be told from chance ({attack.in_words()})"
        for attack in audit.attacks
        if attack.verdict is not Verdict.CHANCE
    )
    highest = max(audit.attacks, key=lambda attack: attack.interval.high)
    found = (
        f"a model of the {num_samples} published samples alone, attacked with {audit.shadows} "
        f"shadow models, largest AUROC {number(highest.auc, 2)} {interval(highest.interval)} "
        f"(“{attack_words(highest.name)}”); no copy among {audit.sampled} graphs drawn from it"
    )
    return WeightsVerdict(
        ReleaseDecision.RESERVED if doubts else ReleaseDecision.YES, doubts, (found,)
    )


def _refused(audit: WeightsAudit) -> Iterator[str]:
    for attack in audit.attacks:
        name = attack_words(attack.name)
        auroc = f"AUROC {number(attack.auc, 2)} {interval(attack.interval)}"
        if attack.verdict is Verdict.LEAKS:
            yield f"the attack “{name}” tells which graphs were trained on ({auroc})"
        elif any(rate.is_above_chance for rate in attack.rates):
            reported = next(rate for rate in attack.rates if rate.is_above_chance)
            yield f"the attack “{name}” is sure of some training graphs ({reported.in_words()})"
        elif attack.interval.high > MOST_AREA:
            yield (
                f"too few graphs to rule out that the attack “{name}” succeeds ({auroc}; the "
                f"interval must end below {MOST_AREA})"
            )
    if audit.copied:
        yield f"{audit.copied} of {audit.sampled} graphs drawn from them copy a real graph"


def _remedies(num_samples: int) -> Iterator[str]:
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
    work: PrivateWorkspace,
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
        student = train_student(settings, samples, work, seconds, real.public)
        audit = audited_weights(settings, data, real, student, samples, work, seconds)
    except LayerdagError as error:  # the samples go out all the same
        reason = f"they could not be audited: {str(error).rstrip('.')}"
        return AuditedWeights(None, None, WeightsVerdict(ReleaseDecision.NO, (reason,)))
    return AuditedWeights(student, audit, verdict_on_weights(audit, len(kept)))
