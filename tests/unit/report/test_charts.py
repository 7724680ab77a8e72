"""Ticks and places of an axis."""

import math
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from laws import tried

from layerdag.report.charts import (
    FRONT_BOTTOM,
    FRONT_HEIGHT,
    FRONT_LEFT,
    FRONT_RIGHT,
    FRONT_TOP,
    FRONT_WIDTH,
    MOST_DOTS,
    SHADES,
    SLOWEST,
    ChartAxis,
    distribution_chart,
    front_chart,
    heat_map,
    legend,
    ratio_strip,
    shares_chart,
    tick_text,
    timeline_chart,
)
from layerdag.report.content import CategoryFractions, Distribution, Lane, Sample, Timeline
from layerdag.statistics import Interval
from layerdag.viz.html import Markup
from layerdag.workloads.exploration import PlanOutcome


def axis(low: float, high: float, log: bool) -> ChartAxis:
    """Return an axis of 256 pixels that begins at 34."""
    return ChartAxis(low, high, log, 34, 290)


@tried(40)
@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
def test_ticks_of_a_linear_axis_are_round_and_inside(low, span):
    ticks = axis(low, low + span, False).ticks()
    assert 2 <= len(ticks) <= 7
    assert all(low - 1e-6 * span <= tick <= low + span * (1 + 1e-6) for tick in ticks)
    gaps = np.diff(ticks)
    assert np.allclose(gaps, gaps[0])
    digits = f"{gaps[0]:.3e}"
    assert digits[:5] in ("1.000", "2.000", "5.000")


@tried(40)
@given(st.floats(1e-6, 1e6), st.floats(1.01, 1e9))
def test_ticks_of_a_logarithmic_axis_are_round_and_inside(low, factor):
    ticks = axis(low, low * factor, True).ticks()
    assert len(ticks) <= 12
    assert ticks == sorted(ticks)
    # An even step of a range of less than a decade may lie a rounding error beyond it.
    assert all(low * (1 - 1e-3) <= tick <= low * factor * (1 + 1e-3) for tick in ticks)


@pytest.mark.parametrize(
    ("low", "high", "log", "expected"),
    [
        (0, 10, False, [0, 2, 4, 6, 8, 10]),
        (0, 3, False, [0, 1, 2, 3]),
        (-1, 1, False, [-1, -0.5, 0, 0.5, 1]),
        (-2, -1, False, [-2, -1.8, -1.6, -1.4, -1.2, -1]),
        (1, 1000, True, [1, 10, 100, 1000]),
        (1, 50, True, [1, 2, 5, 10, 20, 50]),
        (20, 90, True, [20, 50]),
    ],
)
def test_ticks_by_hand(low, high, log, expected):
    assert axis(float(low), float(high), log).ticks() == pytest.approx(expected)


def test_places_on_the_axis_are_even_in_value_or_in_its_logarithm():
    assert axis(0.0, 10.0, False).x(np.array([0.0, 5.0, 10.0])).tolist() == [34, 162, 290]
    assert axis(1.0, 100.0, True).x(np.array([0.0, 1.0, 10.0, 100.0])).tolist() == [
        34,
        34,
        162,
        290,
    ]


def test_bins_are_equally_wide_on_the_axis():
    assert axis(0.0, 8.0, False).edges(4).tolist() == [0, 2, 4, 6, 8]
    assert axis(1.0, 10_000.0, True).edges(2).tolist() == pytest.approx([1, 100, 10_000])


@pytest.mark.parametrize(
    ("value", "shown"), [(0.0, "0"), (1200.0, "1,200"), (0.25, "0.25"), (1e7, "1.0e+07")]
)
def test_whole_numbers_have_no_decimals(value, shown):
    assert tick_text(value) == shown


def test_shares_show_the_largest_categories_and_count_the_rest():
    labels = tuple(f"op{i}" for i in range(20))
    shares = (("real", np.arange(20) / 190), ("synthetic", np.arange(20) / 190))
    page = shares_chart(CategoryFractions("op", labels, shares), most=5).html
    figure = ET.fromstring(page)
    assert len(list(figure.iter("rect"))) == 10
    assert "op19" in page
    assert "op3<" not in page
    assert "15 not shown" in page


