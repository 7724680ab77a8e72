"""The page on what is read names every format that layerdag detects."""

import re
from pathlib import Path

from layerdag.codec.formats import FORMATS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "what-is-read.md"


def test_the_page_has_one_line_for_each_format():
    rows = re.findall(r"^\| ([^|]+?) \|", PAGE.read_text(), re.MULTILINE)
    names = [each.name for each in FORMATS]
    assert {name: rows.count(name) for name in names} == {n: names.count(n) for n in names}
