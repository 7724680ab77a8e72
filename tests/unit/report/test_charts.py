import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from hypothesis import given, strategies as st
from laws import tried

from layerdag.evaluation.metrics import Interval
from layerdag.report import (
    CategoryFractions,
    Distribution,
    Sample,
    distribution_chart,
    legend,
    ratio_strip,
    shares_chart,
)
from layerdag.report._charts import _Axis
from layerdag.viz import Markup


def test_a_distribution_has_one_line_a_sample(rng: np.random.Generator) -> None:
    samples = tuple(Sample(name, rng.random(500)) for name in ("real <1>", "synthetic"))
    figure = ET.fromstring(distribution_chart(Distribution("time", "µs", samples)).html)
    lines = [path for path in figure.iter("path") if "line" in path.attrib["class"]]
    assert [line.attrib["class"] for line in lines] == ["line s1", "line s2"]
    svg = figure.find("svg")
    assert svg is not None
    assert "real <1>" in svg.attrib["aria-label"]
    # many values are thinned, so that pages stay small
    assert all(len(line.attrib["d"]) < 5000 for line in lines)


def test_a_logarithmic_axis_takes_zeros_and_constants() -> None:
    samples = (Sample("a", np.array([0.0, 10.0, 1000.0])), Sample("b", np.full(5, 10.0)))
    page = distribution_chart(Distribution("size", "", samples, log=True)).html
    assert "nan" not in page
    assert "inf" not in page
    ET.fromstring(page)


def test_a_constant_has_a_range_around_it() -> None:
    samples = (Sample("a", np.full(3, 7.0)), Sample("b", np.full(3, 7.0)))
    assert "nan" not in distribution_chart(Distribution("size", "", samples)).html


def test_shares_show_the_largest_categories_and_count_the_rest() -> None:
    labels = tuple(f"op{i}" for i in range(20))
    shares = (("real", np.arange(20) / 190), ("synthetic", np.arange(20) / 190))
    page = shares_chart(CategoryFractions("op", labels, shares), most=5).html
    figure = ET.fromstring(page)
    assert len(list(figure.iter("rect"))) == 10
    assert "op19" in page
    assert "op3<" not in page
    assert "15 not shown" in page


def test_a_ratio_outside_the_strip_stays_on_its_edge() -> None:
    page = ratio_strip(1000.0, Interval(0.001, 1e6)).html
    circle = ET.fromstring(page).find("circle")
    assert circle is not None
    assert float(circle.attrib["cx"]) == 116
    assert ratio_strip(None, None).html == ""


def test_long_names_of_one_family_stay_apart_and_whole_when_pointed_at() -> None:
    names = ("aten::_embedding_bag", "aten::_embedding_bag_backward", "mm")
    page = shares_chart(CategoryFractions("op", names, (("real", np.full(3, 1 / 3)),))).html
    figure = ET.fromstring(page)
    labels = [text for text in figure.iter("text") if text.find("title") is not None]
    assert [label.findtext("title") for label in labels] == list(names)
    shown = [(title.tail or "") for label in labels for title in label.iter("title")]
    assert len(set(shown)) == 3
    assert shown[2] == "mm"
    assert max(map(len, shown)) == 17


def path_of(chart: Markup, slot: int) -> list[tuple[str, float]]:
    """Return the commands of the line of a sample, with their numbers."""
    figure = ET.fromstring(chart.html)
    (line,) = (p for p in figure.iter("path") if p.attrib["class"] == f"line s{slot}")
    return [(c, float(n)) for c, n in re.findall(r"([HV])(-?[\d.]+)", line.attrib["d"])]


def test_a_cumulative_line_rises_at_each_value_by_its_share() -> None:
    """Values 0, 5, 10 with weights 1, 2, 1 on an axis from 0 to 10 that is 256 wide, 132 high."""
    sample = Sample("s", np.array([10.0, 0.0, 5.0]), np.array([1.0, 1.0, 2.0]))
    steps = path_of(distribution_chart(Distribution("d", "", (sample,))), 2)
    assert steps == [
        ("H", 34), ("V", 8 + 132 * 0.75), ("H", 34 + 128), ("V", 8 + 132 * 0.25),
        ("H", 290), ("V", 8), ("H", 290),
    ]  # fmt: skip


def test_equal_values_are_one_step_and_outliers_are_cut_off() -> None:
    values = np.concatenate([np.repeat([1.0, 2.0], 500), [1e6]])
    chart = distribution_chart(Distribution("d", "", (Sample("s", values),)))
    steps = [number for command, number in path_of(chart, 2) if command == "H"]
    assert len(steps) == 4
    assert (steps[0], steps[1]) == (34, 290)  # 1 and 2 are the whole axis
    assert steps[2] == 290


@tried(40)
@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
def test_ticks_of_a_linear_axis_are_round_and_inside(low: float, span: float) -> None:
    ticks = _Axis(low, low + span, log=False).ticks()
    assert 2 <= len(ticks) <= 7
    assert all(low - 1e-6 * span <= tick <= low + span * (1 + 1e-6) for tick in ticks)
    gaps = np.diff(ticks)
    assert np.allclose(gaps, gaps[0])
    digits = f"{gaps[0]:.3e}"
    assert digits[:5] in ("1.000", "2.000", "5.000")


@tried(40)
@given(st.floats(1e-6, 1e6), st.floats(1.01, 1e9))
def test_ticks_of_a_logarithmic_axis_are_round_and_inside(low: float, factor: float) -> None:
    ticks = _Axis(low, low * factor, log=True).ticks()
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
def test_ticks_by_hand(low: float, high: float, log: bool, expected: list[float]) -> None:
    assert _Axis(float(low), float(high), log).ticks() == pytest.approx(expected)


def test_places_on_the_axis_are_even_in_value_or_in_its_logarithm() -> None:
    assert _Axis(0.0, 10.0, False).x(np.array([0.0, 5.0, 10.0])).tolist() == [34, 162, 290]
    assert _Axis(1.0, 100.0, True).x(np.array([0.0, 1.0, 10.0, 100.0])).tolist() == [
        34,
        34,
        162,
        290,
    ]


def test_bars_are_as_long_as_their_shares() -> None:
    """The longest bar is 128 wide; labels stand on the left, the largest share behind the bars."""
    shares = (("real", np.array([0.5, 0.25])), ("synthetic", np.array([0.125, 0.5])))
    figure = ET.fromstring(shares_chart(CategoryFractions("op", ("a", "b"), shares)).html)
    bars = [(bar.attrib["class"], float(bar.attrib["width"])) for bar in figure.iter("rect")]
    assert bars == [("bar s1", 128), ("bar s2", 32), ("bar s1", 64), ("bar s2", 128)]
    titles = [title.text for bar in figure.iter("rect") for title in bar.iter("title")]
    assert titles[:2] == ["real: 50.00 %", "synthetic: 12.50 %"]
    assert [text.text for text in figure.iter("text") if text.text] == ["50.0 %", "50.0 %"]


def test_the_strip_has_one_at_a_third_of_its_logarithm() -> None:
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
def test_the_last_sample_is_the_synthetic_one_in_every_legend(count: int, slots: list) -> None:
    found = ET.fromstring(legend(tuple(f"<{n}>" for n in range(count))).html)
    assert [path.attrib["class"] for path in found.iter("path")] == [f"line {s}" for s in slots]
    assert [item[0].tail for item in found] == [f"<{n}>" for n in range(count)]
