"""Bars of named categories."""

import xml.etree.ElementTree as ET

import numpy as np

from layerdag.report import CategoryFractions, shares_chart


def test_shares_show_the_largest_categories_and_count_the_rest() -> None:
    labels = tuple(f"op{i}" for i in range(20))
    shares = (("real", np.arange(20) / 190), ("synthetic", np.arange(20) / 190))
    page = shares_chart(CategoryFractions("op", labels, shares), most=5).html
    figure = ET.fromstring(page)
    assert len(list(figure.iter("rect"))) == 10
    assert "op19" in page
    assert "op3<" not in page
    assert "15 not shown" in page


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
    assert not any(name.startswith("aten::") for name in shown)


def test_bars_are_as_long_as_their_shares() -> None:
    """The longest bar is 128 wide; labels stand on the left, the largest share behind the bars."""
    shares = (("real", np.array([0.5, 0.25])), ("synthetic", np.array([0.125, 0.5])))
    figure = ET.fromstring(shares_chart(CategoryFractions("op", ("a", "b"), shares)).html)
    bars = [(bar.attrib["class"], float(bar.attrib["width"])) for bar in figure.iter("rect")]
    assert bars == [("bar s1", 128), ("bar s2", 32), ("bar s1", 64), ("bar s2", 128)]
    titles = [title.text for bar in figure.iter("rect") for title in bar.iter("title")]
    assert titles[:2] == ["real: 50.00 %", "synthetic: 12.50 %"]
    words = [text.text for text in figure.iter("text") if text.text]
    assert words == ["50.0%", "50.0%", "share of nodes, %"]


def test_equal_shares_keep_their_order_and_nothing_has_bars_of_no_length() -> None:
    shares = (("real", np.zeros(3)), ("synthetic", np.zeros(3)))
    page = shares_chart(CategoryFractions("op", ("b", "a", "c"), shares)).html
    assert "nan" not in page
    figure = ET.fromstring(page)
    assert {float(bar.attrib["width"]) for bar in figure.iter("rect")} == {0.0}
    names = [t.findtext("title") for t in figure.iter("text") if t.find("title") is not None]
    assert names == ["b", "a", "c"]


def test_a_category_of_one_sample_alone_is_shown_by_its_size_there() -> None:
    shares = (("real", np.array([0.6, 0.4, 0.0])), ("synthetic", np.array([0.5, 0.0, 0.5])))
    page = shares_chart(CategoryFractions("op", ("a", "<b>", "new"), shares), most=2).html
    names = [t.findtext("title") for t in ET.fromstring(page).iter("text")]
    assert [name for name in names if name] == ["a", "new"]
    assert "op (largest 2, 1 not shown)" in page


def test_no_categories_make_an_empty_chart() -> None:
    empty = (("real", np.empty(0)),)
    figure = ET.fromstring(shares_chart(CategoryFractions("op", (), empty), items="jobs").html)
    assert not list(figure.iter("rect"))
    assert [text.text for text in figure.iter("text")] == ["share of jobs, %"]
