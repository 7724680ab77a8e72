"""A graph by the modules of its model."""

import json
import re
from dataclasses import replace
from importlib.resources import files

import numpy as np
import pytest
from hypothesis import given, strategies as st
from laws import tried
from trace_examples import comp, pair_workload

from layerdag.errors import UsageError
from layerdag.traces.builder import NodeSpec, build_trace
from layerdag.traces.trace import Attribute, NodeType, Wire, Workload
from layerdag.viz.viewer import (
    _data,
    cut_path,
    html_page,
    module_graph,
    recorded_timing,
    rolled_graph,
    simulated_timing,
)
from layerdag.viz.views import GraphView, Timing, view_of_trace


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
def test_a_path_is_cut_behind_the_piece_of_a_layer(path, cut):
    assert cut_path(path.split(".")) == cut


def test_nodes_that_follow_each_other_in_a_module_are_one():
    found = module_graph(view(*["embedding"] * 3, *["layers.0.mlp.up"] * 2, *["layers.0.mlp.up"]))
    assert found is not None
    assert found.view.labels == ("embedding, forward", "layers.0.mlp, forward")
    assert found.group_N.tolist() == [0, 0, 0, 1, 1, 1]
    assert found.view.edge_index_2E.T.tolist() == [[0, 1]]


def test_a_module_that_is_called_again_is_another_group():
    found = module_graph(view("a", "a", "a", "b", "b", "b", "a", "a", "a"))
    assert found is not None
    assert found.group_N.max() == 2
    assert found.first_G.tolist() == [0, 3, 6]


def test_without_modules_there_is_no_such_graph():
    assert module_graph(view(*[""] * 6)) is None
    assert module_graph(view("a", "", "", "", "", "")) is None
    assert module_graph(view("a", "b", "c", "d")) is None  # nothing is grouped


def test_layers_of_modules_are_drawn_once_with_all_their_nodes():
    names = [f"layers.{i}.{part}" for i in range(6) for part in ("attention",) * 5 + ("mlp",) * 4]
    drawn = _data(view(*names))["modules"]
    assert isinstance(drawn, dict)
    assert drawn["names"] == ["layers.0.attention, forward", "layers.0.mlp, forward"]
    assert drawn["copies"] == [30, 24]
    assert drawn["row"] == [0, 5]
    assert drawn["blocks"] == [{"nodes": [0, 1], "count": 6, "period": 2}]
    assert len(drawn["of"]) == len(names)


def data_of(page: str) -> dict:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def test_page_holds_the_whole_graph_and_needs_no_network():
    trace = build_trace([comp(5), comp(6, 5), comp(7, 5, 6, name="last")])
    page = html_page(view_of_trace(trace))
    data = data_of(page)
    assert data["id"] == ["5", "6", "7"]
    assert data["label"][2] == "last"
    whole = data["whole"]
    assert whole["y"] == [0, 1, 2]
    pairs = sorted(zip(whole["source"], whole["target"], strict=True))
    assert pairs == [(0, 1), (0, 2), (1, 2)]
    # The edge 0 -> 2 passes layer 1.
    assert whole["ptr"][-1] == len(whole["routeX"]) == 1
    assert not re.search(r"(src|href)=|https?://", page)


def test_name_cannot_close_the_script():
    evil = "</script><script>alert(1)</script>"
    infinite = Attribute(evil, Wire.DOUBLE, float("inf"))
    trace = build_trace([NodeSpec(0, evil, NodeType.COMP, attributes=(infinite,))])
    page = html_page(view_of_trace(trace))
    assert evil not in page
    assert data_of(page)["label"] == [evil]


def test_too_large_graph_is_wrong_use(monkeypatch):
    monkeypatch.setattr("layerdag.viz.viewer.MOST_NODES", 2)
    with pytest.raises(UsageError, match="3 nodes; the page shows at most 2"):
        html_page(view_of_trace(build_trace([comp(0), comp(1), comp(2)])))


def layers(count: int) -> list[NodeSpec]:
    names = [f"{op}.{layer}" for layer in range(count) for op in ("norm", "mm", "act", "add")]
    return [comp(i, *range(max(i - 1, 0), i), name=name) for i, name in enumerate(names)]


