"""Legends, and ratios on a strip."""

import xml.etree.ElementTree as ET

import pytest

from layerdag.evaluation.metrics import Interval
from layerdag.report import legend, ratio_strip


def test_a_ratio_outside_the_strip_stays_on_its_edge() -> None:
    page = ratio_strip(1000.0, Interval(0.001, 1e6)).html
    circle = ET.fromstring(page).find("circle")
    assert circle is not None
    assert float(circle.attrib["cx"]) == 116
    assert ratio_strip(None, None).html == ""


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