def test_long_names_of_one_family_stay_apart_and_whole_when_pointed_at():
    names = ("aten::_embedding_bag", "aten::_embedding_bag_backward", "mm")
    page = shares_chart(CategoryFractions("op", names, (("real", np.full(3, 1 / 3)),))).html
    figure = ET.fromstring(page)
    labels = [text for text in figure.iter("text") if text.find("title") is not None]
    assert [label.findtext("title") for label in labels] == list(names)
    shown = [(title.tail or "") for label in labels for title in label.iter("title")]
    assert len(set(shown)) == 3
    assert shown[2] == "mm"
    assert max(map(len, shown)) == 17
    assert not any(name.startswith("aten::") for name in shown)


def test_bars_are_as_long_as_their_shares():
    """The longest bar is 128 wide; labels stand on the left, the largest share behind the bars."""
    shares = (("real", np.array([0.5, 0.25])), ("synthetic", np.array([0.125, 0.5])))
    figure = ET.fromstring(shares_chart(CategoryFractions("op", ("a", "b"), shares)).html)
    bars = [(bar.attrib["class"], float(bar.attrib["width"])) for bar in figure.iter("rect")]
    assert bars == [("bar s1", 128), ("bar s2", 32), ("bar s1", 64), ("bar s2", 128)]
    titles = [title.text for bar in figure.iter("rect") for title in bar.iter("title")]
    assert titles[:2] == ["real: 50.00 %", "synthetic: 12.50 %"]
    words = [text.text for text in figure.iter("text") if text.text]
    assert words == ["50.0%", "50.0%", "share of nodes, %"]


def test_equal_shares_keep_their_order_and_nothing_has_bars_of_no_length():
    shares = (("real", np.zeros(3)), ("synthetic", np.zeros(3)))
    page = shares_chart(CategoryFractions("op", ("b", "a", "c"), shares)).html
    assert "nan" not in page
    figure = ET.fromstring(page)
    assert {float(bar.attrib["width"]) for bar in figure.iter("rect")} == {0.0}
    names = [t.findtext("title") for t in figure.iter("text") if t.find("title") is not None]
    assert names == ["b", "a", "c"]


def test_a_category_of_one_sample_alone_is_shown_by_its_size_there():
    shares = (("real", np.array([0.6, 0.4, 0.0])), ("synthetic", np.array([0.5, 0.0, 0.5])))
    page = shares_chart(CategoryFractions("op", ("a", "<b>", "new"), shares), most=2).html
    names = [t.findtext("title") for t in ET.fromstring(page).iter("text")]
    assert [name for name in names if name] == ["a", "new"]
    assert "op (largest 2, 1 not shown)" in page


def test_no_categories_make_an_empty_chart():
    empty = (("real", np.empty(0)),)
    figure = ET.fromstring(shares_chart(CategoryFractions("op", (), empty), items="jobs").html)
    assert not list(figure.iter("rect"))
    assert [text.text for text in figure.iter("text")] == ["share of jobs, %"]


def test_a_distribution_has_a_histogram_and_a_line_a_sample(rng):
    samples = tuple(Sample(name, rng.random(500)) for name in ("real <1>", "synthetic"))
    figure = ET.fromstring(distribution_chart(Distribution("time", "µs", samples)).html)
    lines = [path for path in figure.iter("path") if "line" in path.attrib["class"]]
    assert [line.attrib["class"] for line in lines] == ["line s1"] * 2 + ["line s2"] * 2
    svg = figure.find("svg")
    assert svg is not None
    assert "real <1>" in svg.attrib["aria-label"]
    # many values are thinned, so that pages stay small
    assert all(len(line.attrib["d"]) < 5000 for line in lines)


@pytest.mark.parametrize(
    ("values", "log"),
    [([[0.0, 10.0, 1000.0], [10.0] * 5], True), ([[7.0] * 3] * 2, False), ([[]], False)],
)
def test_zeros_constants_and_nothing_can_be_drawn(values, log):
    samples = tuple(Sample(name, np.array(each)) for name, each in zip("ab", values, strict=False))
    page = distribution_chart(Distribution("size", "", samples, log=log)).html
    assert "nan" not in page
    assert "inf" not in page
    ET.fromstring(page)


