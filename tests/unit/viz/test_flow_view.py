import numpy as np
import pytest

from layerdag.codec import AttributedGraph
from layerdag.errors import GraphError
from layerdag.viz import view_of_graph


def graph(words: list[str], edges: list[tuple[int, int]]) -> AttributedGraph:
    return AttributedGraph(
        name="g",
        categories={"width": ["8"] * len(words), "op": words},
        numbers={"bytes": np.array([1.5, *[np.nan] * (len(words) - 1)])},
        edge_index_2E=np.array(edges, dtype=np.int64).reshape(-1, 2).T,
        edge_type_E=np.arange(len(edges)) % 2,
    )


def test_nodes_are_named_by_what_they_do_and_absent_numbers_left_out() -> None:
    view = view_of_graph(graph(["add", "mul", "add"], [(0, 1), (1, 2)]))
    assert view.labels == ("add", "mul", "add")
    assert view.kinds == ("add", "mul")
    assert view.kind_N.tolist() == [0, 1, 0]
    assert view.dashed_E.tolist() == [False, True]
    assert view.details[0] == {"width": "8", "op": "add", "bytes": 1.5}
    assert "bytes" not in view.details[1]


def test_rare_categories_share_a_color() -> None:
    view = view_of_graph(graph([f"op{at}" for at in range(20)], []))
    assert view.kinds[-1] == "other"
    assert len(view.kinds) == len(view.colors)
    assert view.kind_N.max() == len(view.kinds) - 1


def test_cycle_is_refused() -> None:
    with pytest.raises(GraphError, match="cycle"):
        view_of_graph(graph(["a", "b"], [(0, 1), (1, 0)]))
