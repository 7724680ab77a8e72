"""The sections of the page of a report, each beside what it is made of."""

import re
from dataclasses import replace

import numpy as np
import pytest

from layerdag.evaluation.metrics.base import Metric
from layerdag.evaluation.similarity import DEFAULT_METRICS
from layerdag.privacy.attacks import Inference
from layerdag.privacy.membership import AttackResult, DetectionRate
from layerdag.privacy.membership_attacks import Roles
from layerdag.report import words
from layerdag.report.content import (
    CategoryFractions,
    Distribution,
    Lane,
    ReportContent,
    Sample,
    SummaryRow,
    SystemTimes,
    Timeline,
)
from layerdag.report.page import render
from layerdag.report.words import attack_words, fits, metric_words
from layerdag.statistics import Interval, SampleSizeRequirement, Verdict
from layerdag.surrogates.scoring import SCORES
from layerdag.surrogates.tstr import ReachedFraction, Score, TransferReport, TransferRow

EMPTY = ReportContent("t", "l")


def section(name: str, content: ReportContent) -> str:
    """Return the section of a page, without spaces between its elements; "" if it has none."""
    _, _, rest = render(content).partition(f'<section id="{name}"')
    text = re.sub(r"\s+", " ", rest.partition("</section>")[0])
    return re.sub(r" ?(</?(?:ul|li|dl|dt|dd|table|thead|tbody|tr|th|td)\b[^>]*>) ?", r"\1", text)


def job(title: str, ranks: int, duration_ms: float = 4.0) -> Timeline:
    lanes = tuple(
        Lane(f"rank {rank} computes", np.array([0.0]), np.array([duration_ms]), ("<mm>",))
        for rank in range(min(ranks, 2))
    )
    return Timeline(title, lanes, duration_ms, ranks)


def test_a_pair_is_drawn_with_its_distance_and_the_usual_one(content):
    html = section("neighbors", content)
    assert "Family gpt" in html
    assert "Distance 0.500 from the nearest of 12 real graphs; real graphs of the family" in html
    assert "are 0.400 from theirs" in html
    assert html.count("<figure") == 2
    alone = replace(content.neighbors[0], usual=None, family="")
    html = section("neighbors", replace(EMPTY, neighbors=(alone,)))
    assert "from theirs" not in html
    assert "Family" not in html


def test_jobs_side_by_side_share_their_axis():
    both = replace(EMPTY, timelines=(job("real", 1), job("sample", 1, 8.0)), simulated_on="a ring")
    html = section("timelines", both)
    assert "simulated on a ring. Both jobs have the same axis." in html
    # Both axes end with 8 ms.
    assert re.findall(r'x="470"[^>]*>(\d+)</text>', html) == ["8", "8"]


def test_ranks_that_are_not_shown_are_counted():
    html = section("timelines", replace(EMPTY, timelines=(job("A sample", 16),)))
    assert "A sample has 16 ranks; the first ones are shown." in html
    assert "Both jobs" not in html
    assert "the first ones" not in section("timelines", replace(EMPTY, timelines=(job("s", 2),)))


def test_kinds_are_escaped_in_the_key_and_on_the_lanes():
    html = section("timelines", replace(EMPTY, timelines=(job("s", 1),)))
    assert "<mm>" not in html
    assert html.count("&lt;mm&gt;") == 2


def test_a_color_means_the_same_in_pictures_and_on_timelines(content):
    picture = content.pictures[0]
    mixed = replace(picture, class_N=("mm",) * len(picture.class_N))
    html = render(replace(content, pictures=(mixed,), neighbors=()))
    key = '<circle class="k0" cx="6" cy="6" r="5"/></svg>\nmm</li>'
    assert html.count(key) == 2  # timelines and pictures


def cells(html: str) -> list[list[str]]:
    """Return the texts of the cells of each row of a body."""
    (body,) = re.findall(r"<tbody>(.*?)</tbody>", html)
    rows = re.findall(r"<tr>(.*?)</tr>", body)
    return [
        [re.sub(r"<[^>]*>", "", cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)]
        for row in rows
    ]


def test_nothing_has_no_section():
    assert "<section" not in render(EMPTY)


def test_the_summary_escapes_its_words():
    row = SummaryRow("a < b", "1", "2", "read & understand")
    html = section("summary", replace(EMPTY, summary=(row,)))
    assert cells(html) == [["a &lt; b", "1", "2", "read &amp; understand"]]


@pytest.mark.parametrize(
    ("ratio", "words", "color"),
    [
        (None, "", ""),
        (0.0, "as real", "good"),
        (1.25, "as real", "good"),
        (1.26, "close", "fair"),
        (2.5, "close", "fair"),
        (2.51, "far", "poor"),
    ],
)
def test_a_ratio_is_told_in_words(content, ratio, words, color):
    report = content.similarity
    row = next(row for row in report.rows if row.is_distance and not row.generated.error)
    row = replace(row, generated=replace(row.generated, value=ratio), matched=1.0)
    html = section("similarity", replace(EMPTY, similarity=replace(report, rows=(row,))))
    pill = f'<span class="verdict {color}">{words}</span>'
    assert (pill in html) if words else ('class="verdict' not in html)