def path_of(chart: Markup, slot: int, part: int = 1) -> list[tuple[str, float]]:
    """Return the commands of the histogram (0) or line (1) of a sample, with their numbers."""
    figure = ET.fromstring(chart.html)
    line = [p for p in figure.iter("path") if p.attrib["class"] == f"line s{slot}"][part]
    return [(c, float(n)) for c, n in re.findall(r"([HV])(-?[\d.]+)", line.attrib["d"])]


def test_a_cumulative_line_rises_at_each_value_by_its_share():
    """Values 0, 5, 10 with weights 1, 2, 1 on an axis from 0 to 10 that is 240 wide, 110 high."""
    sample = Sample("s", np.array([10.0, 0.0, 5.0]), np.array([1.0, 1.0, 2.0]))
    steps = path_of(distribution_chart(Distribution("d", "", (sample,))), 2)
    assert steps == [
        ("H", 50), ("V", 84 + 110 * 0.75), ("H", 50 + 120), ("V", 84 + 110 * 0.25),
        ("H", 290), ("V", 84), ("H", 290),
    ]  # fmt: skip


def test_equal_values_are_one_step_and_outliers_are_cut_off():
    values = np.concatenate([np.repeat([1.0, 2.0], 500), [1e6]])
    chart = distribution_chart(Distribution("d", "", (Sample("s", values),)))
    steps = [number for command, number in path_of(chart, 2) if command == "H"]
    assert len(steps) == 4
    assert (steps[0], steps[1]) == (50, 290)  # 1 and 2 are the whole axis
    assert steps[2] == 290


def test_a_histogram_has_the_share_of_each_bin_and_outliers_at_its_ends():
    """Three quarters are in the first of 16 bins, the highest, and one quarter in the last."""
    values = np.repeat([0.0, 16.0], [600, 200])
    steps = path_of(distribution_chart(Distribution("d", "", (Sample("s", values),))), 2, part=0)
    heights = [number for command, number in steps if command == "V"]
    assert heights[0] == 8
    assert heights[1:15] == [68] * 14
    assert heights[15] == pytest.approx(68 - 60 / 3, abs=0.05)


def test_axes_have_titles_with_their_unit():
    shown = Distribution("time of a step", "ms", (Sample("s", np.array([1.0, 9.0])),), log=True)
    figure = ET.fromstring(distribution_chart(shown).html)
    titles = [t.text for t in figure.iter("text") if t.attrib["class"] == "axis-title"]
    assert titles == ["ms, logarithmic", "share", "share up to here"]
    assert figure.findtext("figcaption") == "Time of a step"


def test_a_sample_of_nothing_is_a_line_at_the_bottom_beside_the_others():
    """Graphs without dependencies have no figure of a dependency."""
    samples = (Sample("real", np.array([1.0, 3.0])), Sample("synthetic", np.empty(0)))
    for log in (False, True):
        chart = distribution_chart(Distribution("d", "", samples, log=log))
        assert "nan" not in chart.html
        assert path_of(chart, 2) == [("H", 290)]
        assert {n for command, n in path_of(chart, 2, part=0) if command == "V"} == {68}
        assert len(path_of(chart, 1)) == 5


def test_neither_the_order_of_values_nor_their_repetition_changes_a_line(rng):
    values = rng.integers(0, 30, 150).astype(float)
    same = (rng.permutation(values), np.tile(values, 3))
    charts = [
        distribution_chart(Distribution("d", "", (Sample("s", each),))) for each in (values, *same)
    ]
    assert path_of(charts[0], 2) == path_of(charts[1], 2) == path_of(charts[2], 2)


def test_lines_rise_from_left_to_right_and_stay_inside(rng):
    sample = Sample("s", rng.lognormal(0, 3, 900), rng.random(900))
    steps = path_of(distribution_chart(Distribution("d", "", (sample,), log=True)), 2)
    across = [number for command, number in steps if command == "H"]
    down = [number for command, number in steps if command == "V"]
    assert across == sorted(across)
    assert down == sorted(down, reverse=True)
    assert (min(across) >= 50, max(across) <= 290, down[-1]) == (True, True, 84)


