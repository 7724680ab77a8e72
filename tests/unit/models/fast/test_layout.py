"""Where tokens, layers, blocks and edges lie, against loops over the graphs."""

from collections.abc import Iterator

import pytest
import torch
from small_models import SIZES, collated, small_dags

from layerdag.dag.dag import DAG, DAGBatch
from layerdag.models.fast.layout import (
    BLOCK_CODES,
    NEVER,
    TOKEN_CODES,
    AttentionBlocks,
    BatchLayout,
    Edges,
    ParentDecisionRows,
    log_code,
    offset_code,
    stub_code,
)

LONELY = DAG.build(
    torch.zeros(1, len(SIZES.attributes), dtype=torch.int64), torch.zeros(2, 0, dtype=torch.int64)
)
DAGS = [LONELY, *small_dags(3), LONELY]


@pytest.fixture(scope="module")
def batch() -> DAGBatch:
    return collated(DAGS)


@pytest.fixture(scope="module")
def layout(batch) -> BatchLayout:
    return BatchLayout.from_batch(batch)


def tokens() -> Iterator[tuple[int, int]]:
    """Yield (graph, node of that graph or -1 for the start token) of every token in order."""
    for graph, dag in enumerate(DAGS):
        yield graph, -1
        yield from ((graph, node) for node in range(dag.num_nodes))


def test_every_graph_is_a_start_token_and_its_nodes(layout):
    graphs, nodes = zip(*tokens(), strict=True)
    assert layout.num_tokens == len(graphs)
    assert layout.graph_T.tolist() == list(graphs)
    assert layout.position_T.tolist() == [node + 1 for node in nodes]
    starts = [token for token, node in enumerate(nodes) if node < 0]
    assert layout.start_B.tolist() == starts
    assert layout.end_B.tolist() == [*starts[1:], len(nodes)]
    assert layout.token_N.tolist() == [token for token, node in enumerate(nodes) if node >= 0]


def test_layers_sizes_and_places_are_those_of_each_graph(layout):
    layers, places, sizes = [], [], []
    for graph, node in tokens():
        layer_N = DAGS[graph].layers().tolist()
        layer = layer_N[node] if node >= 0 else -1
        layers.append(layer)
        places.append(node - layer_N.index(layer) if node >= 0 else 0)
        sizes.append(layer_N.count(layer) if node >= 0 else 1)
    assert layout.layer_T.tolist() == layers
    assert layout.index_T.tolist() == places
    assert layout.size_T.tolist() == sizes


def test_each_node_knows_where_its_layer_and_the_one_before_begin(layout):
    graph_T, layer_T = layout.graph_T.tolist(), layout.layer_T.tolist()
    where = list(zip(graph_T, layer_T, strict=True))
    for node, token in enumerate(layout.token_N.tolist()):
        graph, layer = where[token]
        assert layout.layer_start_N[node] == where.index((graph, layer))
        if layer:
            assert layout.parent_start_N[node] == where.index((graph, layer - 1))


def test_layers_of_the_batch_are_listed_in_order(layout):
    where = list(zip(layout.graph_T.tolist(), layout.layer_T.tolist(), strict=True))
    distinct = [key for key in dict.fromkeys(where) if key[1] >= 0]
    assert layout.first_token_L.tolist() == [where.index(key) for key in distinct]
    assert layout.layer_size_L.tolist() == [where.count(key) for key in distinct]