def test_systems_stand_with_both_times():
    times = SystemTimes(("ring", "switch"), (1.0, 2000.0), (1.5, 2500.0), "makespan in µs")
    html = section("simulation", replace(EMPTY, systems=times))
    assert cells(html) == [["ring", "1.00", "1.50"], ["switch", "2,000", "2,500"]]
    assert "<caption><span>Makespan in µs</span></caption>" in html
    assert "<figure" not in html


def test_simulated_quantities_need_no_table():
    shown = Distribution("makespan", "µs", (Sample("synthetic", np.arange(5.0)),))
    html = section("simulation", replace(EMPTY, simulations=(shown,)))
    assert ">µs</text>" in html
    assert "<table" not in html


@pytest.mark.parametrize(("charts", "bars"), [(True, False), (False, True), (True, True)])
def test_distributions_and_categories_each_come_with_a_legend(charts, bars):
    chart = Distribution("nodes", "", (Sample("real", np.arange(5.0)),))
    shares = CategoryFractions("op", ("a",), (("real", np.ones(1)),))
    content = replace(EMPTY, distributions=(chart,) * charts, shares=(shares,) * bars)
    html = section("distributions", content)
    assert html.count('<ul class="legend">') == charts + bars
    assert ("Categories" in html) is bars


def test_provenance_has_facts_caveats_or_both():
    facts = section("provenance", replace(EMPTY, provenance=(("seed", "<0>"),)))
    assert "<dl><dt>seed</dt><dd>&lt;0&gt;</dd></dl>" in facts
    assert "<ul>" not in facts
    caveats = section("provenance", replace(EMPTY, caveats=("Few graphs.",)))
    assert "<ul><li>Few graphs.</li></ul>" in caveats
    assert "<dl>" not in caveats


def test_rules_name_their_severity_and_repairs_their_count(content):
    alone = replace(EMPTY, structure=content.structure, repairs=(("a repair", 1234),))
    html = section("validity", alone)
    assert f"Share of graphs that keep each rule ({content.structure.graphs} synthetic" in html
    assert "a repair</th><td" in html
    assert "1,234" in html
    assert "distinct and" not in html  # no novelty was measured


def test_metrics_that_failed_are_listed_with_their_reason(content):
    report = content.similarity
    broken = replace(report.rows[0], generated=replace(
        report.rows[0].generated, value=None, error="too few graphs"))  # fmt: skip
    found = replace(EMPTY, similarity=replace(report, rows=(broken, *report.rows[1:])))
    html = section("similarity", found)
    assert f"<li>{metric_words(broken.metric)}: too few graphs</li>" in html
    assert "Not computed" not in section("similarity", replace(EMPTY, similarity=report))


def attack(
    verdict: Verdict, need: SampleSizeRequirement | None = None, name: str = "likelihood"
) -> AttackResult:
    return AttackResult(
        name, "what it does", 0.5, Interval(0.25, 0.75), 0.125, 20, 10, verdict, need
    )


@pytest.mark.parametrize(
    ("verdict", "color"),
    [
        (Verdict.LEAKS, "poor"),
        (Verdict.TOO_FEW, "fair"),
        (Verdict.REVERSED, "fair"),
        (Verdict.CHANCE, "good"),
    ],
)
def test_verdicts_have_a_color_and_attacks_on_weights_no_number_of_samples(verdict, color):
    html = section("membership", replace(EMPTY, weight_attacks=(attack(verdict),)))
    assert f'<span class="verdict {color}">{verdict.value}</span>' in html
    assert cells(html) == [
        [
            "Likelihood, by the weights",
            "the weights",
            "0.50 [0.25, 0.75]",
            "",
            "12.5%",
            verdict.value,
            "what it does",
        ]
    ]
    assert "held-out graphs. Chance gives" not in html


def test_what_a_verdict_lacks_stands_below_it():
    need = SampleSizeRequirement("held-out graphs", 10, 400)
    html = section("membership", replace(EMPTY, weight_attacks=(attack(Verdict.TOO_FEW, need),)))
    assert f'<br><span class="quiet">{need.in_words()}</span>' in html


def test_attacks_say_how_many_samples_they_looked_at(content):
    first, *rest = content.leaks.attacks
    one = replace(content.leaks, samples=1000, inferences=())
    leaks = replace(one, attacks=(replace(first, sampled=40), *rest))
    html = section("membership", replace(EMPTY, leaks=leaks))
    found = [(row[0], row[1]) for row in cells(html)]
    assert found[:2] == [("Nearer to training", "1,000"), (attack_words(first.name), "40")]
    assert found[2:] == [(attack_words(attack.name), "1,000") for attack in rest]
    members = one.attacks[0].members
    assert f"{members} training and {one.attacks[0].non_members} held-out graphs. " in html


