"""The answers and lines of a release's report, from findings made up for each case."""

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from random_jobs import random_job

from layerdag.api.publication import Outcome, ReleaseSettings
from layerdag.api.publication._page import (
    SAMPLES_ALONE,
    Results,
    _answers,
    _provenance,
    _summary,
    owners_content,
    public_content,
)
from layerdag.api.publication._split import Need
from layerdag.api.publication._verdict import Reason, ReleaseVerdict
from layerdag.api.publication.drawing import KEPT, Drawn
from layerdag.api.publication.training import AuditedWeights, WeightsAudit, WeightsVerdict
from layerdag.datasets import GraphDataset
from layerdag.evaluation.privacy import attack_by_scores
from layerdag.report._page import render
from layerdag.surrogates import REAL, SYNTHETIC

RESERVED = ReleaseVerdict(Outcome.RESERVED, (), ("32 runs are too few",), ("20 samples",))
NEEDS = (Need("membership attacks", 535, 32, "distinct runs"), Need("usefulness", 20, 7))


def evaluation(**changes: Any) -> Any:
    plain: dict[str, Any] = {
        "ratio": 1.0, "ratio_with_copies": 1.1, "leaks": (), "transfer": None, "systems": None,
        "simulations": (), "failed": (), "repairs": {},
        "structure": SimpleNamespace(validity=0.75),
        "real_structure": SimpleNamespace(validity=1.0),
    }  # fmt: skip
    return SimpleNamespace(**{**plain, **changes})


def transfer(real: float, made: float) -> Any:
    """Return a report whose predictors have these rank correlations."""

    def row(_: str, source: str) -> Any:
        mean = {REAL: real, SYNTHETIC: made}[source]
        return SimpleNamespace(scores={"spearman": SimpleNamespace(mean=mean)})

    return SimpleNamespace(rows=(SimpleNamespace(family="trees"),), row=row, tested_on=40)


@pytest.fixture
def results(tmp_path: Path) -> Results:
    (tmp_path / "traces").mkdir()
    settings = ReleaseSettings(tmp_path / "traces", tmp_path / "out", seed=7)
    words = (KEPT,) * 20 + ("copy of a real graph",) * 5
    made: Any = SimpleNamespace(kind="trace")
    drawn = Drawn(tuple(SimpleNamespace() for _ in words), words, 3, 0.25, 9.0)
    kept: Any = drawn.samples[:20]
    return Results(
        settings=settings, jobs=made, data=None, needs=NEEDS, drawn=drawn, kept=kept,
        evaluation=evaluation(), verdict=RESERVED, seconds={"train": 60.4},
        training={"steps": 90, "best_step": 80, "start": "pretrained"},
    )  # fmt: skip


def answers(results: Results) -> list[tuple[str, str]]:
    return [(answer.answer, answer.tone) for answer in _answers(results)]


@pytest.mark.parametrize(
    ("verdict", "told", "tone", "reason"),
    [
        (ReleaseVerdict(Outcome.YES), "yes", "good", "Nothing that was looked for was found"),
        (RESERVED, "yes, with a reserve", "fair", "Nothing was found, but 32 runs are too few."),
        (
            ReleaseVerdict(Outcome.NO, (Reason("two copies", ()), Reason("an error", ()))),
            "no", "poor", "Two copies; an error.",
        ),
    ],
)  # fmt: skip
def test_the_first_answer_says_whether_and_why(
    results: Results, verdict: ReleaseVerdict, told: str, tone: str, reason: str
) -> None:
    first, *_ = _answers(replace(results, verdict=verdict))
    assert (first.question, first.answer, first.tone) == ("May it be shared?", told, tone)
    assert first.reason.startswith(reason)


@pytest.mark.parametrize(
    ("ratio", "told"),
    [
        (1.0, ("as real", "good")), (1.25, ("as real", "good")), (1.26, ("close", "fair")),
        (2.5, ("close", "fair")), (2.51, ("far", "poor")), (None, ("too few to tell", "fair")),
    ],
)  # fmt: skip
def test_likeness_follows_from_the_median_ratio(
    results: Results, ratio: float | None, told: tuple[str, str]
) -> None:
    assert answers(replace(results, evaluation=evaluation(ratio=ratio)))[1] == told


@pytest.mark.parametrize(
    ("real", "made", "told"),
    [
        (0.9, 0.81, ("as real ones", "good")), (0.9, 0.80, ("partly", "fair")),
        (0.9, 0.50, ("partly", "fair")), (0.9, 0.49, ("hardly", "poor")),
        (float("nan"), 0.9, ("hardly", "poor")),
    ],
)  # fmt: skip
def test_use_follows_from_rank_correlations(
    results: Results, real: float, made: float, told: tuple[str, str]
) -> None:
    assert (
        answers(replace(results, evaluation=evaluation(transfer=transfer(real, made))))[2] == told
    )


def test_use_cannot_be_told_from_few_labels(results: Results) -> None:
    *_, use = _answers(results)
    assert (use.answer, use.tone) == ("too few to tell", "fair")
    assert use.reason == "There are 7 labeled held-out graphs, and 20 are needed."


