"""The page of an exploration, as a reader and a script find it."""

import csv
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from small_studies import cluster, study

from layerdag.errors import UsageError
from layerdag.report.exploration import (
    MAX_SHADE,
    SLOWEST,
    require_replaceable_exploration,
    shade,
    write_exploration,
)
from layerdag.workloads.exploration import Exploration, explore


class Cells(HTMLParser):
    """Texts of all table cells, and identifiers of all elements."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.ids: list[str] = []
        self._open = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._open = tag in ("td", "th")
        self.ids += [value for name, value in attrs if name == "id" and value]

    def handle_data(self, data: str) -> None:
        if self._open:
            self.cells.append(data)

    def handle_endtag(self, tag: str) -> None:
        self._open = False


@pytest.fixture(scope="module")
def found() -> Exploration:
    return explore(study())


@pytest.fixture(scope="module")
def page(found, tmp_path_factory) -> Path:
    return write_exploration(found, tmp_path_factory.mktemp("page") / "study.html")


def test_the_best_plan_of_each_cluster_stands_on_top(found, page):
    cells = Cells(page.read_text()).cells
    for best in found.best():
        assert f"{best.model} on {best.cluster}" in cells
        assert best.plan in cells


def test_sections_can_be_reached_and_nothing_is_loaded(page):
    text = page.read_text()
    assert {"best", "maps", "front", "all"} <= set(Cells(text).ids)
    assert "default-src 'none'" in text
    assert "<script" not in text


def test_figures_lie_beside_it(found, page):
    assert json.loads(page.with_suffix(".json").read_text()) == json.loads(
        json.dumps(found.summary())
    )
    with page.with_suffix(".csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(found.outcomes)
    assert float(rows[0]["step_s"]) == found.outcomes[0].step_s
    assert "key" not in rows[0]


def test_names_cannot_be_markup(tmp_path):
    odd = explore(study(plans={}, clusters={"<b>near</b>": cluster()}))
    text = write_exploration(odd, tmp_path / "odd.html").read_text()
    assert "<b>near" not in text
    assert "&lt;b&gt;near" in text


def test_a_study_in_which_nothing_fits_is_a_page_too(tmp_path):
    none = explore(study(clusters={"near": cluster(memory_gib=1e-5)}))
    text = write_exploration(none, tmp_path / "none.html").read_text()
    assert "too large" in text
    assert '<figure class="wide">' not in text


@pytest.mark.parametrize("there", [".html", ".json", ".csv"])
def test_what_is_no_exploration_is_never_replaced(tmp_path, there):
    file = (tmp_path / "study.html").with_suffix(there)
    file.write_text("mine")
    with pytest.raises(UsageError, match="is never replaced"):
        require_replaceable_exploration(tmp_path / "study.html")
    assert file.read_text() == "mine"


def test_an_exploration_is_replaced_by_the_next(found, tmp_path):
    for _ in range(2):
        write_exploration(found, tmp_path / "study.html")
    with pytest.raises(UsageError, match=r"is a \.html file"):
        write_exploration(found, tmp_path / "study.htm")


def test_the_fastest_has_most_color_and_the_slowest_none():
    # Half way to the slowest there is half of the color; beyond it none, never a negative share.
    times = (1.0, (1 + SLOWEST) / 2, SLOWEST, 9.0)
    assert [int(shade(time, 1.0)) for time in times] == [MAX_SHADE, MAX_SHADE // 2, 0, 0]


def heat_maps(found: Exploration, folder: Path) -> list[list[list[tuple[str, str]]]]:
    """Return the attributes and the text of each cell of each heat map, headers left out."""
    text = write_exploration(found, folder / "maps.html").read_text()
    tables = re.findall(r'<table class="heat">.*?<tbody>(.*?)</tbody>', text, re.DOTALL)
    return [
        [re.findall(r"<td([^>]*)>([^<]*)</td>", row) for row in table.split("</tr>")[:-1]]
        for table in tables
    ]


def test_a_cell_of_a_heat_map_shows_its_fastest_plan(found, tmp_path):
    near, _ = heat_maps(found, tmp_path)
    tried = [outcome for outcome in found.outcomes if outcome.cluster == "near"]
    rows = sorted({outcome.settings["pipeline"] for outcome in tried})
    columns = sorted({outcome.settings["tensor"] for outcome in tried})
    assert (len(near), len(near[0])) == (len(rows), len(columns))
    for pipeline, row in zip(rows, near, strict=True):
        for tensor, (attributes, text) in zip(columns, row, strict=True):
            here = [
                o
                for o in tried
                if (o.settings["pipeline"], o.settings["tensor"]) == (pipeline, tensor)
            ]
            timed = [o for o in here if o.step_s is not None]
            if timed:
                best = min(timed, key=lambda o: o.step_s)
                assert text == f"{best.step_s:.3g}"
                assert best.plan in attributes
            elif here:
                assert text == "too large"
                assert "at least" in attributes
            else:
                assert text == "—"
                assert "no such plan" in attributes
