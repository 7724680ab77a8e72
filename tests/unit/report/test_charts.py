"""Charts as inline SVG: what stands where, in which color, and what pointing at it shows."""

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from markupsafe import Markup
from random_graphs import random_dag

from layerdag.dag.dag import DAG
from layerdag.differences.difference import AlignedPrograms
from layerdag.errors import GraphError
from layerdag.report import charts
from layerdag.report.charts import (
    BAR,
    MAX_DOTS,
    RIBBON_WIDTH,
    classes_by_size,
    colors,
    distribution_chart,
    front_chart,
    graph_chart,
    ribbon_chart,
    shares_chart,
    tick_text,
    timeline_chart,
)
from layerdag.report.content import (
    CategoryFractions,
    Distribution,
    Lane,
    Picture,
    Sample,
    Timeline,
)
from layerdag.viz.drawing import CLASS_COLORS
from layerdag.workloads.exploration import PlanOutcome

Points = list[tuple[float, float]]


class Drawn:
    """What a chart shows: every shape where it stands, whether matplotlib drew or repeated it."""

    def __init__(self, chart: Markup) -> None:
        self.figure = ET.fromstring(chart)
        self._known = {
            path.attrib["id"]: path for path in self.figure.iter("path") if "id" in path.attrib
        }
        self.texts = [text.text or "" for text in self.figure.iter("text")]
        self.titles = [title.text for title in self.figure.iter("title")]

    def paths(self, color: str, kind: str = "fill") -> list[ET.Element]:
        """Return the shapes of a color of the style sheet, in the order in which they are drawn."""
        same = {"k0": "test", "k1": "synthetic"}.get(color, color)  # colors of the same value
        wanted = f"{kind}: var(--{same})"
        shapes = [shape for shape in self.figure.iter() if shape.tag in ("path", "use")]
        return [
            shape
            for shape in shapes
            if "id" not in shape.attrib and wanted in shape.attrib.get("style", "")
        ]

    def points(self, shape: ET.Element) -> Points:
        """Return the ends of the pieces of a shape."""
        x0, y0 = float(shape.attrib.get("x", 0)), float(shape.attrib.get("y", 0))
        path = self._known[shape.attrib["href"][1:]] if shape.tag == "use" else shape
        pieces = re.findall(r"[MLC] ([-\d. ]+)", path.attrib["d"])
        numbers = [piece.split()[-2:] for piece in pieces]
        return [(float(x) + x0, float(y) + y0) for x, y in numbers]

    def box(self, shape: ET.Element) -> tuple[float, float, float]:
        """Return left, right and upper end."""
        corners = self.points(shape)
        return min(x for x, _ in corners), max(x for x, _ in corners), min(y for _, y in corners)

    def dots(self) -> list[ET.Element]:
        """Return the shapes of their own that say something when they are pointed at."""
        return [
            one for one in self.figure.iter() if one.tag != "g" and one.find("title") is not None
        ]

    def places(self) -> Points:
        """Return the centers of the dots."""
        corners = [np.array(self.points(dot)) for dot in self.dots()]
        return [tuple(((c.min(axis=0) + c.max(axis=0)) / 2).round(2).tolist()) for c in corners]


@pytest.mark.parametrize(
    ("value", "shown"), [(0.0, "0"), (1200.0, "1,200"), (0.25, "0.25"), (1e7, "1.0e+07")]
)
def test_whole_numbers_have_no_decimals(value, shown):
    assert tick_text(value) == shown


def test_every_color_follows_the_style_sheet_and_figures_share_no_identifier():
    shares = CategoryFractions("op", ("a",), (("real", np.ones(1)), ("synthetic", np.ones(1))))
    distribution = Distribution("d", "", (Sample("s", np.arange(5.0)),))
    drawn = [shares_chart(shares), distribution_chart(distribution)]
    for chart in drawn:
        assert set(re.findall(r"#[0-9a-f]{6}\b", chart)) <= {"#000000"}
        assert "http" not in chart
        assert "font-family" not in chart
    found = [re.findall(r'\bid="([^"]*)"', chart) for chart in drawn]
    assert not set(found[0]) & set(found[1])
    assert distribution_chart(distribution) == drawn[1]
    assert {f"k{slot}" for slot in range(CLASS_COLORS)} < colors().keys()


