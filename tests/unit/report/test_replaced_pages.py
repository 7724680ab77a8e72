"""A page never replaces what is not of its kind."""

import json
from pathlib import Path

import pytest

from layerdag.errors import UsageError
from layerdag.report import require_replaceable_page


def guard(path: Path) -> None:
    require_replaceable_page(path, "a study", {"cells"}, (".json", ".csv"))


def test_a_free_place_and_a_page_of_the_same_kind_are_taken(tmp_path: Path) -> None:
    page = tmp_path / "a.html"
    guard(page)
    page.write_text("an older page")
    page.with_suffix(".json").write_text(json.dumps({"cells": [], "more": 1}))
    guard(page)


@pytest.mark.parametrize("suffix", [".html", ".json", ".csv"])
@pytest.mark.parametrize("content", ["thesis", "[]", '{"chapters": 3}', "[" * 100_000])
def test_a_file_of_something_else_is_never_replaced(
    tmp_path: Path, suffix: str, content: str
) -> None:
    page = tmp_path / "a.html"
    page.with_suffix(suffix).write_text(content)
    with pytest.raises(UsageError, match=r"page of a study .* never replaced; choose another name"):
        guard(page)
    assert page.with_suffix(suffix).read_text() == content


def test_a_page_is_an_html_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"a\.htm: the page of a study is a \.html file"):
        guard(tmp_path / "a.htm")
