"""Histograms and cumulative distributions."""

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from layerdag.report import Distribution, Sample, distribution_chart
from layerdag.viz import Markup


def test_a_distribution_has_a_histogram_and_a_line_a_sample(rng: np.random.Generator) -> None:
    samples = tuple(Sample(name, rng.random(500)) for name in ("real <1>", "synthetic"))
    figure = ET.fromstring(distribution_chart(Distribution("time", "µs", samples)).html)
    lines = [path for path in figure.iter("path") if "line" in path.attrib["class"]]
    assert [line.attrib["class"] for line in lines] == ["line s1"] * 2 + ["line s2"] * 2
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


def path_of(chart: Markup, slot: int, part: int = 1) -> list[tuple[str, float]]:
    """Return the commands of the histogram (0) or line (1) of a sample, with their numbers."""
    figure = ET.fromstring(chart.html)
    line = [p for p in figure.iter("path") if p.attrib["class"] == f"line s{slot}"][part]
    return [(c, float(n)) for c, n in re.findall(r"([HV])(-?[\d.]+)", line.attrib["d"])]


def test_a_cumulative_line_rises_at_each_value_by_its_share() -> None:
    """Values 0, 5, 10 with weights 1, 2, 1 on an axis from 0 to 10 that is 240 wide, 110 high."""
    sample = Sample("s", np.array([10.0, 0.0, 5.0]), np.array([1.0, 1.0, 2.0]))
    steps = path_of(distribution_chart(Distribution("d", "", (sample,))), 2)
    assert steps == [
        ("H", 50), ("V", 84 + 110 * 0.75), ("H", 50 + 120), ("V", 84 + 110 * 0.25),
        ("H", 290), ("V", 84), ("H", 290),
    ]  # fmt: skip


def test_equal_values_are_one_step_and_outliers_are_cut_off() -> None:
    values = np.concatenate([np.repeat([1.0, 2.0], 500), [1e6]])
    chart = distribution_chart(Distribution("d", "", (Sample("s", values),)))
    steps = [number for command, number in path_of(chart, 2) if command == "H"]
    assert len(steps) == 4
    assert (steps[0], steps[1]) == (50, 290)  # 1 and 2 are the whole axis
    assert steps[2] == 290


def test_a_histogram_has_the_share_of_each_bin_and_outliers_at_its_ends() -> None:
    """Three quarters are in the first of 16 bins, the highest, and one quarter in the last."""
    values = np.repeat([0.0, 16.0], [600, 200])
    steps = path_of(distribution_chart(Distribution("d", "", (Sample("s", values),))), 2, part=0)
    heights = [number for command, number in steps if command == "V"]
    assert heights[0] == 8
    assert heights[1:15] == [68] * 14
    assert heights[15] == pytest.approx(68 - 60 / 3, abs=0.05)


def test_axes_have_titles_with_their_unit() -> None:
    shown = Distribution("time of a step", "ms", (Sample("s", np.array([1.0, 9.0])),), log=True)
    figure = ET.fromstring(distribution_chart(shown).html)
    titles = [t.text for t in figure.iter("text") if t.attrib["class"] == "axis-title"]
    assert titles == ["ms, logarithmic", "share", "share up to here"]
    assert figure.findtext("figcaption") == "Time of a step"


def test_a_sample_of_nothing_is_a_line_at_the_bottom_beside_the_others() -> None:
    """Graphs without dependencies have no figure of a dependency."""
    samples = (Sample("real", np.array([1.0, 3.0])), Sample("synthetic", np.empty(0)))
    for log in (False, True):
        chart = distribution_chart(Distribution("d", "", samples, log=log))
        assert "nan" not in chart.html
        assert path_of(chart, 2) == [("H", 290)]
        assert {n for command, n in path_of(chart, 2, part=0) if command == "V"} == {68}
        assert len(path_of(chart, 1)) == 5


def test_a_chart_of_nothing_but_empty_samples_can_be_drawn() -> None:
    page = distribution_chart(Distribution("d", "", (Sample("s", np.empty(0)),))).html
    assert "nan" not in page
    ET.fromstring(page)


def test_neither_the_order_of_values_nor_their_repetition_changes_a_line(
    rng: np.random.Generator,
) -> None:
    values = rng.integers(0, 30, 150).astype(float)
    same = (rng.permutation(values), np.tile(values, 3))
    charts = [
        distribution_chart(Distribution("d", "", (Sample("s", each),))) for each in (values, *same)
    ]
    assert path_of(charts[0], 2) == path_of(charts[1], 2) == path_of(charts[2], 2)


def test_lines_rise_from_left_to_right_and_stay_inside(rng: np.random.Generator) -> None:
    sample = Sample("s", rng.lognormal(0, 3, 900), rng.random(900))
    steps = path_of(distribution_chart(Distribution("d", "", (sample,), log=True)), 2)
    across = [number for command, number in steps if command == "H"]
    down = [number for command, number in steps if command == "V"]
    assert across == sorted(across)
    assert down == sorted(down, reverse=True)
    assert (min(across) >= 50, max(across) <= 290, down[-1]) == (True, True, 84)
