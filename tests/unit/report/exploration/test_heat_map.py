"""Heat maps: which plan a cell stands for, and how much color it has."""

import re
from dataclasses import replace

import pytest

from layerdag.report.exploration._heat_map import SHADES, SLOWEST, heat_map
from layerdag.workloads.exploration import Outcome

PLAN = Outcome(
    **{"model": "gpt", "cluster": "ring", "ranks": 8, "data": 1, "tensor": 8, "pipeline": 1},
    **{"context": 1, "expert": 1, "micro_batches": 1, "zero": 0, "recompute": "none"},
    **{"sequence_parallel": True, "schedule": "1f1b", "memory_gib": 10.0, "fits": True},
    step_s=1.0,
)


def cells(outcomes: list[Outcome], best_s: float = 1.0) -> list[list[tuple[str, str]]]:
    """Return the attributes and the text of each cell of the body, headers left out."""
    html = heat_map(outcomes, "tensor", "pipeline", best_s).html
    (body,) = re.findall(r"<tbody>(.*?)</tbody>", html)
    rows = re.findall(r"<tr>(.*?)</tr>", body)
    return [re.findall(r"<td([^>]*)>([^<]*)</td>", row) for row in rows]


def shade(attributes: str) -> int:
    return int(re.findall(r"--accent\) (\d+)%", attributes)[0])


def test_rows_and_columns_rise_whatever_the_order_of_plans() -> None:
    found = [replace(PLAN, tensor=t, pipeline=p) for t, p in ((16, 1), (2, 4), (2, 1), (16, 4))]
    html = heat_map(found, "tensor", "pipeline", 1.0).html
    assert re.findall(r'<th scope="row"[^>]*>(\d+)', html) == ["2", "16"]
    assert re.findall(r'<th scope="col"[^>]*>(\d+)', html) == ["1", "4"]


def test_a_cell_shows_its_fastest_plan() -> None:
    slow = replace(PLAN, step_s=2.5, zero=1)
    fast = replace(PLAN, step_s=1.25, zero=3)
    ((cell,),) = cells([slow, fast])
    assert cell[1] == "1.25"
    assert fast.plan in cell[0]


def test_the_fastest_has_most_color_and_the_slowest_none() -> None:
    times = (1.0, (1 + SLOWEST) / 2, SLOWEST, 9.0)
    found = [replace(PLAN, step_s=t, pipeline=2**i) for i, t in enumerate(times)]
    (row,) = cells(found)
    # Half way to the slowest there is half of the color; beyond it none, never a negative share.
    assert [shade(attributes) for attributes, _ in row] == [SHADES, SHADES // 2, 0, 0]


def test_what_does_not_fit_tells_its_memory_and_what_was_not_tried_says_so() -> None:
    large = replace(PLAN, step_s=None, memory_gib=2000.0, fits=False)
    larger = replace(large, memory_gib=3000.0, zero=1)
    found = [large, larger, replace(PLAN, tensor=4, pipeline=2)]
    (first, second) = cells(found)
    assert [text for _, text in first] == ["—", "1"]
    assert "no such plan" in first[0][0]
    assert [text for _, text in second] == ["too large", "—"]
    assert "at least 2,000 GiB" in second[0][0]


def test_a_plan_that_fits_beside_one_that_does_not_is_shown() -> None:
    large = replace(PLAN, step_s=None, fits=False)
    ((cell,),) = cells([large, replace(PLAN, zero=3)])
    assert cell[1] == "1"


@pytest.mark.parametrize("name", ["tensor", "pipeline"])
def test_the_table_can_be_scrolled_and_has_a_name(name: str) -> None:
    html = heat_map([PLAN], "tensor", "pipeline", 1.0).html
    assert 'tabindex="0"' in html
    assert 'role="group"' in html
    (label,) = re.findall(r'aria-label="([^"]*)"', html)
    assert name in label
