from dataclasses import replace

import pytest
from trace_examples import coll, comp

from layerdag.errors import TraceError, UsageError
from layerdag.traces import Attribute, NodeType, Wire
from layerdag.traces.chakra import NodeSpec, build_trace
from layerdag.viz import view_of_trace
from layerdag.viz._view import plain_details


def test_kinds_are_node_types_where_names_say_nothing() -> None:
    nodes = [comp(at, name=f"layer{chr(97 + at)}") for at in range(26)]
    view = view_of_trace(build_trace([*nodes, coll(26)]))
    assert view.kinds == ("COMP", "COMM_COLL")


def test_frequent_operators_are_kinds_of_their_own() -> None:
    names = ["mm(1)", "mm(2)", "mm(3)", "add", "add", "add", "relu", "relu", "add", *"abcd"]
    view = view_of_trace(build_trace([comp(at, name=name) for at, name in enumerate(names)]))
    assert {"mm", "add", "other computation"} <= set(view.kinds)
    assert view.kind_N[0] == view.kind_N[1]
    assert len(set(view.colors)) == len(view.kinds)


def test_long_values_are_cut() -> None:
    values = tuple(range(100))
    node = NodeSpec(0, "a", NodeType.COMP, attributes=(Attribute("l", Wire.INT64 + 1, values),))
    text = view_of_trace(build_trace([node])).details[0]["l"]
    assert text.startswith("0, 1, 2")
    assert len(text) == 60


def test_a_view_has_ids_labels_edges_and_what_is_dashed() -> None:
    trace = build_trace([comp(70, name="mm"), comp(5, 70, name="add", ctrl=(9,)), coll(9)])
    view = view_of_trace(replace(trace, source="/some/where/job.0.et"))
    assert view.title == "job.0.et"
    assert view.ids == ("70", "5", "9")
    assert view.labels == ("mm", "add", "coll")
    edges = zip(*view.edge_index_2E.tolist(), view.dashed_E.tolist(), strict=True)
    assert sorted(edges) == [(0, 1, False), (2, 1, True)]
    assert [view.kinds[kind] for kind in view.kind_N] == ["COMP", "COMP", "COMM_COLL"]
    assert len(view.colors) == len(view.kinds) == 2


def test_details_are_times_and_attributes_and_nothing_that_is_zero() -> None:
    node = NodeSpec(
        0, "a", NodeType.COMP, start_us=5, duration_us=0,
        attributes=(
            Attribute("size", Wire.UINT64, 0),
            Attribute("raw", Wire.BYTES, b"\x00"),
            Attribute("unset", Wire.UNSET, None),
            Attribute("flags", Wire.BOOL + 1, (True, False)),
        ),
    )  # fmt: skip
    (details,) = view_of_trace(build_trace([node])).details
    assert details == {
        "start_us": 5, "size": 0, "raw": "b'\\x00'", "unset": "None", "flags": "True, False",
    }  # fmt: skip


@pytest.mark.parametrize(("size", "sound"), [(3, True), (4, False)])
def test_too_many_nodes_are_refused_with_what_to_do_instead(size: int, sound: bool) -> None:
    view = view_of_trace(build_trace([comp(n) for n in range(size)]))
    if sound:
        view.require_at_most(3, "a picture", "Do this.")
        return
    with pytest.raises(UsageError, match=r"has 4 nodes; a picture shows at most 3\. Do this\."):
        view.require_at_most(3, "a picture", "Do this.")


def test_faulty_dependencies_are_refused() -> None:
    with pytest.raises(TraceError, match="node 1 depends on node 9"):
        view_of_trace(build_trace([comp(1, 9)]))
    with pytest.raises(TraceError, match="wait for each other in a cycle"):
        view_of_trace(build_trace([comp(1, 2), comp(2, 1)]))


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (2**53, 2**53),
        (2**53 + 1, str(2**53 + 1)),
        (-(2**53) - 1, str(-(2**53) - 1)),
        (0.5, 0.5),
        (float("-inf"), "-inf"),
        (True, True),
        ("text", "text"),
    ],
)
def test_details_for_browsers_are_exact(value: object, shown: object) -> None:
    found = plain_details({"a": value})["a"]
    assert found == shown
    assert type(found) is type(shown)