def test_nothing_is_said_of_samples_that_were_not_judged(results: Results) -> None:
    assert len(list(_answers(replace(results, evaluation=None)))) == 1


def test_the_summary_tells_the_price_of_rejection(results: Results) -> None:
    lines = {row.what: (row.synthetic, row.real, row.note) for row in _summary(results)}
    assert lines["samples"] == ("20", "", "25 drawn, 1.2 for each one kept")
    assert lines["drawn and rejected: copy of a real graph"] == ("5", "", "20.0% of all")
    assert lines["nodes with numbers of a single real run"][2].startswith(
        "3 nodes of these samples"
    )
    assert lines["samples that break a rule"][:2] == ("25.0%", "0%")
    assert lines["median ratio of distances"] == ("1.0", "1", "without rejecting copies 1.1")
    assert lines["graphs for usefulness"][2] == "needs 20: too few to tell"


def test_a_price_of_nothing_kept_is_told(results: Results) -> None:
    none = Drawn(results.drawn.samples[:2], ("cut off",) * 2, 0, 0.25, 1.0)
    lines = {row.what: row.note for row in _summary(replace(results, drawn=none, kept=()))}
    assert lines["samples"] == "2 drawn, none kept"


def test_provenance_names_training_seed_and_time(results: Results) -> None:
    told = dict(_provenance(results))
    assert told["training"] == "from pretrained, 90 steps, best at 80"
    assert told["near copies"] == "nearer than 0.250 to a real graph"
    assert (told["seed"], told["time"]) == ("7", "train 60 s")
    assert "real graphs" not in told


@pytest.fixture(scope="module")
def jobs() -> GraphDataset:
    made = [random_job(seed, 2, layers=4) for seed in range(8)]
    return GraphDataset.build("jobs", "trace", {"train": made[:5], "test": made[5:]}, num_bins=2)


def with_samples(results: Results, jobs: GraphDataset) -> Results:
    """Return results whose samples are drawn, and whose figures are none."""
    kept: Any = tuple(
        SimpleNamespace(dag=dag, name=f"sample-{i}") for i, dag in enumerate(jobs.graphs["train"])
    )
    nothing = dict.fromkeys(("novelty", "similarity", "weights"), ())
    return replace(results, data=jobs, kept=kept, evaluation=evaluation(**nothing))


def test_the_public_report_shows_no_single_real_job(results: Results, jobs: GraphDataset) -> None:
    content = public_content(with_samples(results, jobs))
    assert content.neighbors == ()
    assert content.distributions == ()
    (timeline,) = content.timelines
    assert timeline.title.startswith("A sample")
    assert all(picture.title.startswith("sample-") for picture in content.pictures)


def test_the_owner_sees_samples_beside_real_jobs(results: Results, jobs: GraphDataset) -> None:
    content = owners_content(with_samples(results, jobs))
    assert content.neighbors
    assert [job.title[:8] for job in content.timelines] == ["A real j", "A sample"]
    assert "not to be shared" in content.title


def test_samples_that_are_refused_are_not_in_the_public_report(
    results: Results, jobs: GraphDataset
) -> None:
    refused = ReleaseVerdict(Outcome.NO, (Reason("two copies", ()),))
    content = public_content(replace(with_samples(results, jobs), verdict=refused))
    assert content.timelines == ()
    assert content.pictures == ()
    assert content.lead.endswith("They must not be published.")


def test_every_verdict_leads_to_a_section_that_is_there(
    results: Results, jobs: GraphDataset
) -> None:
    page = render(public_content(replace(with_samples(results, jobs), evaluation=None)))
    for at in re.findall(r'href="#(\w+)"', page):
        assert f'id="{at}"' in page


@pytest.mark.parametrize("outcome", [Outcome.YES, Outcome.NO])
def test_what_was_found_on_the_weights_is_told_and_attacks_on_published_ones_shown(
    results: Results, outcome: Outcome
) -> None:
    attack = attack_by_scores("likelihood", "how likely it is", [(np.zeros(3), np.zeros(3))], 0)
    audit = WeightsAudit((attack,), 16, (0.5, 0.52), 512, 3, 128, 1, 2, 1.25, 60.0)
    verdict = WeightsVerdict(outcome, ("it leaks",), ("nothing leaks",))
    audited = replace(results, evaluation=None, weights=AuditedWeights(None, audit, verdict))
    assert audited.gives_weights is (outcome is Outcome.YES)
    rows = {row.what: row for row in _summary(audited)}
    assert rows["may the weights be shared?"].note == verdict.line
    assert rows["copies among graphs drawn from the weights"].synthetic == "1 of 128"
    assert rows["attack on the weights, how likely it is"].real == "0.5"
    content = public_content(audited)
    assert content.weight_attacks == ((attack,) if outcome is Outcome.YES else ())
    assert (SAMPLES_ALONE in content.caveats) is (outcome is Outcome.NO)
    refused = replace(audited, verdict=replace(RESERVED, outcome=Outcome.NO))
    assert not refused.gives_weights