def test_shares_show_the_largest_categories_and_count_the_rest():
    labels = tuple(f"op{i}" for i in range(20))
    shares = (("real", np.arange(20) / 190), ("synthetic", np.arange(20) / 190))
    chart = shares_chart(CategoryFractions("op", labels, shares), most=5)
    figure = Drawn(chart)
    assert len(figure.paths("test") + figure.paths("synthetic")) == 10
    assert figure.texts[1] == "op19"
    assert "op3" not in figure.texts
    assert "15 not shown" in chart


def test_long_names_of_one_family_stay_apart_and_whole_when_pointed_at():
    names = ("aten::_embedding_bag", "aten::_embedding_bag_backward", "mm")
    figure = Drawn(shares_chart(CategoryFractions("op", names, (("real", np.full(3, 1 / 3)),))))
    titles = figure.titles
    assert set(names) < set(titles)
    shown = [text for text in figure.texts if "%" not in text]
    assert len(set(shown)) == 3
    assert shown[2] == "mm"
    assert max(map(len, shown)) == 17
    assert not any(name.startswith("aten::") for name in shown)


def test_bars_are_as_long_as_their_shares():
    """The longest bar is 128 wide; labels stand on the left, the largest share behind the bars."""
    shares = (("real", np.array([0.5, 0.25])), ("synthetic", np.array([0.125, 0.5])))
    figure = Drawn(shares_chart(CategoryFractions("op", ("a", "b"), shares)))
    ends = [figure.box(bar)[:2] for color in ("test", "synthetic") for bar in figure.paths(color)]
    assert ends == [(118, 246), (118, 182), (118, 150), (118, 246)]
    titles = figure.titles
    assert titles[:3] == ["real: 50.00 %", "real: 25.00 %", "synthetic: 12.50 %"]
    assert figure.texts == ["share of nodes, %", "a", "50.0%", "b", "50.0%"]


def test_equal_shares_keep_their_order_and_nothing_has_bars_of_no_length():
    shares = (("real", np.zeros(3)), ("synthetic", np.zeros(3)))
    chart = shares_chart(CategoryFractions("op", ("b", "a", "c"), shares))
    assert "nan" not in chart
    figure = Drawn(chart)
    assert all(figure.box(bar)[:2] == (118, 118) for bar in figure.paths("synthetic"))
    assert [text for text in figure.texts if len(text) == 1] == ["b", "a", "c"]


def test_a_category_of_one_sample_alone_is_shown_by_its_size_there():
    shares = (("real", np.array([0.6, 0.4, 0.0])), ("synthetic", np.array([0.5, 0.0, 0.5])))
    chart = shares_chart(CategoryFractions("op", ("a", "<b>", "new"), shares), most=2)
    assert [text for text in Drawn(chart).texts if "%" not in text] == ["a", "new"]
    assert "op (largest 2, 1 not shown)" in chart


def test_no_categories_make_an_empty_chart():
    empty = (("real", np.empty(0)),)
    figure = Drawn(shares_chart(CategoryFractions("op", (), empty), items="jobs"))
    assert not figure.paths("test")
    assert figure.texts == ["share of jobs, %"]


def lines_of(chart: Markup, color: str = "synthetic") -> tuple[Points, Points]:
    """Return the corners of the histogram and of the cumulative line of a sample."""
    figure = Drawn(chart)
    histogram, cumulative = figure.paths(color, "stroke")
    return figure.points(histogram), figure.points(cumulative)


def test_a_distribution_has_a_histogram_and_a_line_a_sample(rng):
    samples = tuple(Sample(name, rng.random(500)) for name in ("real <1>", "synthetic"))
    figure = Drawn(distribution_chart(Distribution("time", "µs", samples)))
    assert [len(figure.paths(name, "stroke")) for name in ("train", "test", "synthetic")] == [
        0,
        2,
        2,
    ]
    svg = figure.figure.find("svg")
    assert svg is not None
    assert "real <1>" in svg.attrib["aria-label"]
    # many values are thinned, so that pages stay small
    assert all(len(path.attrib["d"]) < 8000 for path in figure.paths("synthetic", "stroke"))


@pytest.mark.parametrize(
    ("values", "log"),
    [([[0.0, 10.0, 1000.0], [10.0] * 5], True), ([[7.0] * 3] * 2, False), ([[]], False)],
)
def test_zeros_constants_and_nothing_can_be_drawn(values, log):
    samples = tuple(Sample(name, np.array(each)) for name, each in zip("ab", values, strict=False))
    chart = distribution_chart(Distribution("size", "", samples, log=log))
    assert "nan" not in chart
    assert "inf" not in chart
    Drawn(chart)


