"""Repeated blocks: runs of equal colors, exact unrolling, graphs of another depth."""

import re

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from layerdag.graph.repeats import RepeatedProgram, Run, nested_runs, repeated_runs
from layerdag.traces.chakra.corpus import embedded_corpus, read_index, read_runs
from layerdag.traces.trace import Trace, dependency_edges


def colors(word: str) -> np.ndarray:
    """Return the letters of a word as colors."""
    return np.array([ord(letter) for letter in word])


@pytest.mark.parametrize(
    ("word", "runs"),
    [
        ("abcabcabc", [Run(0, 3, 3)]),
        ("xabababy", [Run(1, 2, 3)]),
        ("xaabaabz", [Run(1, 3, 2)]),
        ("abcd", []),
        ("aaaa", [Run(0, 1, 4)]),
        ("abcabcxdede", [Run(0, 3, 2), Run(7, 2, 2)]),
        ("", []),
        ("a", []),
        ("ababa", [Run(0, 2, 2)]),
    ],
)
def test_runs_of_equal_blocks(word, runs):
    assert list(repeated_runs(colors(word))) == runs


def test_runs_inside_blocks_occur_in_each_copy():
    """Two micro-batches of three layers."""
    found = nested_runs(colors("sababab" * 2))
    assert found == (Run(0, 7, 2), Run(1, 2, 3), Run(8, 2, 3))


def layered(count: int) -> tuple[int, tuple[np.ndarray, np.ndarray], list[Run]]:
    """Return a net of ``count`` layers of two nodes, forward and backward, with an optimizer."""
    edges, last = [], 0
    for layer in range(count):
        node = 1 + 2 * layer
        edges += [(last, node, 0), (node, node + 1, 0)]
        last = node + 1
    loss = 2 * count + 1
    edges.append((last, loss, 0))
    last, optimizer = loss, 4 * count + 2
    for copy in range(count):
        node, layer = loss + 1 + 2 * copy, count - 1 - copy
        edges += [(last, node, 0), (2 + 2 * layer, node, 1), (node, node + 1, 0)]
        edges.append((node + 1, optimizer, 0))
        last = node + 1
    table = np.array(sorted(edges, key=lambda edge: (edge[1], edge[0])))
    runs = [Run(1, 2, count), Run(loss + 1, 2, count)]
    return optimizer + 1, (table[:, :2].T, table[:, 2]), runs


@pytest.mark.parametrize(("count", "wanted"), [(2, 5), (3, 4), (5, 2), (4, 4), (3, 12)])
def test_a_net_of_so_many_layers_is_that_net(count, wanted):
    nodes, edges, runs = layered(count)
    made = RepeatedProgram.fold(nodes, edges, runs, [False, True]).unrolled(wanted)
    _, (edges_2E, kind_E), _ = layered(wanted)
    np.testing.assert_array_equal(made.edge_index_2E, edges_2E)
    np.testing.assert_array_equal(made.edge_type_E, kind_E)
    assert made.depth_N.max() == wanted - 1


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_unrolling_gives_any_graph_back(data):
    period, count = data.draw(st.integers(1, 3)), data.draw(st.integers(2, 4))
    before, between = data.draw(st.integers(0, 2)), data.draw(st.integers(0, 2))
    first = Run(before, period, count)
    second = Run(first.stop + between, 1, data.draw(st.sampled_from((count, count - 1))))
    nodes = second.stop + data.draw(st.integers(0, 2))
    pairs = st.tuples(st.integers(0, nodes - 1), st.integers(0, nodes - 1), st.integers(0, 1))
    found = data.draw(st.sets(pairs.filter(lambda pair: pair[0] < pair[1]), max_size=20))
    table = np.array(sorted(found, key=lambda e: (e[1], e[0], e[2])), dtype=np.int64).reshape(-1, 3)
    edges = (table[:, :2].T, table[:, 2])
    back = data.draw(st.tuples(st.booleans(), st.booleans()))
    made = RepeatedProgram.fold(nodes, edges, [first, second], back).unrolled()
    np.testing.assert_array_equal(made.row_N, np.arange(nodes))
    np.testing.assert_array_equal(made.edge_index_2E, edges[0])
    np.testing.assert_array_equal(made.edge_type_E, edges[1])


def test_unrolling_gives_jobs_of_the_corpus_back():
    """A sample; ``benchmarks/scale.py`` does it for every job."""
    corpus = embedded_corpus()
    records = [r for r in read_index(corpus) if r.family in ("mlp", "gnn")][::40]
    for run in read_runs(corpus, records):
        assert_unrolls(run.traces[0])


def assert_unrolls(trace: Trace) -> None:
    """Fail if the blocks of a trace do not give it back."""
    names = [re.sub(r"\d+", "#", name) for name in trace.names()]
    number: dict[str, int] = {}
    color_N = np.array([number.setdefault(name, len(number)) for name in names])
    edges_2E, kind_E = dependency_edges(trace)
    order_E = np.lexsort((kind_E, edges_2E[0], edges_2E[1]))
    for count in {run.count for run in repeated_runs(color_N)}:
        runs = [run for run in repeated_runs(color_N) if run.count == count]
        back = [at % 2 == 1 for at in range(len(runs))]
        made = RepeatedProgram.fold(len(names), (edges_2E, kind_E), runs, back).unrolled()
        np.testing.assert_array_equal(made.edge_index_2E, edges_2E[:, order_E])
        np.testing.assert_array_equal(made.edge_type_E, kind_E[order_E])