@pytest.mark.parametrize("block", [1, 2, 3, 7, 64])
def test_blocks_cut_every_graph_anew(layout, block):
    blocks = AttentionBlocks.from_layout(layout, block)
    cut = list(zip(layout.graph_T.tolist(), (layout.position_T // block).tolist(), strict=True))
    number = {key: index for index, key in enumerate(dict.fromkeys(cut))}
    assert blocks.of_T.tolist() == [number[key] for key in cut]
    assert blocks.num_blocks == len(number)
    assert blocks.offset_T.tolist() == (layout.position_T % block).tolist()


def test_small_graphs_have_windows_no_wider_than_they_are():
    blocks = AttentionBlocks.from_layout(BatchLayout.from_batch(collated([LONELY])), 64)
    assert blocks.first.query_Zb.tolist() == [[0, 1]]
    assert blocks.later.query_Zb.shape[0] == 0
    assert blocks.pooled_Zz.shape == (0, 0)


def test_edges_are_listed_by_child_with_the_latest_parent_first(batch, layout):
    edges = Edges.from_batch(batch, layout)
    wanted = []
    offset = 0
    for graph, dag in enumerate(DAGS):
        source, target = dag.edge_index_2E.tolist()
        triples = zip(target, source, dag.edge_type_E.tolist(), strict=True)
        for child, parent, kind in sorted(triples, key=lambda row: (row[0], -row[1])):
            start = offset + graph + 1
            wanted.append((start + child, start + parent, kind, offset + child))
        offset += dag.num_nodes
    columns = (edges.child_E, edges.parent_E, edges.type_E, edges.node_E)
    assert torch.stack(columns, dim=1).tolist() == [list(row) for row in wanted]
    children = edges.child_E.tolist()
    assert edges.rank_E.tolist() == [i - children.index(c) for i, c in enumerate(children)]
    assert edges.degree_E.tolist() == [children.count(child) for child in children]


def test_degrees_count_the_edges_at_both_ends(batch, layout):
    edges = Edges.from_batch(batch, layout)
    source, target = batch.edge_index_2E
    assert edges.in_degree_N.tolist() == torch.bincount(target, minlength=batch.num_nodes).tolist()
    out_degree_N = torch.bincount(source, minlength=batch.num_nodes)
    assert edges.out_degree_T[layout.token_N].tolist() == out_degree_N.tolist()
    assert not edges.out_degree_T[layout.start_B].any()


def test_graphs_without_edges_have_none():
    batch = collated([LONELY, LONELY])
    edges = Edges.from_batch(batch, BatchLayout.from_batch(batch))
    assert edges.parent_E.shape == (0,)
    assert edges.in_degree_N.tolist() == [0, 0]
    assert edges.out_degree_T.tolist() == [0, 0, 0, 0]


def diamond() -> DAG:
    """0 -> 2, 1 -> 2, 0 -> 3, 2 -> 4, 1 -> 4; layers {0, 1}, {2, 3}, {4}."""
    return DAG.build(
        torch.zeros(5, 1, dtype=torch.int64), torch.tensor([[0, 1, 0, 1, 2], [2, 2, 3, 4, 4]])
    )


def decided(batch: DAGBatch) -> tuple[BatchLayout, Edges, ParentDecisionRows]:
    layout = BatchLayout.from_batch(batch)
    edges = Edges.from_batch(batch, layout)
    return layout, edges, ParentDecisionRows.from_edges(layout, edges)


def test_decisions_of_a_small_graph():
    _, edges, decisions = decided(collated([diamond()]))
    assert edges.parent_E.tolist() == [2, 1, 1, 3, 2]
    assert decisions.child_Q.tolist() == [3, 3, 4, 5, 5]
    # A first parent lies in the layer before; a second one before the first, at least at token 1.
    assert decisions.low_Q.tolist() == [1, 1, 1, 3, 1]
    assert decisions.high_Q.tolist() == [3, 2, 3, 5, 3]
    # Offsets count from the parent chosen before, or from the sibling's first parent.
    assert decisions.reference_Q.tolist() == [NEVER, 2, 2, NEVER, 3]


def test_the_true_parent_is_always_a_candidate_and_enough_of_them_remain():
    layout, edges, decisions = decided(collated(small_dags(6)))
    assert (decisions.low_Q <= edges.parent_E).all()
    assert (edges.parent_E < decisions.high_Q).all()
    assert (layout.graph_T[decisions.low_Q] == layout.graph_T[decisions.child_Q]).all()
    still = edges.degree_E - edges.rank_E - 1
    # The lowest token a further parent may be leaves as many below it as are still needed.
    further = edges.rank_E > 0
    below = decisions.low_Q - layout.start_B[layout.graph_T[edges.child_E]] - 1
    assert torch.equal(below[further], still[further])
    assert still[further].max() > 0
    before = edges.parent_E - layout.start_B[layout.graph_T[edges.child_E]] - 1
    assert (before >= still).all()


def test_codes_of_counts_widen_and_those_of_stubs_tell_pending_children():
    borders = {0: 0, 1: 1, 2: 2, 3: 3, 4: 4, 5: 5, 6: 5, 7: 6, 9: 6, 10: 7, 16: 7, 17: 8, 32: 8}
    counts = torch.tensor([*borders, 33, 10**6])
    assert log_code(counts).tolist() == [*borders.values(), 9, 9]
    assert int(log_code(counts).max()) == BLOCK_CODES - 1
    used = torch.tensor([0, 0, 2, 3, 9, 4, 1])
    out_degree = torch.tensor([0, 9, 3, 3, 10, 1, 3])
    assert stub_code(used, out_degree).tolist() == [0, 3, 9, 12, 13, 12, 6]


def test_token_codes_clamp_the_offset_and_mark_a_missing_reference():
    offset = offset_code(torch.tensor([-9, 0, 3, 77]), torch.tensor([True, True, True, False]))
    assert offset.tolist() == [0, 4, 7, 9]
    assert log_code(torch.tensor([0, 1, 8, 100])).tolist() == [0, 1, 6, 9]
    assert offset.max() < TOKEN_CODES[1]
