import xml.etree.ElementTree as ET

import numpy as np

from layerdag.graph import random_dag
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
