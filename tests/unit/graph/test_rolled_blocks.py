"""Words of rolled graphs."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from layered_jobs import layered_job
from random_jobs import random_job

from layerdag.codec.folding import RankClassTrace, job_graph
from layerdag.dag.dag import graph_hash
from layerdag.errors import DataError
from layerdag.graph.attributed_graph import AttributedGraph
from layerdag.graph.rolled_blocks import (
    BLOCK,
    MOST_NODES,
    REPEATS,
    CopyOffset,
    EdgeLabel,
    block_word,
    copies_of,
    copy_label,
    in_copy,
    is_rolled,
    rolled,
    self_copy_edges,
    unrolled,
)
from layerdag.graph.topology import longest_path_layers
from layerdag.schema.schema import GraphSchema
from layerdag.traces.chakra.corpus import embedded_corpus, read_index, read_runs

KINDS = ("data", "control")


@pytest.mark.parametrize("extent", list(CopyOffset))
@pytest.mark.parametrize("turned", [False, True])
def test_a_word_is_read_as_it_was_written(extent, turned):
    word = EdgeLabel("data", extent, turned)
    assert EdgeLabel.all_in(str(word), KINDS) == [word]


def test_several_words_of_one_edge_are_told_apart():
    words = {
        EdgeLabel("data"),
        EdgeLabel("control", CopyOffset.DEEPER),
        EdgeLabel("data", CopyOffset.LAST),
    }
    assert set(EdgeLabel.all_in(copy_label(words), KINDS)) == words


def test_words_of_other_graphs_are_left_out():
    assert EdgeLabel.all_in("weight", KINDS) == []
    assert EdgeLabel.all_in("data sideways + control", KINDS) == [EdgeLabel("control")]


def test_nodes_outside_blocks_have_no_other_copies():
    assert self_copy_edges("outside", KINDS) is None
    assert self_copy_edges(block_word([]), KINDS) == []
    words = [EdgeLabel("data", CopyOffset.DEEPER)]
    assert self_copy_edges(block_word(words), KINDS) == words


def test_one_copy_is_first_and_last_and_has_no_neighbor():
    assert [len(extent.depths(1)) for extent in CopyOffset] == [1, 1, 1, 0, 0, 0, 0]


def test_edges_inside_a_copy_are_told_from_those_to_other_copies():
    assert in_copy("data", "data")
    assert in_copy("data first", "data")
    assert in_copy("control deeper + data", "data")
    assert not in_copy("data deeper reversed", "data")
    assert not in_copy("control", "data")


@pytest.mark.parametrize(
    ("edges", "blocks", "expected"),
    [
        (("data", "control"), ["outside", "outside"], True),
        (("data", "data deeper reversed + data first"), ["inside + data deeper", "inside"], True),
        (("data", "data secret"), ["outside", "inside"], False),
        (("data", "secret"), ["outside", "inside"], False),
        (("data",), ["outside", "secret"], False),
        (("data",), ["outside", "inside + secret"], False),
    ],
)
def test_a_rolled_graph_has_words_of_rolled_graphs_alone(edges, blocks, expected):
    graph = AttributedGraph(
        name="job",
        categories={"op": ["a", "b"], BLOCK: blocks},
        numbers={},
        edge_index_2E=np.array([[0], [1]]),
        edge_type_E=np.array([0]),
        edge_type_names=edges,
    )
    assert is_rolled(graph, ("data", "control")) is expected
    assert not is_rolled(replace(graph, categories={"op": ["a", "b"]}), ("data", "control"))


def program_hash(graph: AttributedGraph) -> str:
    """Return a hash that does not depend on the order of nodes, without durations."""
    nothing_N = np.full(graph.num_nodes, np.nan)
    timeless = replace(graph, numbers={**graph.numbers, "duration": nothing_N})
    return graph_hash(GraphSchema.fit("trace", [timeless]).encode(timeless))


@pytest.mark.parametrize("count", [2, 3, 4, 9])
def test_a_network_of_equal_layers_is_one_layer(count):
    small = rolled(layered_job(count))
    assert small.conditions[REPEATS] == count
    assert Counter(small.categories["op"])["aten::mm"] == 2
    assert small.num_nodes == 8
    assert small.conditions["num_nodes"] == 8


def test_rolled_networks_of_any_depth_are_the_same_graph():
    assert program_hash(rolled(layered_job(3))) == program_hash(rolled(layered_job(12)))


@pytest.mark.parametrize("count", [1, 3])
def test_unrolled_it_is_the_graph_again(count):
    whole = layered_job(count)
    assert program_hash(unrolled(rolled(whole), whole.edge_type_names)) == program_hash(whole)


def test_another_number_of_copies_is_the_network_of_that_depth():
    small = rolled(layered_job(3))
    deep = replace(small, conditions={**small.conditions, REPEATS: 12.0})
    assert program_hash(unrolled(deep, ("data", "control"))) == program_hash(layered_job(12))


def test_one_copy_has_the_mean_of_durations_so_that_their_sum_stays():
    whole = layered_job(4)
    small = rolled(whole)
    total = float((small.numbers["duration"] * copies_of(small)).sum())
    assert total == pytest.approx(float(whole.numbers["duration"].sum()))
    again = unrolled(small, whole.edge_type_names)
    assert again.numbers["duration"].sum() == pytest.approx(whole.numbers["duration"].sum())


def test_layers_that_differ_in_costs_are_no_copies():
    whole = layered_job(4)
    flops_N = whole.numbers["flops"] * np.arange(1, whole.num_nodes + 1)
    small = rolled(replace(whole, numbers={**whole.numbers, "flops": flops_N}))
    assert small.conditions[REPEATS] == 1
    assert small.num_nodes == whole.num_nodes
    assert set(small.categories[BLOCK]) == {"outside"}


def test_few_repeats_in_a_large_graph_are_chance():
    two, large = layered_job(2), layered_job(3)
    op = [f"aten::unlike{i}" for i in range(large.num_nodes)]
    op[:4] = ["aten::mm", "aten::relu"] * 2
    graph = replace(large, categories={**large.categories, "op": op})
    assert rolled(graph).conditions[REPEATS] == 1
    assert rolled(two).conditions[REPEATS] == 2


def test_edges_that_skip_copies_are_not_folded():
    """Each layer reads the output of the layer before the last."""
    whole = layered_job(6)
    relu = [i for i, op in enumerate(whole.categories["op"]) if op == "aten::relu"]
    skips = np.array([(a, b - 1) for a, b in zip(relu, relu[2:], strict=False)]).T
    graph = replace(
        whole,
        edge_index_2E=np.concatenate([whole.edge_index_2E, skips], axis=1),
        edge_type_E=np.concatenate([whole.edge_type_E, np.zeros(skips.shape[1], np.int64)]),
    )
    small = rolled(graph)
    assert program_hash(unrolled(small, graph.edge_type_names)) == program_hash(graph)
    assert Counter(small.categories["op"])["aten::relu"] == 6


def test_a_graph_with_a_cycle_stays_whole():
    whole = layered_job(2)
    graph = replace(
        whole,
        edge_index_2E=np.concatenate([whole.edge_index_2E, [[3], [0]]], axis=1),
        edge_type_E=np.append(whole.edge_type_E, 0),
    )
    assert rolled(graph).num_nodes == graph.num_nodes
    assert rolled(graph).conditions[REPEATS] == 1


@pytest.mark.parametrize("seed", range(12))
def test_random_jobs_are_themselves_again(seed):
    whole = random_job(seed, 1 + seed % 3, layers=8)
    again = unrolled(rolled(whole), whole.edge_type_names)
    assert program_hash(again) == program_hash(whole)


def corpus_graphs(step: int) -> list[AttributedGraph]:
    """Return every ``step``-th job of the embedded corpus."""
    records = read_index(embedded_corpus())[::step]
    return [
        job_graph(
            run.record.run,
            [
                RankClassTrace(trace, part.ranks)
                for trace, part in zip(run.traces, run.record.classes, strict=True)
            ],
            run.record.groups,
            {},
        )
        for run in read_runs(embedded_corpus(), records)
    ]


@pytest.mark.parametrize("step", [30, pytest.param(1, marks=pytest.mark.slow)])
def test_every_job_of_the_corpus_is_itself_again(step):
    graphs = corpus_graphs(step)
    for whole in graphs:
        again = unrolled(rolled(whole), whole.edge_type_names)
        assert program_hash(again) == program_hash(whole), whole.name
    assert sum(rolled(graph).conditions[REPEATS] > 1 for graph in graphs) > len(graphs) / 3


def test_single_nodes_that_repeat_are_blocks_where_that_is_wanted():
    whole = layered_job(3)
    size = 9
    chain = AttributedGraph(
        name="gathers",
        categories={name: [words[0]] * size for name, words in whole.categories.items()},
        numbers={name: np.full(size, 1.0) for name in whole.numbers},
        edge_index_2E=np.stack([np.arange(size - 1), np.arange(1, size)]),
        edge_type_E=np.zeros(size - 1, dtype=np.int64),
        edge_type_names=whole.edge_type_names,
    )
    assert rolled(chain).num_nodes == size
    small = rolled(chain, smallest=1)
    assert (small.num_nodes, small.conditions[REPEATS]) == (1, size)
    assert program_hash(unrolled(small, whole.edge_type_names)) == program_hash(chain)


def pair(types: tuple[str, ...], blocks: list[str], repeats: float) -> AttributedGraph:
    """Return two nodes with an edge of the first type."""
    return AttributedGraph(
        "pair",
        categories={"op": ["a", "b"], BLOCK: blocks},
        numbers={"flops": np.array([1.0, 2.0])},
        edge_index_2E=np.array([[0], [1]]),
        edge_type_E=np.array([0]),
        edge_type_names=types,
        conditions={REPEATS: float(repeats)},
    )


def edges(graph: AttributedGraph) -> list[str]:
    """Return edges as names of nodes with the numbers of their copies."""
    names: list[str] = []
    for word in graph.categories["op"]:
        names.append(f"{word}{sum(name[0] == word for name in names)}")
    return sorted(f"{names[s]}{names[t]}" for s, t in graph.edge_index_2E.T.tolist())


INSIDE, INTO, OUT_OF = ["inside"] * 2, ["outside", "inside"], ["inside", "outside"]


@pytest.mark.parametrize(
    ("word", "places", "found"),
    [
        ("data", INSIDE, ["a0b0", "a1b1", "a2b2"]),
        ("data first", INSIDE, ["a0b0"]),
        ("data last", INSIDE, ["a2b2"]),
        ("data not first", INSIDE, ["a1b1", "a2b2"]),
        ("data not last", INSIDE, ["a0b0", "a1b1"]),
        ("data deeper", INSIDE, ["a0b1", "a1b2"]),
        ("data shallower", INSIDE, ["a1b0", "a2b1"]),
        ("data deeper reversed", INSIDE, ["b0a1", "b1a2"]),
        ("data shallower reversed", INSIDE, ["b1a0", "b2a1"]),
        ("data", INTO, ["a0b0", "a0b1", "a0b2"]),
        ("data first", INTO, ["a0b0"]),
        ("data last", INTO, ["a0b2"]),
        ("data not first", INTO, ["a0b1", "a0b2"]),
        ("data not last", INTO, ["a0b0", "a0b1"]),
        ("data deeper reversed", INTO, ["a0b0", "a0b1", "a0b2"]),
        ("data last", OUT_OF, ["a2b0"]),
    ],
)
def test_edges_inside_into_and_out_of_blocks(word, places, found):
    assert edges(unrolled(pair((word,), places, 3), KINDS)) == found


@pytest.mark.parametrize("word", ["data", "data first", "data deeper reversed"])
def test_edges_outside_blocks_are_plain(word):
    graph = unrolled(pair((word,), ["outside"] * 2, 3), KINDS)
    assert edges(graph) == ["a0b0"]
    assert graph.num_nodes == 2


def test_own_copies_of_a_node_are_a_chain():
    graph = unrolled(pair(("control",), ["inside + data deeper", "outside"], 3), KINDS)
    assert edges(graph) == ["a0a1", "a0b0", "a1a2", "a1b0", "a2b0"]


def test_data_wins_over_control_between_the_same_nodes():
    graph = unrolled(pair(("control + data first",), ["inside"] * 2, 2), KINDS)
    assert [KINDS[code] for code in graph.edge_type_E] == ["data", "control"]


def test_edges_to_other_copies_that_close_a_cycle_are_left_out():
    graph = unrolled(
        pair(("data deeper + data shallower",), ["inside + data deeper"] * 2, 4), KINDS
    )
    assert edges(graph)
    longest_path_layers(graph.num_nodes, graph.edge_index_2E)
    knot = pair(("data + data shallower reversed",), ["inside + data deeper"] * 2, 4)
    graph = unrolled(knot, KINDS)
    longest_path_layers(graph.num_nodes, graph.edge_index_2E)
    assert {"a0b0", "a1b1", "a2b2", "a3b3"} <= set(edges(graph))


def test_attributes_are_those_of_the_block():
    graph = unrolled(pair(("data",), ["inside", "outside"], 2), KINDS)
    assert graph.categories == {"op": ["a", "a", "b"]}
    assert graph.numbers["flops"].tolist() == [1.0, 1.0, 2.0]
    assert graph.edge_type_names == KINDS


@pytest.mark.parametrize("repeats", [0.0, -3.0, 0.4])
def test_there_is_at_least_one_copy(repeats):
    assert unrolled(pair(("data",), ["inside"] * 2, repeats), KINDS).num_nodes == 2


def test_copies_are_as_many_as_the_nodes_and_not_too_many():
    assert copies_of(layered_job(3)).tolist() == [1] * layered_job(3).num_nodes
    assert copies_of(rolled(layered_job(3))).sum() == layered_job(3).num_nodes
    small = rolled(layered_job(3))
    huge = replace(small, conditions={REPEATS: float(MOST_NODES)})
    with pytest.raises(DataError, match="ask for fewer repeats"):
        unrolled(huge, KINDS)