def test_an_attack_stands_beside_itself_on_an_honest_holdout_with_its_low_rates():
    beside = replace(attack(Verdict.CHANCE), auc=0.49)
    rates = (DetectionRate(0.01, 0.02, Interval(0.01, 0.04), 0.3, None),)
    rates += (
        DetectionRate(0.001, None, None, None, SampleSizeRequirement("held-out graphs", 10, 1000)),
    )
    shown = replace(attack(Verdict.CHANCE), holdout=beside, rates=rates)
    [row] = cells(section("membership", replace(EMPTY, weight_attacks=(shown,))))
    assert row[2:5] == ["0.50 [0.25, 0.75]", "0.49 [0.25, 0.75]", "12.5%, 2.0%, —"]


def test_what_else_is_read_has_a_table(content):
    roles = Roles(np.arange(9), np.arange(7), np.arange(9))
    read = Inference.from_half_width(
        "model:depth", "depth", (0.5, 0.25, 0.125), 0.25, 0.5, margin=0.05, roles=roles
    )
    leaks = replace(content.leaks, attacks=(), inferences=(read,), samples=9)
    html = section("membership", replace(EMPTY, leaks=leaks))
    html = html[html.index("What samples say of the jobs") :]
    assert ["Depth", "9", "50.0%", "25.0%", "12.5%", "0.25 [-0.25, 0.75]"] in [
        found[:6] for found in cells(html)
    ]


@pytest.mark.parametrize(
    ("seeds", "words"),
    [
        ((3,), "one fit, seed 3"),
        ((0, 1), "mean of 2 fits, seeds 0 and 1"),
        ((0, 1, 5), "mean of 3 fits, seeds 0, 1 and 5"),
    ],
)
def test_fits_are_counted_in_words(seeds, words):
    assert fits(seeds) == words


def taught(family: str, condition: str, value: float) -> TransferRow:
    score = Score(value, None, (value,))
    return TransferRow(family, condition, 20, {metric.name: score for metric in SCORES})


def test_every_family_has_a_table_and_its_share_of_what_real_graphs_teach():
    rows = (taught("a", "real", 0.8), taught("a", "synthetic", 0.4), taught("b", "real", 0.5))
    shares = (
        ReachedFraction("a", "pearson", 0.5, Interval(0.25, 0.75)),
        ReachedFraction("a", "spearman", 0.5, None),
    )
    report = TransferReport(rows, shares, tested_on=9, seeds=(0, 1))
    html = section("usefulness", replace(EMPTY, transfer=report, target="the step time"))
    assert "Predictors learn the step time from the graph" in html
    assert "same 9 real graphs" in html
    assert "95 % over fits and test graphs" in html
    captions = re.findall(r"<caption>(.*?)</caption>", html)
    assert captions == [
        "<span>A: synthetic reaches 50.0% of the real correlation (25.0 to 75.0) and 50.0% of the "
        "real rank correlation</span>",
        "<span>B</span>",
    ]
    assert html.count("<tbody>") == 2
    guess = Score(0.1, Interval(-0.1, 0.3), (0.1,))
    real = replace(rows[0], scores={**rows[0].scores, "pearson": guess})
    html = section("usefulness", replace(EMPTY, transfer=replace(report, rows=(real, *rows[1:]))))
    assert "of the real rank correlation; the correlation of real graphs may be 0<" in html
    once = section("usefulness", replace(EMPTY, transfer=replace(report, seeds=(0,))))
    assert "95 % over test graphs" in once


def test_every_metric_and_score_has_words_without_underscores_and_colons():
    named = [metric for metric in DEFAULT_METRICS if isinstance(metric, Metric)]
    assert named
    for told in (
        *map(words.metric_words, named),
        *(words.score_words(s.name) for s in SCORES),
    ):
        assert told[0].isupper()
        assert "_" not in told
        assert ":" not in told


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("W1 of parents of a node", "distance (Wasserstein-1) in parents of a node"),
        ("surrogate's Pearson (boosting)", "correlation of a predictor (boosted trees)"),
        (
            "surrogate's Spearman (message_passing)",
            "rank correlation of a predictor (message passing)",
        ),
        ("median ratio", "median ratio"),
    ],
)
def test_lines_of_the_summary(what, told):
    assert words.summary_words(what) == told


def test_operators_keep_their_names_and_kinds_get_words():
    assert words.value_words("op", "aten::_foreach_add_") == "aten::_foreach_add_"
    assert words.value_words("type", "COMM_COLL") == "collective"
    assert words.value_words("collective", "ALL_REDUCE") == "all-reduce"


def test_what_is_unknown_is_written_without_underscores():
    assert words.attribute_words("my_number") == "My number"
    assert words.attack_words("new_attack") == "New attack"
    assert words.family_words("deep_sets") == "Deep sets"
    assert words.condition_words("other") == "Other"
