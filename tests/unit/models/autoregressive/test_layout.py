"""Where tokens, layers, blocks and edges lie, against loops over the graphs."""

from collections.abc import Iterator

import pytest
import torch

from layerdag.graph import DAG, DAGBatch
from layerdag.models.autoregressive._layout import Blocks, Edges, Layout
from tests.unit.models.autoregressive.small_models import SIZES, collated, small_dags

LONELY = DAG.build(
    torch.zeros(1, len(SIZES.attributes), dtype=torch.int64), torch.zeros(2, 0, dtype=torch.int64)
)
DAGS = [LONELY, *small_dags(3), LONELY]


@pytest.fixture(scope="module")
def batch() -> DAGBatch:
    return collated(DAGS)


@pytest.fixture(scope="module")
def layout(batch: DAGBatch) -> Layout:
    return Layout.of(batch)


def tokens() -> Iterator[tuple[int, int]]:
    """Yield (graph, node of that graph or -1 for the start token) of every token in order."""
    for graph, dag in enumerate(DAGS):
        yield graph, -1
        yield from ((graph, node) for node in range(dag.num_nodes))


def test_every_graph_is_a_start_token_and_its_nodes(layout: Layout):
    graphs, nodes = zip(*tokens(), strict=True)
    assert layout.num_tokens == len(graphs)
    assert layout.graph_T.tolist() == list(graphs)
    assert layout.position_T.tolist() == [node + 1 for node in nodes]
    starts = [token for token, node in enumerate(nodes) if node < 0]
    assert layout.start_B.tolist() == starts
    assert layout.end_B.tolist() == [*starts[1:], len(nodes)]
    assert layout.token_N.tolist() == [token for token, node in enumerate(nodes) if node >= 0]


def test_layers_sizes_and_places_are_those_of_each_graph(layout: Layout):
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


def test_each_node_knows_where_its_layer_and_the_one_before_begin(layout: Layout):
    graph_T, layer_T = layout.graph_T.tolist(), layout.layer_T.tolist()
    where = list(zip(graph_T, layer_T, strict=True))
    for node, token in enumerate(layout.token_N.tolist()):
        graph, layer = where[token]
        assert layout.layer_start_N[node] == where.index((graph, layer))
        if layer:
            assert layout.parent_start_N[node] == where.index((graph, layer - 1))


def test_layers_of_the_batch_are_listed_in_order(layout: Layout):
    where = list(zip(layout.graph_T.tolist(), layout.layer_T.tolist(), strict=True))
    distinct = [key for key in dict.fromkeys(where) if key[1] >= 0]
    assert layout.first_token_L.tolist() == [where.index(key) for key in distinct]
    assert layout.layer_size_L.tolist() == [where.count(key) for key in distinct]


@pytest.mark.parametrize("block", [1, 2, 3, 7, 64])
def test_blocks_cut_every_graph_anew(layout: Layout, block: int):
    blocks = Blocks.of(layout, block)
    cut = list(zip(layout.graph_T.tolist(), (layout.position_T // block).tolist(), strict=True))
    number = {key: index for index, key in enumerate(dict.fromkeys(cut))}
    assert blocks.of_T.tolist() == [number[key] for key in cut]
    assert blocks.num_blocks == len(number)
    assert blocks.offset_T.tolist() == (layout.position_T % block).tolist()


@pytest.mark.parametrize("block", [1, 2, 3, 7, 64])
def test_the_slot_of_a_token_asks_for_that_token(layout: Layout, block: int):
    blocks = Blocks.of(layout, block)
    rows = torch.cat([blocks.first.query_Zb.flatten(), blocks.later.query_Zb.flatten()])
    assert rows[blocks.slot_T].tolist() == list(range(layout.num_tokens))


@pytest.mark.parametrize("block", [1, 2, 3, 7])
def test_a_later_block_sees_itself_and_the_block_before_and_pools_the_rest(
    layout: Layout, block: int
):
    blocks = Blocks.of(layout, block)
    later = layout.position_T >= block
    first_slot = blocks.first.query_Zb.numel()
    for token in later.nonzero()[:, 0].tolist():
        row = int(blocks.slot_T[token] - first_slot) // block
        start = token - int(blocks.offset_T[token]) - block
        last = layout.num_tokens - 1
        window = [min(place, last) for place in range(start, start + 2 * block)]
        assert blocks.later.key_Zw[row].tolist() == window
        pooled = blocks.pooled_Zz[row][blocks.pooled_valid_Zz[row]].tolist()
        first = int(blocks.of_T[layout.start_B[layout.graph_T[token]]])
        assert pooled == list(range(first, int(blocks.of_T[token]) - 1))


def test_small_graphs_have_windows_no_wider_than_they_are():
    blocks = Blocks.of(Layout.of(collated([LONELY])), 64)
    assert blocks.first.query_Zb.tolist() == [[0, 1]]
    assert blocks.later.query_Zb.shape[0] == 0
    assert blocks.pooled_Zz.shape == (0, 0)


def test_edges_are_listed_by_child_with_the_latest_parent_first(batch: DAGBatch, layout: Layout):
    edges = Edges.of(batch, layout)
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


def test_degrees_count_the_edges_at_both_ends(batch: DAGBatch, layout: Layout):
    edges = Edges.of(batch, layout)
    source, target = batch.edge_index_2E
    assert edges.in_degree_N.tolist() == torch.bincount(target, minlength=batch.num_nodes).tolist()
    out_degree_N = torch.bincount(source, minlength=batch.num_nodes)
    assert edges.out_degree_T[layout.token_N].tolist() == out_degree_N.tolist()
    assert not edges.out_degree_T[layout.start_B].any()


def test_the_first_parent_lies_in_the_layer_before(batch: DAGBatch, layout: Layout):
    edges = Edges.of(batch, layout)
    first = edges.rank_E == 0
    gap = layout.layer_T[edges.child_E] - layout.layer_T[edges.parent_E]
    assert (gap[first] == 1).all()
    assert (gap >= 1).all()


def test_graphs_without_edges_have_none():
    batch = collated([LONELY, LONELY])
    edges = Edges.of(batch, Layout.of(batch))
    assert edges.parent_E.shape == (0,)
    assert edges.in_degree_N.tolist() == [0, 0]
    assert edges.out_degree_T.tolist() == [0, 0, 0, 0]
