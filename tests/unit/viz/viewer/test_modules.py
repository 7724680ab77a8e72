"""A graph by the modules of its model."""

from dataclasses import replace

import pytest
from trace_examples import comp

from layerdag.traces.chakra import build_trace
from layerdag.viz import GraphView, view_of_trace
from layerdag.viz.viewer import module_graph
from layerdag.viz.viewer._modules import cut_path
from layerdag.viz.viewer._page import _data


def view(*modules: str, phase: str = "forward") -> GraphView:
    """Return a chain whose nodes belong to these modules, "" for none."""
    chain = view_of_trace(
        build_trace([comp(i, *range(max(i - 1, 0), i)) for i in range(len(modules))])
    )
    details = tuple({"module": name, "phase": phase} if name else {} for name in modules)
    return replace(chain, details=details)


@pytest.mark.parametrize(
    ("path", "cut"),
    [
        ("model.layers.3.attention.q.lora", "model.layers.3.attention"),
        ("layers.3", "layers.3"),
        ("blocks.0.1.norm", "blocks.0.1"),
        ("encoder.embedding.table", "encoder.embedding"),
        ("head", "head"),
    ],
)
def test_a_path_is_cut_behind_the_piece_of_a_layer(path: str, cut: str) -> None:
    assert cut_path(path.split(".")) == cut


def test_nodes_that_follow_each_other_in_a_module_are_one() -> None:
    found = module_graph(view(*["embedding"] * 3, *["layers.0.mlp.up"] * 2, *["layers.0.mlp.up"]))
    assert found is not None
    assert found.view.labels == ("embedding, forward", "layers.0.mlp, forward")
    assert found.group_N.tolist() == [0, 0, 0, 1, 1, 1]
    assert found.view.edge_index_2E.T.tolist() == [[0, 1]]


def test_a_module_that_is_called_again_is_another_group() -> None:
    found = module_graph(view("a", "a", "a", "b", "b", "b", "a", "a", "a"))
    assert found is not None
    assert found.group_N.max() == 2
    assert found.first_G.tolist() == [0, 3, 6]


def test_without_modules_there_is_no_such_graph() -> None:
    assert module_graph(view(*[""] * 6)) is None
    assert module_graph(view("a", "", "", "", "", "")) is None
    assert module_graph(view("a", "b", "c", "d")) is None  # nothing is grouped


def test_layers_of_modules_are_drawn_once_with_all_their_nodes() -> None:
    names = [f"layers.{i}.{part}" for i in range(6) for part in ("attention",) * 5 + ("mlp",) * 4]
    drawn = _data(view(*names))["modules"]
    assert isinstance(drawn, dict)
    assert drawn["names"] == ["layers.0.attention, forward", "layers.0.mlp, forward"]
    assert drawn["copies"] == [30, 24]
    assert drawn["row"] == [0, 5]
    assert drawn["blocks"] == [{"nodes": [0, 1], "count": 6, "period": 2}]
    assert len(drawn["of"]) == len(names)