def test_a_cumulative_line_rises_at_each_value_by_its_share():
    """Values 0, 5, 10 with weights 1, 2, 1 on an axis from 0 to 10 that is 240 wide, 110 high."""
    sample = Sample("s", np.array([10.0, 0.0, 5.0]), np.array([1.0, 1.0, 2.0]))
    _, line = lines_of(distribution_chart(Distribution("d", "", (sample,))))
    assert list(dict.fromkeys(line)) == [
        (50, 194), (50, 84 + 110 * 0.75), (170, 84 + 110 * 0.75), (170, 84 + 110 * 0.25),
        (290, 84 + 110 * 0.25), (290, 84),
    ]  # fmt: skip


def test_equal_values_are_one_step_and_outliers_are_cut_off():
    values = np.concatenate([np.repeat([1.0, 2.0], 500), [1e6]])
    _, line = lines_of(distribution_chart(Distribution("d", "", (Sample("s", values),))))
    assert {x for x, _ in line} == {50, 290}  # 1 and 2 are the whole axis


def test_a_histogram_has_the_share_of_each_bin_and_outliers_at_its_ends():
    """Three quarters are in the first of 16 bins, the highest, and one quarter in the last."""
    values = np.repeat([0.0, 16.0], [600, 200])
    histogram, _ = lines_of(distribution_chart(Distribution("d", "", (Sample("s", values),))))
    # The axis has 15 pixels a bin.
    assert histogram[:4] == [(50, 68), (50, 8), (65, 8), (65, 68)]
    assert histogram[-3] == (275, pytest.approx(68 - 60 / 3, abs=0.05))


def test_axes_have_titles_with_their_unit():
    shown = Distribution("time of a step", "ms", (Sample("s", np.array([1.0, 9.0])),), log=True)
    figure = Drawn(distribution_chart(shown))
    assert {"ms, logarithmic", "share", "share up to here"} < set(figure.texts)
    assert figure.figure.findtext("figcaption") == "Time of a step"


def test_a_sample_of_nothing_is_a_line_at_the_bottom_beside_the_others():
    """Graphs without dependencies have no figure of a dependency."""
    samples = (Sample("real", np.array([1.0, 3.0])), Sample("synthetic", np.empty(0)))
    for log in (False, True):
        chart = distribution_chart(Distribution("d", "", samples, log=log))
        assert "nan" not in chart
        histogram, line = lines_of(chart)
        assert set(line) == {(50, 194), (290, 194)}
        assert {y for _, y in histogram} == {68}
        assert len(lines_of(chart, "test")[1]) > 3


def test_neither_the_order_of_values_nor_their_repetition_changes_a_line(rng):
    values = rng.integers(0, 30, 150).astype(float)
    same = (rng.permutation(values), np.tile(values, 3))
    first, *others = [
        distribution_chart(Distribution("d", "", (Sample("s", each),))) for each in (values, *same)
    ]
    assert others == [first, first]


def test_lines_rise_from_left_to_right_and_stay_inside(rng):
    sample = Sample("s", rng.lognormal(0, 3, 900), rng.random(900))
    _, line = lines_of(distribution_chart(Distribution("d", "", (sample,), log=True)))
    across, down = [x for x, _ in line], [y for _, y in line]
    assert across == sorted(across)
    assert down == sorted(down, reverse=True)
    assert (min(across), max(across), down[-1]) == (50, 290, 84)


SLOTS = {"matrix product": 0, "communication": 3}


def chart(*lanes: Lane, end_ms: float = 10.0) -> Drawn:
    job = Timeline("A <job>", lanes, 8.0, 2)
    return Drawn(timeline_chart(job, SLOTS, end_ms))


def lane(name: str, *pieces: tuple[float, float, str]) -> Lane:
    start, end, kind = zip(*pieces, strict=True)
    return Lane(name, np.array(start), np.array(end), kind)


def spans(figure: Drawn, color: str) -> list[tuple[float, float]]:
    return [figure.box(piece)[:2] for piece in figure.paths(color)]