def test_a_large_graph_of_repeated_blocks_opens_with_each_of_them_once():
    data = data_of(html_page(view_of_trace(build_trace(layers(20)))))
    assert data["starts"] == "rolled"
    assert data["rolled"]["row"] == [0, 1, 2, 3]
    assert data["rolled"]["blocks"] == [{"nodes": [0, 1, 2, 3], "count": 20, "period": 4}]
    assert data["rolled"]["copies"] == [20] * 4
    assert len(data["rolled"]["of"]) == len(data["whole"]["row"]) == 80


def test_a_small_graph_opens_whole_and_one_without_repetition_has_no_choice():
    small = data_of(html_page(view_of_trace(build_trace(layers(3)))))
    assert small["starts"] == "whole"
    assert small["rolled"] is not None
    single = data_of(html_page(view_of_trace(build_trace([comp(0), comp(1, 0)]))))
    assert single["rolled"] is None


def test_times_and_the_critical_path_lie_on_the_page_in_their_order():
    view = view_of_trace(build_trace([comp(0), comp(1), comp(2, 0, 1)]))
    assert "timing" not in data_of(html_page(view))
    times = Timing(
        "made up", np.array([5.0, 0.0, 9.0]), np.array([9.0, 5.0, 10.0]), np.ones(3, dtype=bool)
    )
    found = data_of(html_page(replace(view, timing=times)))["timing"]
    assert found["path"] == [1, 0, 2]
    assert (found["source"], found["end"]) == ("made up", [9.0, 5.0, 10.0])


def test_kinds_have_words_and_one_of_the_report_s_colors():
    data = data_of(html_page(view_of_trace(build_trace([comp(0)]))))
    assert data["kinds"] == ["computation"]
    assert data["slots"] == [0]


def test_the_page_has_the_report_s_colors():
    report = (files("layerdag.report") / "templates" / "style.css").read_text()
    own = (files("layerdag.viz") / "viewer.css").read_text()

    def palettes(style: str) -> list[list[str]]:
        return [re.findall(rf"--k{k}: (#\w+)", style)[:2] for k in range(8)]

    assert palettes(own) == palettes(report)
    assert all(len(both) == 2 for both in palettes(own))


def test_nothing_can_be_loaded_by_the_page():
    page = html_page(view_of_trace(build_trace([comp(0)])))
    assert "default-src 'none'" in page
    assert "/*STYLE*/" not in page
    assert "/*SCRIPT*/" not in page


def chain(*names: str) -> GraphView:
    """Return a view of nodes in a row."""
    return view_of_trace(
        build_trace([comp(i, *range(max(i - 1, 0), i), name=n) for i, n in enumerate(names)])
    )


def layers_rolled(count: int, block: tuple[str, ...] = ("norm", "mm", "act")) -> GraphView:
    inner = [f"{name}.{layer}" for layer in range(count) for name in block]
    return chain("embedding", *inner, "loss")


def test_of_equal_layers_one_is_drawn_with_their_number():
    view = layers_rolled(10)
    found = rolled_graph(view)
    assert [view.labels[row] for row in found.row_M] == [
        "embedding", "norm.0", "mm.0", "act.0", "loss",
    ]  # fmt: skip
    assert found.copies_M.tolist() == [1, 10, 10, 10, 1]
    (block,) = found.blocks
    assert (block.count, block.period, block.row_K) == (10, 3, (1, 2, 3))


def test_edges_lead_into_and_out_of_the_block_and_back_to_its_start():
    found = rolled_graph(layers_rolled(10))
    assert found.edge_index_2E.T.tolist() == [[0, 1], [1, 2], [2, 3], [3, 4]]
    assert found.back_2B.T.tolist() == [[3, 1]]
    assert found.layer_M.tolist() == [0, 1, 2, 3, 4]


def test_blocks_inside_a_block_are_rolled_up_too():
    micro_batches = [
        name
        for batch in range(3)
        for name in (
            f"start.F{batch}",
            *(f"{op}.{layer}.F{batch}" for layer in range(4) for op in ("norm", "mm", "act")),
        )
    ]
    found = rolled_graph(chain(*micro_batches))
    assert [(block.count, block.period) for block in found.blocks] == [(3, 13), (4, 3)]
    assert found.copies_M.tolist() == [3, 12, 12, 12]
    outer, inner = found.blocks
    assert set(inner.row_K) < set(outer.row_K)