def test_a_ratio_outside_the_strip_stays_on_its_edge():
    page = ratio_strip(1000.0, Interval(0.001, 1e6)).html
    circle = ET.fromstring(page).find("circle")
    assert circle is not None
    assert float(circle.attrib["cx"]) == 116
    assert ratio_strip(None, None).html == ""


def test_the_strip_has_one_at_a_third_of_its_logarithm():
    """From 1/4 to 16 are three factors of four; a ratio of 1 lies behind the first."""
    svg = ET.fromstring(ratio_strip(1.0, Interval(0.25, 4.0)).html)
    one, whisker = svg.findall("line")
    assert float(one.attrib["x1"]) == pytest.approx(4 + 112 / 3, abs=0.05)
    assert float(svg.find("circle").attrib["cx"]) == pytest.approx(4 + 112 / 3, abs=0.05)
    ends = (float(whisker.attrib["x1"]), float(whisker.attrib["x2"]))
    assert ends == pytest.approx((4, 4 + 112 * 2 / 3), abs=0.05)
    assert len(ET.fromstring(ratio_strip(2.0, None).html).findall("line")) == 1


@pytest.mark.parametrize(
    ("count", "slots"), [(1, ["s2"]), (2, ["s1", "s2"]), (3, ["s0", "s1", "s2"])]
)
def test_the_last_sample_is_the_synthetic_one_in_every_legend(count, slots):
    found = ET.fromstring(legend(tuple(f"<{n}>" for n in range(count))).html)
    assert [path.attrib["class"] for path in found.iter("path")] == [f"line {s}" for s in slots]
    assert [item[0].tail for item in found] == [f"<{n}>" for n in range(count)]


SLOTS = {"matrix product": 0, "communication": 3}


def chart(*lanes: Lane, end_ms: float = 10.0) -> ET.Element:
    job = Timeline("A <job>", lanes, 8.0, 2)
    return ET.fromstring(timeline_chart(job, SLOTS, end_ms).html)


def lane(name: str, *pieces: tuple[float, float, str]) -> Lane:
    start, end, kind = zip(*pieces, strict=True)
    return Lane(name, np.array(start), np.array(end), kind)


def spans(path: ET.Element) -> list[tuple[float, float]]:
    found = re.findall(r"M([\d.]+) \d+H([\d.]+)", path.attrib["d"])
    return [(float(a), float(b)) for a, b in found]


def test_pieces_stand_at_their_times_in_the_color_of_their_kind():
    """Ten milliseconds are 328 pixels from 142 on."""
    figure = chart(
        lane("rank 0 computes", (0.0, 5.0, "matrix product")),
        lane("rank 0 communicates", (5.0, 10.0, "communication")),
    )
    first, second = figure.iter("path")
    assert (first.attrib["class"], spans(first)) == ("k0", [(142, 306)])
    assert (second.attrib["class"], spans(second)) == ("k3", [(306, 470)])
    assert first.findtext("title") == "matrix product"


def test_neighbors_of_a_kind_are_one_piece_and_nothing_is_too_small_to_be_seen():
    tiny = [(0.001 * i, 0.001 * i + 0.0005, "matrix product") for i in range(1000)]
    figure = chart(lane("rank 0 computes", *tiny, (9.0, 9.0, "matrix product")))
    (path,) = figure.iter("path")
    many, one = spans(path)
    assert many[0] == 142
    assert one[1] > one[0]


def test_lanes_are_named_and_the_axis_has_a_unit():
    figure = chart(lane("rank 1 computes", (0.0, 1.0, "unknown kind")))
    words = [text.text for text in figure.iter("text")]
    assert "rank 1 computes" in words
    assert words[-2:] == ["simulated time (ms)", "rank 1 computes"]
    assert next(figure.iter("path")).attrib["class"] == "k7"  # what has no color of its own
    assert figure.findtext("figcaption") == "A <job>, 8 ms"


def test_a_job_that_takes_no_time_and_a_lane_without_work_can_be_drawn():
    idle = Lane("rank 1 communicates", np.empty(0), np.empty(0), ())
    figure = chart(lane("rank 0 computes", (0.0, 0.0, "matrix product")), idle, end_ms=0.0)
    (path,) = figure.iter("path")
    ((left, right),) = spans(path)
    assert 0 < right - left < 1
    assert len([r for r in figure.iter("rect") if r.attrib["class"] == "lane"]) == 2