def test_pieces_stand_at_their_times_in_the_color_of_their_kind():
    """Ten milliseconds are 328 pixels from 142 on."""
    figure = chart(
        lane("rank 0 computes", (0.0, 5.0, "matrix product")),
        lane("rank 0 communicates", (5.0, 10.0, "communication")),
    )
    assert spans(figure, "k0") == [(142, 306)]
    assert spans(figure, "k3") == [(306, 470)]
    assert figure.titles == ["matrix product", "communication"]


def test_neighbors_of_a_kind_are_one_piece_and_nothing_is_too_small_to_be_seen():
    tiny = [(0.001 * i, 0.001 * i + 0.0005, "matrix product") for i in range(1000)]
    figure = chart(lane("rank 0 computes", *tiny, (9.0, 9.0, "matrix product")))
    many, one = spans(figure, "k0")
    assert many[0] == 142
    assert one[1] > one[0]


def test_lanes_are_named_and_the_axis_has_a_unit():
    figure = chart(lane("rank 1 computes", (0.0, 1.0, "unknown kind")))
    assert {"rank 1 computes", "simulated time (ms)"} < set(figure.texts)
    assert spans(figure, "k7")  # what has no color of its own
    assert figure.figure.findtext("figcaption") == "A <job>, 8 ms"


def test_a_job_that_takes_no_time_and_a_lane_without_work_can_be_drawn():
    idle = Lane("rank 1 communicates", np.empty(0), np.empty(0), ())
    assert "rank 1 communicates" in chart(idle, end_ms=0.0).texts
    assert "simulated time (ms)" in chart().texts


PLAN = PlanOutcome(
    **{"model": "gpt", "cluster": "a <b>", "ranks": 8, "memory_gib": 10.0, "fits": True},
    settings={"data": 1, "tensor": 8, "sequence_parallel": True, "pipeline": 1, "zero": 0},
    step_s=1.0,
    cost=0.5,
)
FRONT_SLOTS = {"a <b>": 1, "c": 2}


def plan(**changes: Any) -> PlanOutcome:
    """Return the plan with other settings or figures."""
    settings = {name: changes.pop(name, value) for name, value in PLAN.settings.items()}
    return replace(PLAN, settings=settings, **changes)


def outcomes(*figures: tuple[float, float]) -> list[PlanOutcome]:
    """Return plans of these step times and costs, each with a tensor degree of its own."""
    return [
        plan(step_s=step_s, cost=cost, tensor=2 + number)
        for number, (step_s, cost) in enumerate(figures)
    ]


def drawn(found: list[PlanOutcome], front: list[PlanOutcome], *, priced: bool = True) -> Drawn:
    return Drawn(front_chart(found, front, FRONT_SLOTS, priced))


def test_faster_plans_lie_to_the_left_and_dearer_ones_above():
    found = outcomes((1.0, 0.5), (2.0, 0.5), (1.0, 2.0))
    base, slower, dearer = drawn(found, []).places()
    assert slower[0] > base[0]
    assert slower[1] == base[1]
    assert dearer[1] < base[1]
    assert dearer[0] == base[0]


def test_equal_ratios_are_equal_distances():
    one, two, four = drawn(outcomes((1.0, 1.0), (2.0, 2.0), (4.0, 4.0)), []).places()
    assert two[0] - one[0] == pytest.approx(four[0] - two[0], abs=0.11)
    assert one[1] - two[1] == pytest.approx(two[1] - four[1], abs=0.11)


@pytest.mark.parametrize("figures", [[(3.0, 7.0), (3.0, 7.0)], [(1e-6, 1e-9), (1e5, 1e7)]])
def test_every_dot_lies_inside_the_frame(figures):
    for x, y in drawn(outcomes(*figures), []).places():
        assert 62 < x < 626
        assert 12 < y < 256


def test_the_line_goes_through_the_dots_of_the_front():
    found = outcomes((1.0, 3.0), (2.0, 1.0), (4.0, 2.0))
    figure = drawn(found, found[:2])
    (line,) = figure.paths("ink", "stroke")
    assert figure.points(line) == figure.places()[:2]
    assert not drawn(found, []).paths("ink", "stroke")


def test_dots_have_the_color_of_their_cluster_and_tell_their_plan():
    found = [PLAN, plan(cluster="c", tensor=2)]
    first, second = drawn(found, []).dots()
    assert "var(--synthetic)" in first.attrib["style"]
    assert "var(--k2)" in second.attrib["style"]
    assert first.findtext("title") == f"a <b>: {PLAN.plan}"


