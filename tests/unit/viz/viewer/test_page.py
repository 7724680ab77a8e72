import json
import re
from dataclasses import replace
from importlib.resources import files

import numpy as np
import pytest
from trace_examples import comp

from layerdag.errors import UsageError
from layerdag.traces import Attribute, NodeType, Wire
from layerdag.traces.chakra import NodeSpec, build_trace
from layerdag.viz import Timing, html_page, view_of_trace


def data_of(page: str) -> dict:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def test_page_holds_the_whole_graph_and_needs_no_network() -> None:
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


def test_name_cannot_close_the_script() -> None:
    evil = "</script><script>alert(1)</script>"
    infinite = Attribute(evil, Wire.DOUBLE, float("inf"))
    trace = build_trace([NodeSpec(0, evil, NodeType.COMP, attributes=(infinite,))])
    page = html_page(view_of_trace(trace))
    assert evil not in page
    assert data_of(page)["label"] == [evil]


def test_too_large_graph_is_wrong_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("layerdag.viz.viewer._page.MOST_NODES", 2)
    with pytest.raises(UsageError, match="3 nodes; the page shows at most 2"):
        html_page(view_of_trace(build_trace([comp(0), comp(1), comp(2)])))


def layers(count: int) -> list[NodeSpec]:
    names = [f"{op}.{layer}" for layer in range(count) for op in ("norm", "mm", "act", "add")]
    return [comp(i, *range(max(i - 1, 0), i), name=name) for i, name in enumerate(names)]


def test_a_large_graph_of_repeated_blocks_opens_with_each_of_them_once() -> None:
    data = data_of(html_page(view_of_trace(build_trace(layers(20)))))
    assert data["starts"] == "rolled"
    assert data["rolled"]["row"] == [0, 1, 2, 3]
    assert data["rolled"]["blocks"] == [{"nodes": [0, 1, 2, 3], "count": 20, "period": 4}]
    assert data["rolled"]["copies"] == [20] * 4
    assert len(data["rolled"]["of"]) == len(data["whole"]["row"]) == 80


def test_a_small_graph_opens_whole_and_one_without_repetition_has_no_choice() -> None:
    small = data_of(html_page(view_of_trace(build_trace(layers(3)))))
    assert small["starts"] == "whole"
    assert small["rolled"] is not None
    single = data_of(html_page(view_of_trace(build_trace([comp(0), comp(1, 0)]))))
    assert single["rolled"] is None


def test_times_and_the_critical_path_lie_on_the_page_in_their_order() -> None:
    view = view_of_trace(build_trace([comp(0), comp(1), comp(2, 0, 1)]))
    assert "timing" not in data_of(html_page(view))
    times = Timing(
        "made up", np.array([5.0, 0.0, 9.0]), np.array([9.0, 5.0, 10.0]), np.ones(3, dtype=bool)
    )
    found = data_of(html_page(replace(view, timing=times)))["timing"]
    assert found["path"] == [1, 0, 2]
    assert (found["source"], found["end"]) == ("made up", [9.0, 5.0, 10.0])


def test_kinds_have_words_and_one_of_the_report_s_colors() -> None:
    data = data_of(html_page(view_of_trace(build_trace([comp(0)]))))
    assert data["kinds"] == ["computation"]
    assert data["slots"] == [0]


def test_the_page_has_the_report_s_colors() -> None:
    report = (files("layerdag.report") / "style.css").read_text()
    own = (files("layerdag.viz.viewer") / "viewer.css").read_text()

    def palettes(style: str) -> list[list[str]]:
        return [re.findall(rf"--k{k}: (#\w+)", style)[:2] for k in range(8)]

    assert palettes(own) == palettes(report)
    assert all(len(both) == 2 for both in palettes(own))


def test_nothing_can_be_loaded_by_the_page() -> None:
    page = html_page(view_of_trace(build_trace([comp(0)])))
    assert "default-src 'none'" in page
    assert "/*STYLE*/" not in page
    assert "/*SCRIPT*/" not in page
