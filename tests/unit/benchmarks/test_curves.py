"""Quality over steps, graphs and width: what is fitted, what is seen, the page and its charts."""

import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import table_records
from benchmark_tables import base, curves, curves_page, judge, lines, runs, tables
from table_records import chain

from layerdag.datasets.dataset import GraphDataset


def source(data: GraphDataset) -> Any:
    return curves.Source("jobs", lambda: data, 6, (5, 20), (32,))


def test_points_share_the_usual_one_and_change_one_thing_each(data):
    points = curves.points_of(source(data), 300)
    assert points[0] == curves.Point("usual", 300, None, None)
    for point in points[1:]:
        changed = [point.steps != 300, point.graphs is not None, point.width is not None]
        assert sum(changed) == 1
    assert {point.steps for point in points} == {100, 300, 1000}
    assert len({point.name for point in points}) == len(points)


def test_more_graphs_include_fewer_and_other_seeds_draw_others(data):
    few, more = (curves.seen_of(data, count, seed=0) for count in (5, 20))
    assert [id(dag) for dag in few] == [id(dag) for dag in more[:5]]
    everything = curves.seen_of(data, None, seed=0)
    assert {id(dag) for dag in everything} == {id(dag) for dag in data.graphs["train"]}
    assert [id(dag) for dag in curves.seen_of(data, 5, seed=1)] != [id(dag) for dag in few]


def test_copies_are_of_graphs_that_the_model_saw():
    assert judge.copied([chain(3), chain(4), chain(4)], [chain(4)]) == pytest.approx(
        2 / 3, abs=1e-4
    )
    assert judge.copied([chain(3)], [chain(4)]) == 0.0


def test_samples_like_the_test_part_are_near_and_teach(data):
    judged = judge.Judge(data)
    train = list(data.graphs["train"])
    near = judged.figures(train, train[:10])
    assert near["mean_ratio"] == pytest.approx(1.0)
    assert near["new_neighborhoods"] == 0.0
    assert 10 / 60 <= near["copied"] < 1
    assert near["spearman"] > 0.5
    far = judged.similarity([chain(40), chain(41)])
    assert far["mean_ratio"] > 3
    assert set(far["ratios"]) == {*judge.SHAPE, f"attribute:{data.schema.attributes[0].name}"}


def test_a_draw_without_graphs_has_no_figures(data):
    assert judge.Judge(data).figures([], data.graphs["train"]) == {"samples": 0}


def record(name: str, seed: int = 0, **changes: Any) -> runs.Record:
    """Return a record of a fit; changes are of its point or its figures."""
    point = {"name": name, "steps": 300, "graphs": None, "width": None}
    config = {"task": "jobs", "part": "final", "draws": 2, "samples": 60, **point}
    draws = [
        {"mean_ratio": value, "copied": 0.5, "new_neighborhoods": 0.125, "pearson": 0.5}
        for value in (1.0, 2.0)
    ]
    figures = {
        "fit_seconds": 60.0, "seen": 439, "width": 128, "nats": 20.0, "draws": draws,
        "real": {"pearson": 0.25, "spearman": None},
    }  # fmt: skip
    for key, value in changes.items():
        (config if key in point else figures)[key] = value
    return table_records.record("curves", f"jobs-{name}-seed{seed}", figures, config, seed=seed)


def real() -> runs.Record:
    one = record("real")
    config = {"task": "jobs", "draws": 2, "samples": 60}
    return replace(one, run=runs.Run("jobs-real", "real", 0, config))


MADE = [
    real(),
    record("usual"),
    record("usual", seed=1, nats=22.0),
    record("steps1000", steps=1000, nats=10.0),
    record("graphs50", graphs=50, seen=50),
    record("width64", width=64),
]
MADE[-1].figures["width"] = 64


def test_each_axis_has_its_points_and_the_usual_one():
    steps, graphs, width = (
        [(value, len(fits)) for value, fits in curves_page.on_axis(MADE, across)]
        for across in curves_page.ACROSS
    )
    assert steps == [(300.0, 2), (1000.0, 1)]
    assert graphs == [(50.0, 1), (439.0, 2)]
    assert width == [(64.0, 1), (128.0, 2)]
    assert curves_page.on_axis(MADE[3:], curves_page.ACROSS[0]) == []


def test_intervals_are_students_over_the_draws_of_all_fits():
    found = curves_page.Estimate.of([1.0, 2.0, 1.0, 2.0], "mean_ratio")
    half = 3.1824 * np.std([1, 2, 1, 2], ddof=1) / 2
    assert (found.value, found.high) == pytest.approx((1.5, 1.5 + half), abs=1e-3)
    assert curves_page.Estimate.of([0.9, 1.0], "copied").high == 1.0
    assert curves_page.Estimate.of([0.5], "copied").text(100, 0) == "50"
    assert curves_page.estimate(MADE, "spearman") is None