@pytest.mark.parametrize(("priced", "told"), [(True, "cost of a step"), (False, "memory")])
def test_without_prices_memory_is_the_second_figure(priced, told):
    heavy = plan(memory_gib=80.0, tensor=2)
    figure = drawn([PLAN, heavy], [PLAN], priced=priced)
    svg = figure.figure.find("svg")
    assert svg is not None
    assert svg.attrib["aria-label"].startswith(f"Step time against {told}")
    assert "2 plans, 1 on the front" in svg.attrib["aria-label"]
    light, other = figure.places()
    assert (light[1] == other[1]) is priced  # both cost the same


def test_marks_are_round():
    figure = drawn(outcomes((0.03, 1.0), (70.0, 1.0)), [])
    assert {"0.10", "1", "10"} <= set(figure.texts)


def test_very_many_plans_keep_those_of_the_front():
    many = outcomes(*((1 + i / 100, 1.0) for i in range(MAX_DOTS + 50)))
    figure = drawn(many, many[-3:])
    assert len(figure.places()) == MAX_DOTS
    (line,) = figure.paths("ink", "stroke")
    assert figure.points(line)[0] == figure.places()[0]


def aligned(nodes: tuple[int, int], *runs: tuple[int, int, int]) -> AlignedPrograms:
    both = sum(length for at_a, at_b, length in runs if min(at_a, at_b) >= 0)
    return AlignedPrograms("ranks 0-3 <x>", nodes, both, 0, (0, 0), (0, 0), runs)


def bars(program: AlignedPrograms, color: str) -> list[tuple[float, float, float]]:
    """Return left, right and upper end of the bars of a color, ribbons left out."""
    figure = Drawn(ribbon_chart(program))
    found = figure.paths(color)
    return [figure.box(bar) for bar in found if "opacity: 0.22" not in bar.attrib["style"]]


def test_bars_are_as_long_as_the_programs():
    upper, lower = bars(aligned((40, 10), (0, 0, 10), (10, -1, 30)), "accent")
    assert upper[1] - upper[0] == pytest.approx(4 * (lower[1] - lower[0]), abs=0.05)
    assert upper[2] < lower[2]
    assert upper[1] <= RIBBON_WIDTH


def test_what_only_one_has_is_marked_on_its_bar():
    program = aligned((8, 6), (0, 0, 4), (4, -1, 4), (-1, 4, 2))
    upper, lower = bars(program, "accent")
    (gone,), (new,) = bars(program, "k7"), bars(program, "synthetic")
    assert (gone[2], new[2]) == (upper[2], lower[2])
    # The second half of A, and what follows four of six nodes of B.
    assert gone[:2] == (pytest.approx((upper[0] + upper[1]) / 2, abs=0.02), upper[1])
    assert new[:2] == (pytest.approx(lower[0] + (lower[1] - lower[0]) * 2 / 3, abs=0.02), lower[1])


def ribbons(program: AlignedPrograms) -> list[Points]:
    figure = Drawn(ribbon_chart(program))
    found = figure.paths("accent")
    return [figure.points(path) for path in found if "opacity: 0.22" in path.attrib["style"]]


def test_a_ribbon_goes_from_the_end_of_one_bar_to_the_start_of_the_other():
    upper, lower = bars(aligned((4, 4), (0, 0, 4)), "accent")
    (band,) = ribbons(aligned((4, 4), (0, 0, 4)))
    assert band[:3] == [(upper[0], upper[2] + BAR), (lower[0], lower[2]), (lower[1], lower[2])]


def test_of_very_many_runs_the_longest_are_drawn(monkeypatch):
    monkeypatch.setattr(charts, "_MAX_RIBBONS", 5)
    runs = [(2 * i, 2 * i, 1) for i in range(10)]
    program = aligned((70, 70), *runs, (20, 20, 50))
    found = ribbons(program)
    assert len(found) == 5
    upper, _ = bars(program, "accent")
    assert found[0][0][0] == pytest.approx(upper[0] + (upper[1] - upper[0]) * 2 / 7, abs=0.02)


def test_programs_without_nodes_can_be_drawn():
    assert len(bars(aligned((0, 0)), "accent")) == 2