@pytest.mark.parametrize("names", [("a", "b", "c", "d"), ("a", "a", "a"), ("a", "b", "a", "b")])
def test_what_hardly_repeats_stays_as_it_is(names):
    found = rolled_graph(chain(*names))
    assert found.blocks == ()
    assert found.row_M.tolist() == list(range(len(names)))


def test_numbers_that_are_part_of_a_name_tell_operators_apart():
    assert rolled_graph(chain(*(f"conv{i}x{i}d" for i in range(8)))).blocks == ()


@tried(40)
@given(st.lists(st.sampled_from("abc"), max_size=40), st.randoms(use_true_random=False))
def test_every_node_has_one_that_stands_for_it_and_what_is_drawn_has_no_cycle(names, random):
    nodes = [
        comp(i, *{random.randrange(i) for _ in range(2) if i}, name=name)
        for i, name in enumerate(names)
    ]
    view = view_of_trace(build_trace(nodes))
    found = rolled_graph(view)
    assert found.copies_M.sum() == view.num_nodes
    drawn_N = found.row_M[found.of_N] if view.num_nodes else np.zeros(0, int)
    assert (view.kind_N[drawn_N] == view.kind_N).all()
    source, target = found.edge_index_2E
    assert (found.layer_M[source] < found.layer_M[target]).all()
    # No edge is lost: it is drawn, leads back, or stays on one node.
    pairs = {*map(tuple, found.edge_index_2E.T.tolist()), *map(tuple, found.back_2B.T.tolist())}
    for a, b in found.of_N[view.edge_index_2E].T.tolist():
        assert a == b or (a, b) in pairs


def test_recorded_times_are_as_early_as_dependencies_allow():
    found = recorded_timing(
        build_trace([comp(0, us=5), comp(1, us=50), comp(2, 0, 1, us=7), comp(3, 0, us=1)])
    )
    assert found is not None
    assert found.start_us_N.tolist() == [0, 0, 50, 5]
    assert found.end_us_N.tolist() == [5, 50, 57, 6]
    assert np.flatnonzero(found.critical_N).tolist() == [1, 2]


def test_a_trace_without_durations_has_no_times():
    assert recorded_timing(build_trace([comp(0, us=0), comp(1, 0, us=0)])) is None


def test_simulated_times_are_those_of_the_nodes_whatever_their_order_in_the_file():
    nodes = [comp(0, us=5), comp(1, 0, us=7), comp(2, 1, us=9)]
    straight = Workload((build_trace(nodes),))
    turned = Workload((build_trace(nodes[::-1]),))
    first, second = (simulated_timing(one, "small", 0) for one in (straight, turned))
    assert first.start_us_N.tolist() == second.start_us_N[::-1].tolist()
    assert (first.end_us_N - first.start_us_N).tolist() == [5, 7, 9]
    assert first.critical_N.all()
    assert second.critical_N.all()
    assert first.source == "simulated, cluster “small”, rank 0"


def test_only_ranks_that_there_are_can_be_shown():
    with pytest.raises(UsageError, match=r"--rank 5: .* has ranks 0 to 1"):
        simulated_timing(pair_workload(), "small", 5)


def test_recorded_times_belong_to_nodes_and_not_to_their_places_in_the_file():
    nodes = [comp(0, us=5), comp(1, us=50), comp(2, 0, 1, us=7), comp(3, 0, us=1), comp(9, 3, us=8)]
    straight, turned = (recorded_timing(build_trace(each)) for each in (nodes, nodes[::-1]))
    assert straight is not None
    assert turned is not None
    assert straight.start_us_N.tolist() == turned.start_us_N[::-1].tolist()
    assert straight.critical_N.tolist() == turned.critical_N[::-1].tolist()
    path_N = straight.critical_N
    length = (straight.end_us_N - straight.start_us_N)[path_N].sum()
    assert length == straight.end_us_N.max()
