"""Sections of single jobs."""

import re
from dataclasses import replace

import numpy as np

from layerdag.report import Lane, ReportContent, Timeline
from layerdag.report.sections import neighbors, timelines
from layerdag.report.sections._colors import colors_of

EMPTY = ReportContent("t", "l")


def job(title: str, ranks: int, duration_ms: float = 4.0) -> Timeline:
    lanes = tuple(
        Lane(f"rank {rank} computes", np.array([0.0]), np.array([duration_ms]), ("<mm>",))
        for rank in range(min(ranks, 2))
    )
    return Timeline(title, lanes, duration_ms, ranks)


def test_a_pair_is_drawn_with_its_distance_and_the_usual_one(content: ReportContent) -> None:
    html = neighbors(content).html
    assert "Family gpt" in html
    assert "Distance 0.500 from the nearest of 12 real graphs; real graphs of the family" in html
    assert "are 0.400 from theirs" in html
    assert html.count("<figure") == 2
    alone = replace(content.neighbors[0], usual=None, family="")
    html = neighbors(replace(EMPTY, neighbors=(alone,))).html
    assert "from theirs" not in html
    assert "Family" not in html


def test_jobs_side_by_side_share_their_axis() -> None:
    both = replace(EMPTY, timelines=(job("real", 1), job("sample", 1, 8.0)), simulated_on="a ring")
    html = timelines(both).html
    assert "simulated on a ring. Both jobs have the same axis." in html
    first, second = re.findall(r'class="k0" d="M142.00 \d+H([\d.]+)V', html)
    assert (float(first), float(second)) == (142 + 164, 470)


def test_ranks_that_are_not_shown_are_counted() -> None:
    html = timelines(replace(EMPTY, timelines=(job("A sample", 16),))).html
    assert "A sample has 16 ranks; the first ones are shown." in html
    assert "Both jobs" not in html
    assert "the first ones" not in timelines(replace(EMPTY, timelines=(job("s", 2),))).html


def test_kinds_are_escaped_in_the_key_and_on_the_lanes() -> None:
    html = timelines(replace(EMPTY, timelines=(job("s", 1),))).html
    assert "<mm>" not in html
    assert html.count("&lt;mm&gt;") == 2


def test_a_color_means_the_same_in_pictures_and_on_timelines(content: ReportContent) -> None:
    slots = colors_of(content)
    drawn = {*content.pictures[0].class_N}
    assert drawn <= slots.keys()
    assert "mm" in slots  # of the timeline alone
    assert max(slots.values()) <= 7
