import pytest
from hypothesis import given, strategies as st

from layerdag.statistics import Interval
from layerdag.viz.html import (
    element,
    interval,
    joined,
    number,
    percent,
    percents,
    section,
    table,
    text,
)


def test_text_and_attributes_are_escaped():
    piece = element("td", "<script>alert(1)</script>", title='"&', class_="n")
    assert piece.html == (
        '<td title="&quot;&amp;" class="n">&lt;script&gt;alert(1)&lt;/script&gt;</td>'
    )
    assert element("p", text("<b>")).html == "<p>&lt;b&gt;</p>"


@pytest.mark.parametrize(
    ("value", "digits", "shown"),
    [
        (None, 3, "—"),
        (float("nan"), 3, "—"),
        (float("inf"), 3, "—"),
        (0.0, 3, "0"),
        (1.23456, 3, "1.23"),
        (12345.6, 3, "12,346"),
        (0.00123456, 3, "0.00123"),
        (1.2e-7, 3, "1.20e-07"),
        (-2.5, 3, "-2.50"),
        (0.001, 3, "0.00100"),  # the ends of the plain notation
        (0.00099999, 3, "1.00e-03"),
        (999_999.0, 3, "999,999"),
        (1e6, 3, "1.00e+06"),
        (-1234.5, 2, "-1,234"),
        (0.5, 1, "0.5"),
    ],
)
def test_numbers_have_few_significant_digits(value, digits, shown):
    assert number(value, digits) == shown
    assert digits != 3 or number(value) == shown


def test_nearly_all_is_never_shown_as_all():
    assert percent(1.0) == "100%"
    assert percent(0.99999) == "99.9%"
    assert percent(0.0) == "0%"
    assert percent(0.00001) == "0.1%"
    assert percent(None) == "—"


@given(st.floats(0, 1, exclude_min=True, exclude_max=True))
def test_a_percentage_is_within_a_twentieth_and_never_all_or_none(fraction):
    shown = percent(fraction)
    assert shown not in ("0%", "100%", "0.0%", "100.0%")
    assert abs(float(shown.removesuffix("%")) - min(max(100 * fraction, 0.1), 99.9)) <= 0.051


def test_an_interval_stands_in_brackets():
    assert interval(Interval(0.5, 2.0)) == "[0.50, 2.0]"
    assert interval(None) == ""
    assert percents(Interval(0.062, 1.0)) == "[6%, 100%]"


def test_tables_name_their_rows_and_columns():
    page = table("Caption", ("what", "count"), [("nodes", "3")], 1).html
    assert "<caption><span>Caption</span></caption>" in page
    assert '<th scope="col" class="n">count</th>' in page
    assert '<th scope="row">nodes</th><td class="n">3</td>' in page


def test_a_long_table_unfolds_and_says_how_much():
    rows = [(f"row {i}", str(i)) for i in range(20)]
    page = table("All", ("what", "count"), rows, 1).html
    seen, _, folded = page.partition("<details>")
    assert seen.count('<th scope="row">') == 8
    assert folded.count('<th scope="row">') == 12
    assert "<summary>12 more rows</summary>" in folded
    assert ">row 7<" in seen
    assert ">row 8<" in folded
    assert "<details>" not in table("All", ("what", "count"), rows[:12], 1).html
    assert table("All", ("what", "count"), rows[:7], 1, shown=5).html.count("<table>") == 2


def test_a_wide_table_scrolls_and_can_be_reached_by_keyboard():
    page = table("Caption", ("what",), [("nodes",)]).html
    assert page.startswith('<div class="scroll" tabindex="0" role="group" aria-label="Caption">')


def test_pieces_follow_each_other_and_children_are_not_escaped_twice():
    pieces = [element("b", "a & b"), text("<c>")]
    assert joined(pieces).html == "<b>a &amp; b</b>&lt;c&gt;"
    assert element("p", *pieces).html == "<p><b>a &amp; b</b>&lt;c&gt;</p>"


def test_a_section_is_labeled_by_its_heading():
    assert section("nodes", "Nodes & edges", element("p", "x")).html == (
        '<section id="nodes" aria-labelledby="nodes-title">'
        '<h2 id="nodes-title">Nodes &amp; edges</h2><p>x</p></section>'
    )


def test_underscores_of_attributes_become_hyphens():
    assert element("a", data_x="1", for_="y").html == '<a data-x="1" for="y"></a>'
