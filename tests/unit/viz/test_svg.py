import re
import xml.etree.ElementTree as ET

import numpy as np
import torch

from layerdag.graph import DAG, random_dag
from layerdag.viz import Picture, class_legend, classes_by_size, draw
from layerdag.viz._svg import CLASS_COLORS


def _picture(rng: np.random.Generator, classes: int = 3) -> Picture:
    dag = random_dag(rng, [2, 4, 3], [classes])
    names = tuple(f"class{code}" for code in dag.x_NA[:, 0].tolist())
    return Picture("A <graph>", dag, tuple(f"node {i}" for i in range(9)), names)


def test_every_node_and_edge_is_drawn_inside_the_picture(rng: np.random.Generator) -> None:
    picture = _picture(rng)
    figure = ET.fromstring(draw(picture, classes_by_size((picture,))).html)
    svg = figure.find("svg")
    assert svg is not None
    _, _, width, height = map(float, svg.attrib["viewBox"].split())
    circles = list(svg.iter("circle"))
    assert len(circles) == 9
    assert len(list(svg.iter("path"))) == picture.dag.num_edges
    for circle in circles:
        assert 0 <= float(circle.attrib["cx"]) <= width
        assert 0 <= float(circle.attrib["cy"]) <= height
    assert [next(iter(circle)).text for circle in circles][:2] == ["node 0", "node 1"]


def test_colors_go_to_the_most_frequent_classes_and_the_rest_share_one(
    rng: np.random.Generator,
) -> None:
    picture = Picture("", _picture(rng).dag, ("",) * 9, tuple("abcdefghi"))
    slot_of = classes_by_size((picture, picture))
    assert max(slot_of.values()) == CLASS_COLORS - 1
    assert "others (2 classes)" in class_legend(slot_of).html


def test_edges_start_and_end_at_the_centers_of_their_nodes() -> None:
    """0 -> 1 -> 2 and 0 -> 2, which passes beside node 1."""
    dag = DAG.build(torch.tensor([[0], [0], [0]]), torch.tensor([[0, 0, 1], [1, 2, 2]]))
    picture = Picture("", dag, ("a", "b", "c"), ("k", "k", "k"))
    figure = ET.fromstring(draw(picture, {"k": 0}).html)
    place = [(c.attrib["cx"], c.attrib["cy"]) for c in figure.iter("circle")]
    ends = []
    for path in figure.iter("path"):
        numbers = re.findall(r"-?\d+\.\d", path.attrib["d"])
        ends.append(((numbers[0], numbers[1]), (numbers[-2], numbers[-1])))
    assert ends == [(place[0], place[1]), (place[0], place[2]), (place[1], place[2])]
    curves = [path.attrib["d"].count("C") for path in figure.iter("path")]
    assert curves == [1, 2, 1]  # the long edge has one way point


def test_titles_labels_and_classes_are_text_never_markup() -> None:
    dag = DAG.build(torch.tensor([[0]]), torch.zeros((2, 0), dtype=torch.int64))
    evil = '"><script>alert(1)</script>'
    picture = Picture(evil, dag, (evil,), (evil,))
    slot_of = classes_by_size((picture,))
    for html in (draw(picture, slot_of).html, class_legend(slot_of).html):
        assert "<script>" not in html
        ET.fromstring(html)  # raises where a quote would end an attribute


def test_colors_are_given_by_frequency_and_then_by_name() -> None:
    dag = DAG.build(torch.tensor([[0]] * 4), torch.zeros((2, 0), dtype=torch.int64))
    first = Picture("", dag, ("",) * 4, ("b", "a", "c", "c"))
    second = Picture("", dag, ("",) * 4, ("c", "d", "d", "a"))
    assert classes_by_size((first, second)) == {"c": 0, "a": 1, "d": 2, "b": 3}
    assert classes_by_size(()) == {}


def test_facts_stand_in_the_caption_and_in_the_text_for_screen_readers() -> None:
    dag = DAG.build(torch.tensor([[0], [0]]), torch.tensor([[0], [1]]))
    html = draw(Picture("g", dag, ("", ""), ("k", "k")), {"k": 0}).html
    assert html.count("2 nodes, 1 edges, 2 layers") == 2
    assert 'aria-label="g: 2 nodes, 1 edges, 2 layers"' in html
