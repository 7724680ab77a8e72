"""The white-box audit: what the weights of a student give away about the real graphs."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from layerdag._runtime import numpy_generator
from layerdag.api.auditing.shadows import attacks_on_losses
from layerdag.api.publication import STUDENT, ReleaseSettings, Work, similarity_of
from layerdag.api.publication.drawing import drawing_plan
from layerdag.api.publication.training._recipe import run_of, start_model
from layerdag.api.publication.training._shadows import RealGraphs, shadow_losses
from layerdag.codec import AttributedGraph
from layerdag.datasets import GraphDataset, Split, encoded
from layerdag.datasets.schema import GraphSchema
from layerdag.evaluation.privacy import (
    MOST_SCORED,
    Attack,
    CopyTest,
    Resemblance,
    areas_over_shadows,
    schema_attacks,
)
from layerdag.report import mean_ratio, median_ratio
from layerdag.sampling import generate
from layerdag.training import LoadedCheckpoint

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
        over_shadows: Area of the attack without models trained on the graph, on each shadow model
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
    """Return the figures of an attack as JSON holds them."""
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
    work: Work,
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
    test = CopyTest.of(data.graphs["train"], data.held_out, data.schema.measured_columns)
    found = test.resemblances(dags)
    return WeightsAudit(
        attacks=(
            *(replace(a, holdout=b) for a, b in zip(by_student, by_start, strict=True)),
            *_on_schema(samples.schema, real),
        ),
        shadows=settings.shadows,
        over_shadows=tuple(areas_over_shadows(shadows).tolist()),
        scored=loss_K.size,
        inexpressible=int(np.isnan(loss_K).sum()),
        sampled=len(dags),
        copied=found.count(Resemblance.COPY),
        near=found.count(Resemblance.NEAR),
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
