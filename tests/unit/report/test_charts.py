import xml.etree.ElementTree as ET

import numpy as np

from layerdag.evaluation.metrics import Interval
from layerdag.report import (
    Distribution,
    Sample,
    Shares,
    distribution_chart,
    ratio_strip,
    shares_chart,
)


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
    page = shares_chart(Shares("op", labels, shares), most=5).html
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
    page = shares_chart(Shares("op", names, (("real", np.full(3, 1 / 3)),))).html
    figure = ET.fromstring(page)
    labels = [text for text in figure.iter("text") if text.find("title") is not None]
    assert [label.findtext("title") for label in labels] == list(names)
    shown = [(title.tail or "") for label in labels for title in label.iter("title")]
    assert len(set(shown)) == 3
    assert shown[2] == "mm"
    assert max(map(len, shown)) == 17
