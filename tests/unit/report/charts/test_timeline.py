"""Timelines of jobs."""

import re
import xml.etree.ElementTree as ET

import numpy as np

from layerdag.report import Lane, Timeline
from layerdag.report.charts import timeline_chart

SLOTS = {"matrix product": 0, "communication": 3}


def chart(*lanes: Lane, end_ms: float = 10.0) -> ET.Element:
    job = Timeline("A <job>", lanes, 8.0, 2)
    return ET.fromstring(timeline_chart(job, SLOTS, end_ms).html)


def lane(name: str, *pieces: tuple[float, float, str]) -> Lane:
    start, end, kind = zip(*pieces, strict=True)
    return Lane(name, np.array(start), np.array(end), kind)


def spans(path: ET.Element) -> list[tuple[float, float]]:
    found = re.findall(r"M([\d.]+) \d+H([\d.]+)", path.attrib["d"])
    return [(float(a), float(b)) for a, b in found]


def test_pieces_stand_at_their_times_in_the_color_of_their_kind() -> None:
    """Ten milliseconds are 328 pixels from 142 on."""
    figure = chart(
        lane("rank 0 computes", (0.0, 5.0, "matrix product")),
        lane("rank 0 communicates", (5.0, 10.0, "communication")),
    )
    first, second = figure.iter("path")
    assert (first.attrib["class"], spans(first)) == ("k0", [(142, 306)])
    assert (second.attrib["class"], spans(second)) == ("k3", [(306, 470)])
    assert first.findtext("title") == "matrix product"


def test_neighbors_of_a_kind_are_one_piece_and_nothing_is_too_small_to_be_seen() -> None:
    tiny = [(0.001 * i, 0.001 * i + 0.0005, "matrix product") for i in range(1000)]
    figure = chart(lane("rank 0 computes", *tiny, (9.0, 9.0, "matrix product")))
    (path,) = figure.iter("path")
    many, one = spans(path)
    assert many[0] == 142
    assert one[1] > one[0]


def test_lanes_are_named_and_the_axis_has_a_unit() -> None:
    figure = chart(lane("rank 1 computes", (0.0, 1.0, "unknown kind")))
    words = [text.text for text in figure.iter("text")]
    assert "rank 1 computes" in words
    assert words[-2:] == ["simulated time (ms)", "rank 1 computes"]
    assert next(figure.iter("path")).attrib["class"] == "k7"  # what has no color of its own
    assert figure.findtext("figcaption") == "A <job>, 8 ms"


def test_a_job_that_takes_no_time_and_a_lane_without_work_can_be_drawn() -> None:
    idle = Lane("rank 1 communicates", np.empty(0), np.empty(0), ())
    figure = chart(lane("rank 0 computes", (0.0, 0.0, "matrix product")), idle, end_ms=0.0)
    (path,) = figure.iter("path")
    ((left, right),) = spans(path)
    assert 0 < right - left < 1
    assert len([r for r in figure.iter("rect") if r.attrib["class"] == "lane"]) == 2


def test_the_order_of_pieces_does_not_matter_and_overlaps_are_one_piece() -> None:
    pieces = [(6.0, 7.0, "matrix product"), (0.0, 4.0, "matrix product"),
              (1.0, 2.0, "matrix product")]  # fmt: skip
    found = [spans(next(chart(lane("r", *each)).iter("path"))) for each in (pieces, pieces[::-1])]
    assert found[0] == found[1] == [(142, 273.2), (338.8, 371.6)]
