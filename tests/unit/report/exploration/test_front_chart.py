"""The picture of the Pareto front: where its dots and lines lie, and what they are called."""

import math
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from layerdag.report.exploration._front_chart import (
    BOTTOM,
    HEIGHT,
    LEFT,
    MOST_DOTS,
    RIGHT,
    TOP,
    WIDTH,
    front_chart,
)
from layerdag.workloads.exploration import Outcome

PLAN = Outcome(
    **{"model": "gpt", "cluster": "a <b>", "ranks": 8, "data": 1, "tensor": 8, "pipeline": 1},
    **{"context": 1, "expert": 1, "micro_batches": 1, "zero": 0, "recompute": "none"},
    **{"sequence_parallel": True, "schedule": "1f1b", "memory_gib": 10.0, "fits": True},
    step_s=1.0,
    cost=0.5,
)
SLOTS = {"a <b>": 1, "c": 2}


def outcomes(*figures: tuple[float, float]) -> list[Outcome]:
    """Return plans of these step times and costs, each with a tensor degree of its own."""
    return [
        replace(PLAN, step_s=step_s, cost=cost, tensor=2 + number)
        for number, (step_s, cost) in enumerate(figures)
    ]


def drawn(found: list[Outcome], front: list[Outcome], *, priced: bool = True) -> ET.Element:
    return ET.fromstring(front_chart(found, front, SLOTS, priced).html)


def places(figure: ET.Element) -> list[tuple[float, float]]:
    return [(float(dot.attrib["cx"]), float(dot.attrib["cy"])) for dot in figure.iter("circle")]


def test_faster_plans_lie_to_the_left_and_dearer_ones_above() -> None:
    found = outcomes((1.0, 0.5), (2.0, 0.5), (1.0, 2.0))
    base, slower, dearer = places(drawn(found, []))
    assert slower[0] > base[0]
    assert slower[1] == base[1]
    assert dearer[1] < base[1]
    assert dearer[0] == base[0]


def test_equal_ratios_are_equal_distances() -> None:
    one, two, four = places(drawn(outcomes((1.0, 1.0), (2.0, 2.0), (4.0, 4.0)), []))
    assert two[0] - one[0] == pytest.approx(four[0] - two[0], abs=0.11)
    assert one[1] - two[1] == pytest.approx(two[1] - four[1], abs=0.11)


@pytest.mark.parametrize("figures", [[(3.0, 7.0)], [(1e-6, 1e-9), (1e5, 1e7)]])
def test_every_dot_lies_inside_the_frame(figures: list[tuple[float, float]]) -> None:
    for x, y in places(drawn(outcomes(*figures), [])):
        assert LEFT < x < WIDTH - RIGHT
        assert TOP < y < HEIGHT - BOTTOM


def test_the_line_goes_through_the_dots_of_the_front_which_are_larger() -> None:
    found = outcomes((1.0, 3.0), (2.0, 1.0), (4.0, 2.0))
    figure = drawn(found, found[:2])
    (line,) = figure.iter("polyline")
    ends = [tuple(map(float, pair.split(","))) for pair in line.attrib["points"].split()]
    assert ends == places(figure)[:2]
    assert [float(dot.attrib["r"]) for dot in figure.iter("circle")] == [4.5, 4.5, 2.5]


def test_dots_have_the_color_of_their_cluster_and_tell_their_plan() -> None:
    found = [PLAN, replace(PLAN, cluster="c", tensor=2)]
    first, second = drawn(found, []).iter("circle")
    assert (first.attrib["class"], second.attrib["class"]) == ("k1", "k2")
    title = first.find("title")
    assert title is not None
    assert title.text == f"a <b>: {PLAN.plan}"


@pytest.mark.parametrize(("priced", "told"), [(True, "cost of a step"), (False, "memory")])
def test_without_prices_memory_is_the_second_figure(priced: bool, told: str) -> None:
    heavy = replace(PLAN, memory_gib=80.0, tensor=2)
    figure = drawn([PLAN, heavy], [PLAN], priced=priced)
    svg = figure.find("svg")
    assert svg is not None
    assert svg.attrib["aria-label"].startswith(f"Step time against {told}")
    assert "2 plans, 1 on the front" in svg.attrib["aria-label"]
    light, other = places(figure)
    assert (light[1] == other[1]) is priced  # both cost the same


def test_marks_are_round_and_rise_along_the_axis() -> None:
    figure = drawn(outcomes((0.03, 1.0), (70.0, 1.0)), [])
    marks = [
        (float(text.attrib["x"]), float(str(text.text)))
        for text in figure.iter("text")
        if text.attrib.get("text-anchor") == "middle" and str(text.text)[0].isdigit()
    ]
    values = [value for _, value in sorted(marks)]
    assert values == sorted(values)
    assert {0.1, 1.0, 10.0} <= set(values)
    assert all(round(v / 10 ** math.floor(math.log10(v)), 6) in (1, 2, 5) for v in values)


def test_very_many_plans_keep_those_of_the_front() -> None:
    many = outcomes(*((1 + i / 100, 1.0) for i in range(MOST_DOTS + 50)))
    figure = drawn(many, many[-3:])
    assert len(places(figure)) == MOST_DOTS
    assert [float(dot.attrib["r"]) for dot in figure.iter("circle")].count(4.5) == 3
