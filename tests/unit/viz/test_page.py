import json
import re

import pytest
from trace_examples import comp

from layerdag.errors import UsageError
from layerdag.traces import Attribute, NodeType, Wire
from layerdag.traces.chakra import NodeSpec, build_trace
from layerdag.viz import html_page, view_of_trace


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
    assert data["y"] == [0, 1, 2]
    pairs = sorted(zip(data["source"], data["target"], strict=True))
    assert pairs == [(0, 1), (0, 2), (1, 2)]
    # The edge 0 -> 2 passes layer 1.
    assert data["ptr"][-1] == len(data["routeX"]) == 1
    assert not re.search(r"(src|href)=|https?://", page)


def test_name_cannot_close_the_script() -> None:
    evil = "</script><script>alert(1)</script>"
    infinite = Attribute(evil, Wire.DOUBLE, float("inf"))
    trace = build_trace([NodeSpec(0, evil, NodeType.COMP, attributes=(infinite,))])
    page = html_page(view_of_trace(trace))
    assert evil not in page
    assert data_of(page)["label"] == [evil]


def test_too_large_graph_is_wrong_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("layerdag.viz._page.MOST_NODES", 2)
    with pytest.raises(UsageError, match="3 nodes; the page shows at most 2"):
        html_page(view_of_trace(build_trace([comp(0), comp(1), comp(2)])))
