"""Two programs as bars with ribbons between nodes that correspond."""

import xml.etree.ElementTree as ET

from layerdag.report.differences._ribbon import _MOST_RIBBONS, BAR, WIDTH, ribbon
from layerdag.workloads.differences import AlignedPrograms


def aligned(nodes: tuple[int, int], *runs: tuple[int, int, int]) -> AlignedPrograms:
    both = sum(length for at_a, at_b, length in runs if min(at_a, at_b) >= 0)
    return AlignedPrograms("ranks 0-3 <x>", nodes, both, 0, (0, 0), (0, 0), runs)


def rectangles(figure: ET.Element, style: str) -> list[dict[str, float]]:
    return [
        {name: float(box.attrib[name]) for name in ("x", "y", "width")}
        for box in figure.iter("rect")
        if box.attrib["class"] == f"ribbon-{style}"
    ]


def drawn(program: AlignedPrograms) -> ET.Element:
    return ET.fromstring(ribbon(program).html)


def test_bars_are_as_long_as_the_programs() -> None:
    upper, lower = rectangles(drawn(aligned((40, 10), (0, 0, 10), (10, -1, 30))), "base")
    assert upper["width"] == 4 * lower["width"]
    assert upper["y"] < lower["y"]
    assert upper["x"] + upper["width"] <= WIDTH


def test_what_only_one_has_is_marked_on_its_bar() -> None:
    figure = drawn(aligned((8, 6), (0, 0, 4), (4, -1, 4), (-1, 4, 2)))
    upper, lower = rectangles(figure, "base")
    (gone,), (new,) = rectangles(figure, "gone"), rectangles(figure, "new")
    assert (gone["y"], new["y"]) == (upper["y"], lower["y"])
    assert gone["width"] == 2 * new["width"]
    # The second half of A, and what follows four of six nodes of B.
    assert gone["x"] - upper["x"] == gone["width"]
    assert new["x"] - lower["x"] == 2 * new["width"]


def test_a_ribbon_goes_from_the_end_of_one_bar_to_the_start_of_the_other() -> None:
    figure = drawn(aligned((4, 4), (0, 0, 4)))
    upper, lower = rectangles(figure, "base")
    (band,) = figure.iter("path")
    assert f" {upper['y'] + BAR:g}C" in band.attrib["d"]
    assert f" {lower['y']:g}H" in band.attrib["d"]


def test_of_very_many_runs_the_longest_are_drawn() -> None:
    runs = [(2 * i, 2 * i, 1) for i in range(_MOST_RIBBONS + 100)]
    size = 2 * len(runs)
    figure = drawn(aligned((size + 50, size + 50), *runs, (size, size, 50)))
    bands = list(figure.iter("path"))
    assert len(bands) == _MOST_RIBBONS
    (upper, _) = rectangles(figure, "base")
    scale = upper["width"] / (size + 50)
    first = bands[0].attrib["d"].split()[0]
    assert float(first[1:]) - upper["x"] == round(size * scale, 2)


def test_programs_without_nodes_can_be_drawn() -> None:
    figure = drawn(aligned((0, 0)))
    assert len(rectangles(figure, "base")) == 2


def test_the_picture_is_described_in_words() -> None:
    figure = drawn(aligned((1200, 3), (0, 0, 3), (3, -1, 1197)))
    svg, caption = figure.find("svg"), figure.find("figcaption")
    assert svg is not None
    assert caption is not None
    assert svg.attrib["aria-label"] == caption.text
    assert caption.text == "ranks 0-3 <x>: 1,200 nodes of A above 3 of B, 3 aligned"