def test_the_order_of_pieces_does_not_matter_and_overlaps_are_one_piece():
    pieces = [(6.0, 7.0, "matrix product"), (0.0, 4.0, "matrix product"),
              (1.0, 2.0, "matrix product")]  # fmt: skip
    found = [spans(next(chart(lane("r", *each)).iter("path"))) for each in (pieces, pieces[::-1])]
    assert found[0] == found[1] == [(142, 273.2), (338.8, 371.6)]


PLAN = PlanOutcome(
    **{"model": "gpt", "cluster": "a <b>", "ranks": 8, "memory_gib": 10.0, "fits": True},
    settings={"data": 1, "tensor": 8, "sequence_parallel": True, "pipeline": 1, "zero": 0},
    step_s=1.0,
    cost=0.5,
)
FRONT_SLOTS = {"a <b>": 1, "c": 2}


def plan(**changes: Any) -> PlanOutcome:
    """Return the plan with other settings or figures."""
    settings = {name: changes.pop(name, value) for name, value in PLAN.settings.items()}
    return replace(PLAN, settings=settings, **changes)


def outcomes(*figures: tuple[float, float]) -> list[PlanOutcome]:
    """Return plans of these step times and costs, each with a tensor degree of its own."""
    return [
        plan(step_s=step_s, cost=cost, tensor=2 + number)
        for number, (step_s, cost) in enumerate(figures)
    ]


def drawn(found: list[PlanOutcome], front: list[PlanOutcome], *, priced: bool = True) -> ET.Element:
    return ET.fromstring(front_chart(found, front, FRONT_SLOTS, priced).html)


def places(figure: ET.Element) -> list[tuple[float, float]]:
    return [(float(dot.attrib["cx"]), float(dot.attrib["cy"])) for dot in figure.iter("circle")]


def test_faster_plans_lie_to_the_left_and_dearer_ones_above():
    found = outcomes((1.0, 0.5), (2.0, 0.5), (1.0, 2.0))
    base, slower, dearer = places(drawn(found, []))
    assert slower[0] > base[0]
    assert slower[1] == base[1]
    assert dearer[1] < base[1]
    assert dearer[0] == base[0]


def test_equal_ratios_are_equal_distances():
    one, two, four = places(drawn(outcomes((1.0, 1.0), (2.0, 2.0), (4.0, 4.0)), []))
    assert two[0] - one[0] == pytest.approx(four[0] - two[0], abs=0.11)
    assert one[1] - two[1] == pytest.approx(two[1] - four[1], abs=0.11)


@pytest.mark.parametrize("figures", [[(3.0, 7.0)], [(1e-6, 1e-9), (1e5, 1e7)]])
def test_every_dot_lies_inside_the_frame(figures):
    for x, y in places(drawn(outcomes(*figures), [])):
        assert FRONT_LEFT < x < FRONT_WIDTH - FRONT_RIGHT
        assert FRONT_TOP < y < FRONT_HEIGHT - FRONT_BOTTOM


def test_the_line_goes_through_the_dots_of_the_front_which_are_larger():
    found = outcomes((1.0, 3.0), (2.0, 1.0), (4.0, 2.0))
    figure = drawn(found, found[:2])
    (line,) = figure.iter("polyline")
    ends = [tuple(map(float, pair.split(","))) for pair in line.attrib["points"].split()]
    assert ends == places(figure)[:2]
    assert [float(dot.attrib["r"]) for dot in figure.iter("circle")] == [4.5, 4.5, 2.5]


def test_dots_have_the_color_of_their_cluster_and_tell_their_plan():
    found = [PLAN, plan(cluster="c", tensor=2)]
    first, second = drawn(found, []).iter("circle")
    assert (first.attrib["class"], second.attrib["class"]) == ("k1", "k2")
    title = first.find("title")
    assert title is not None
    assert title.text == f"a <b>: {PLAN.plan}"


@pytest.mark.parametrize(("priced", "told"), [(True, "cost of a step"), (False, "memory")])
def test_without_prices_memory_is_the_second_figure(priced, told):
    heavy = plan(memory_gib=80.0, tensor=2)
    figure = drawn([PLAN, heavy], [PLAN], priced=priced)
    svg = figure.find("svg")
    assert svg is not None
    assert svg.attrib["aria-label"].startswith(f"Step time against {told}")
    assert "2 plans, 1 on the front" in svg.attrib["aria-label"]
    light, other = places(figure)
    assert (light[1] == other[1]) is priced  # both cost the same