def test_the_picture_is_described_in_words():
    figure = Drawn(ribbon_chart(aligned((1200, 3), (0, 0, 3), (3, -1, 1197))))
    svg, caption = figure.figure.find("svg"), figure.figure.find("figcaption")
    assert svg is not None
    assert caption is not None
    assert svg.attrib["aria-label"] == caption.text
    assert caption.text == "ranks 0-3 <x>: 1,200 nodes of A above 3 of B, 3 aligned"


def picture_of(rng: np.random.Generator, classes: int = 3) -> Picture:
    dag = random_dag(rng, [2, 4, 3], [classes])
    names = tuple(f"class{code}" for code in dag.x_NA[:, 0].tolist())
    return Picture("A <graph>", dag, tuple(f"node {i}" for i in range(9)), names)


def test_every_node_and_edge_is_drawn_inside_the_picture(rng):
    picture = picture_of(rng)
    figure = Drawn(graph_chart(picture, classes_by_size((picture,))))
    svg = figure.figure.find("svg")
    assert svg is not None
    _, _, width, height = map(float, svg.attrib["viewBox"].split())
    assert [dot.findtext("title") for dot in figure.dots()] == [f"node {i}" for i in range(9)]
    assert len(figure.paths("soft", "stroke")) == picture.dag.num_edges
    for x, y in figure.places():
        assert 0 < x < width
        assert 0 < y < height


def test_edges_start_and_end_at_the_centers_of_their_nodes():
    """0 -> 1 -> 2 and 0 -> 2, which passes beside node 1."""
    dag = DAG.build(torch.tensor([[0], [0], [0]]), torch.tensor([[0, 0, 1], [1, 2, 2]]))
    figure = Drawn(graph_chart(Picture("", dag, ("a", "b", "c"), ("k", "k", "k")), {"k": 0}))
    place = figure.places()
    found = []
    for path in figure.paths("soft", "stroke"):
        numbers = [float(number) for number in re.findall(r"-?[\d.]+", path.attrib["d"])]
        found.append(((numbers[0], numbers[1]), (numbers[-2], numbers[-1])))
    for ends, pair in zip(found, [(0, 1), (0, 2), (1, 2)], strict=True):
        for end, row in zip(ends, pair, strict=True):
            assert end == pytest.approx(place[row], abs=0.02)
    curves = [path.attrib["d"].count("C") for path in figure.paths("soft", "stroke")]
    assert curves == [1, 2, 1]  # the long edge has one way point


def test_titles_labels_and_classes_are_text_never_markup():
    dag = DAG.build(torch.tensor([[0]]), torch.zeros((2, 0), dtype=torch.int64))
    evil = '"><script>alert(1)</script>'
    picture = Picture(evil, dag, (evil,), (evil,))
    drawing = graph_chart(picture, classes_by_size((picture,)))
    assert "<script>" not in drawing
    assert [dot.findtext("title") for dot in Drawn(drawing).dots()] == [evil]


def test_colors_are_given_by_frequency_and_then_by_name(rng):
    dag = DAG.build(torch.tensor([[0]] * 4), torch.zeros((2, 0), dtype=torch.int64))
    first = Picture("", dag, ("",) * 4, ("b", "a", "c", "c"))
    second = Picture("", dag, ("",) * 4, ("c", "d", "d", "a"))
    assert classes_by_size((first, second)) == {"c": 0, "a": 1, "d": 2, "b": 3}
    assert classes_by_size(()) == {}
    many = Picture("", picture_of(rng).dag, ("",) * 9, tuple("abcdefghi"))
    assert max(classes_by_size((many,)).values()) == CLASS_COLORS - 1


def test_facts_stand_in_the_caption_and_in_the_text_for_screen_readers():
    dag = DAG.build(torch.tensor([[0], [0]]), torch.tensor([[0], [1]]))
    drawing = graph_chart(Picture("g", dag, ("", ""), ("k", "k")), {"k": 0})
    assert drawing.count("2 nodes, 1 edges, 2 layers") == 2
    assert 'aria-label="g: 2 nodes, 1 edges, 2 layers"' in drawing


def test_a_graph_with_a_cycle_is_refused():
    cyclic = DAG.build(torch.zeros((2, 1), dtype=torch.int64), torch.tensor([[0, 1], [1, 0]]))
    with pytest.raises(GraphError, match="cycle"):
        graph_chart(Picture("p", cyclic, ("", ""), ("k", "k")), {"k": 0})