def test_the_page_has_a_row_for_each_point_and_what_real_graphs_teach():
    text = curves.Curves().page(MADE)
    usual = "| 300 steps of training, 439 training graphs, width 128 | 60 | 21.0 |"
    assert f"{usual} 1.50 [0.58, 2.42] | 50 | 12.5 | 0.50 | - | 0.25 | - | 2 |" in text
    graphs = "| 50 training graphs | 60 | 20.0 | 1.50 [0.00, 7.85] | 50 | 12.5 | 0.50 | - |"
    assert f"{graphs} 0.25 | - | 1 |" in text
    assert text.count("| width ") == 1
    assert "2 x 60 (Jobs of the corpus of at most 160 nodes)" in text
    assert "TPU Tile" not in text.split("## How it was made")[0]
    assert "; Jobs of the corpus of at most 160 nodes: steps100, graphs200." in text
    assert curves.missing(MADE)["tpu_tile"][0] == "usual"


def test_charts_are_well_formed_and_have_the_points_of_the_page():
    table = tables.table_named("curves")
    (name, text), *others = tables.pictures_of(table, MADE).items()
    assert (name, others) == ("curves-jobs.svg", [])
    tree = ElementTree.fromstring(text)
    written = ["".join(one.itertext()) for one in tree.iter("{http://www.w3.org/2000/svg}text")]
    assert {"64", "128", "50", "439", "300", "1,000"} <= set(written)
    circles = list(tree.iter("{http://www.w3.org/2000/svg}circle"))
    assert len(circles) == 3 * 2 * 5  # nats, ratio, copies, neighborhoods, Pearson on three axes
    assert all(
        0 <= float(one.get("cy", "nan")) <= float(tree.get("height", "nan")) for one in circles
    )
    assert tables.pictures_of(tables.table_named("er-dag"), MADE) == {}


def test_a_smaller_value_is_drawn_lower():
    line = lines.Line([lines.Dot(1.0, 2.0, 1.0, 3.0), lines.Dot(10.0, 1.0, 0.5, 2.0)], level=1.0)
    text = lines.drawing("a", ["steps"], [lines.Panels(["figure"], [[line]])])
    tree = ElementTree.fromstring(text)
    one, other = tree.iter("{http://www.w3.org/2000/svg}circle")
    assert float(one.get("cx", "")) < float(other.get("cx", ""))
    assert float(one.get("cy", "")) < float(other.get("cy", ""))


def test_further_seeds_come_after_all_data_sets_and_the_longest_fit_is_last(
    tmp_path, monkeypatch, data
):
    table = curves.Curves()
    both = [replace(source(data), name="one"), replace(source(data), name="two")]
    monkeypatch.setattr(table, "sources", lambda: both)
    for name in ("figures_of", "real_figures"):
        monkeypatch.setattr(curves, name, lambda judge, run: {})
    options = base.Options(seconds=30.0, seeds=2)
    made = list(table.make(runs.Store("curves", tmp_path), options))
    order = [(r.run.config["task"], r.run.seed) for r in made if r.run.learner != "real"]
    count = len(curves.points_of(both[0], 300))
    seeds = [("one", 0)] * count + [("two", 0)] * count + [("one", 1)] * count
    assert order == [*seeds, ("one", 0)]
    assert made[-1].run.config["steps"] == 3000
    assert len(list(table.make(runs.Store("curves", tmp_path), options))) == len(made)


@pytest.mark.slow
def test_a_fit_of_a_few_steps_is_judged(data):
    config = {
        "graphs": 20, "width": 32, "steps": 4, "draws": 1, "samples": 6,
        "settings": curves.SETTINGS,
    }  # fmt: skip
    found = curves.figures_of(judge.Judge(data), runs.Run("a", "fast", 0, config))
    assert (found["seen"], found["width"], len(found["draws"])) == (20, 32, 1)
    assert found["nats"] > 0


@pytest.mark.parametrize(
    ("low", "high", "log", "expected"),
    [
        (0, 10, False, [0, 2, 4, 6, 8, 10]),
        (-2, -1, False, [-2, -1.8, -1.6, -1.4, -1.2, -1]),
        (1, 1000, True, [1, 10, 100, 1000]),
        (1, 50, True, [1, 2, 5, 10, 20, 50]),
        (20, 90, True, [20, 50]),
    ],
)
def test_ticks_are_round_and_inside(low, high, log, expected):
    axis = lines.ChartAxis(float(low), float(high), log, 34, 290)
    assert axis.ticks() == pytest.approx(expected)