def test_marks_are_round_and_rise_along_the_axis():
    figure = drawn(outcomes((0.03, 1.0), (70.0, 1.0)), [])
    marks = [
        (float(text.attrib["x"]), float(str(text.text)))
        for text in figure.iter("text")
        if text.attrib.get("text-anchor") == "middle" and str(text.text)[0].isdigit()
    ]
    values = [value for _, value in sorted(marks)]
    assert values == sorted(values)
    assert {0.1, 1.0, 10.0} <= set(values)
    assert all(round(v / 10 ** math.floor(math.log10(v)), 6) in (1, 2, 5) for v in values)


def test_very_many_plans_keep_those_of_the_front():
    many = outcomes(*((1 + i / 100, 1.0) for i in range(MOST_DOTS + 50)))
    figure = drawn(many, many[-3:])
    assert len(places(figure)) == MOST_DOTS
    assert [float(dot.attrib["r"]) for dot in figure.iter("circle")].count(4.5) == 3


def cells(outcomes: list[PlanOutcome], best_s: float = 1.0) -> list[list[tuple[str, str]]]:
    """Return the attributes and the text of each cell of the body, headers left out."""
    html = heat_map(outcomes, "tensor", "pipeline", best_s).html
    (body,) = re.findall(r"<tbody>(.*?)</tbody>", html)
    rows = re.findall(r"<tr>(.*?)</tr>", body)
    return [re.findall(r"<td([^>]*)>([^<]*)</td>", row) for row in rows]


def shade(attributes: str) -> int:
    return int(re.findall(r"--accent\) (\d+)%", attributes)[0])


def test_rows_and_columns_rise_whatever_the_order_of_plans():
    found = [plan(tensor=t, pipeline=p) for t, p in ((16, 1), (2, 4), (2, 1), (16, 4))]
    html = heat_map(found, "tensor", "pipeline", 1.0).html
    assert re.findall(r'<th scope="row"[^>]*>(\d+)', html) == ["2", "16"]
    assert re.findall(r'<th scope="col"[^>]*>(\d+)', html) == ["1", "4"]


def test_a_cell_shows_its_fastest_plan():
    slow = plan(step_s=2.5, zero=1)
    fast = plan(step_s=1.25, zero=3)
    ((cell,),) = cells([slow, fast])
    assert cell[1] == "1.25"
    assert fast.plan in cell[0]


def test_the_fastest_has_most_color_and_the_slowest_none():
    times = (1.0, (1 + SLOWEST) / 2, SLOWEST, 9.0)
    found = [plan(step_s=t, pipeline=2**i) for i, t in enumerate(times)]
    (row,) = cells(found)
    # Half way to the slowest there is half of the color; beyond it none, never a negative share.
    assert [shade(attributes) for attributes, _ in row] == [SHADES, SHADES // 2, 0, 0]


def test_what_does_not_fit_tells_its_memory_and_what_was_not_tried_says_so():
    large = plan(step_s=None, memory_gib=2000.0, fits=False)
    larger = replace(large, memory_gib=3000.0, settings={**large.settings, "zero": 1})
    found = [large, larger, plan(tensor=4, pipeline=2)]
    (first, second) = cells(found)
    assert [text for _, text in first] == ["—", "1"]
    assert "no such plan" in first[0][0]
    assert [text for _, text in second] == ["too large", "—"]
    assert "at least 2,000 GiB" in second[0][0]


def test_a_plan_that_fits_beside_one_that_does_not_is_shown():
    large = plan(step_s=None, fits=False)
    ((cell,),) = cells([large, plan(zero=3)])
    assert cell[1] == "1"


@pytest.mark.parametrize("name", ["tensor", "pipeline"])
def test_the_table_can_be_scrolled_and_has_a_name(name):
    html = heat_map([PLAN], "tensor", "pipeline", 1.0).html
    assert 'tabindex="0"' in html
    assert 'role="group"' in html
    (label,) = re.findall(r'aria-label="([^"]*)"', html)
    assert name in label
