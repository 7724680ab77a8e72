"""What any writer of graphs writes is read again, whatever words the graph has."""

import math

import numpy as np
import pytest
from hypothesis import example, given, strategies as st
from laws import tried
from raw_graphs import chain

from layerdag.codec.formats import FORMATS, Content, Format, read
from layerdag.errors import GraphError
from layerdag.graph.attributed_graph import AttributedGraph

WRITERS = [
    each
    for each in FORMATS
    if each.content is Content.GRAPH and each.write and each.word != "program"
]
"""All but that of programs, whose nodes must be calls (test_program_json.py)."""
ENDINGS = {"GraphML": "g.graphml", "DOT": "g.dot"}
WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
NAMES = WORDS | st.sampled_from(
    ["size", "shape", "label", "group", "type", "id", "node", "node_default", "node_for_adding",
     "incoming_graph_data", "name", "nodes", "distance"]
)  # fmt: skip


def cleaned(text: str, name: str) -> str:
    """Return a text as a format holds it."""
    if name == "DOT":
        return text.replace("\0", "\ufffd")
    if name == "GraphML":
        kept = (
            c if c in "\t\n\r" or (c >= " " and c not in "\ufffe\uffff") else "\ufffd" for c in text
        )
        return "".join(kept)
    return text


@pytest.mark.parametrize("writer", WRITERS, ids=lambda each: each.name)
@given(
    words=st.lists(WORDS, min_size=1, max_size=4),
    ids=st.lists(WORDS, min_size=4, max_size=4, unique=True),
    names=st.lists(NAMES, min_size=3, max_size=3, unique=True),
    kind=WORDS,
    value=st.floats(-1e9, 1e9, width=32),
)
@example(
    words=["\x1b", "a"],
    ids=["\x01", "\x02", "\x03", "x"],
    names=["\x01", "\x02", "c"],
    kind="data",
    value=1.0,
)
@example(
    words=["\\\\N", "\\"],
    ids=["a\\", '"', "<b>", "n:1"],
    names=["label", "size", "shape"],
    kind="a+b",
    value=0.5,
)
@tried(40)
def test_every_word_is_read_again(
    tmp_path_factory: pytest.TempPathFactory, writer: Format, words: list[str], ids: list[str],
    names: list[str], kind: str, value: float,
) -> None:  # fmt: skip
    size = len(words)
    graph = AttributedGraph(
        name="g",
        categories={names[0]: words},
        numbers={names[1]: np.array([value] + [math.nan] * (size - 1))},
        edge_index_2E=np.stack([np.arange(size - 1), np.arange(1, size)]),
        edge_type_E=np.zeros(size - 1, dtype=np.int64),
        edge_type_names=(kind or "data",),
        conditions={names[2]: kind, "label": value},
        node_names=tuple(ids[:size]),
    )
    path = tmp_path_factory.mktemp("law") / ENDINGS.get(writer.name, "g.json")
    assert writer.write is not None
    writer.write(path, graph)
    again = read(path)
    assert isinstance(again, AttributedGraph)
    np.testing.assert_array_equal(again.edge_index_2E, graph.edge_index_2E)
    if writer.name == "WfFormat":
        return
    assert again.conditions["label"] == value
    own = [cleaned(name, writer.name) for name in names]
    if len(set(own)) == len(own) and "label" not in own[:2]:
        np.testing.assert_array_equal(again.numbers[own[1]], graph.numbers[names[1]])
    expected = [cleaned(key, writer.name) for key in ids[:size]]
    if len(set(expected)) == size and not all(k == str(at) for at, k in enumerate(expected)):
        assert list(again.node_names) == expected
    if writer.name == "JSON of layerdag":
        assert again.categories == graph.categories
        assert again.edge_type_names == graph.edge_type_names


@pytest.mark.parametrize("writer", WRITERS, ids=lambda each: each.name)
def test_half_of_a_pair_of_surrogates_is_refused_by_every_writer(tmp_path, writer):
    assert writer.write is not None
    with pytest.raises(GraphError, match=r"'\\ud800' is no text"):
        writer.write(tmp_path / "g", chain("g", ["a", "\ud800"]))
