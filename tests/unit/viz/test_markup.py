import pytest

from layerdag.evaluation.metrics import Interval
from layerdag.viz import element, interval, number, percent, table, text


def test_text_and_attributes_are_escaped() -> None:
    piece = element("td", "<script>alert(1)</script>", title='"&', class_="n")
    assert piece.html == (
        '<td title="&quot;&amp;" class="n">&lt;script&gt;alert(1)&lt;/script&gt;</td>'
    )
    assert element("p", text("<b>")).html == "<p>&lt;b&gt;</p>"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "—"),
        (float("nan"), "—"),
        (0.0, "0"),
        (1.23456, "1.23"),
        (12345.6, "12,346"),
        (0.00123456, "0.00123"),
        (1.2e-7, "1.20e-07"),
        (-2.5, "-2.50"),
    ],
)
def test_numbers_have_three_significant_digits(value: float | None, shown: str) -> None:
    assert number(value) == shown


def test_nearly_all_is_never_shown_as_all() -> None:
    assert percent(1.0) == "100%"
    assert percent(0.99999) == "99.9%"
    assert percent(0.0) == "0%"
    assert percent(0.00001) == "0.1%"
    assert percent(None) == "—"


def test_an_interval_stands_in_brackets() -> None:
    assert interval(Interval(0.5, 2.0)) == "[0.50, 2.0]"
    assert interval(None) == ""


def test_tables_name_their_rows_and_columns() -> None:
    page = table("Caption", ("what", "count"), [("nodes", "3")], 1).html
    assert "<caption>Caption</caption>" in page
    assert '<th scope="col" class="n">count</th>' in page
    assert '<th scope="row">nodes</th><td class="n">3</td>' in page
