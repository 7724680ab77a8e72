from dataclasses import fields

import torch

from layerdag.graph import DAG
from layerdag.models.autoregressive import StructuralFeatures, TokenEmbedding
from layerdag.models.autoregressive._layout import Edges, Layout
from tests.unit.models.autoregressive.small_models import SIZES, collated, small_dags

NO_EDGE = torch.zeros(2, 0, dtype=torch.int64)


def test_counts_at_each_token_of_a_small_graph():
    """0 -> 1, 0 -> 2, 1 -> 3, 0 -> 3; layers {0}, {1, 2}, {3}."""
    dag = DAG.build(
        torch.zeros(4, 1, dtype=torch.int64), torch.tensor([[0, 0, 0, 1], [1, 2, 3, 3]])
    )
    batch = collated([dag, dag])
    layout = Layout.of(batch)
    edges = Edges.of(batch, layout)
    structure = StructuralFeatures.of(layout, edges, edges.out_degree_T)
    expected = {
        "degree_T": [0, 0, 1, 1, 2],
        "out_degree_T": [0, 3, 1, 0, 0],
        "size_T": [1, 1, 2, 2, 1],
        "left_T": [0, 0, 1, 0, 0],
        "open_T": [0, 3, 3, 2, 0],
        "open_layer_T": [0, 3, 1, 1, 0],
        "open_before_T": [0, 0, 2, 1, 0],
        "position_T": [0, 1, 2, 3, 4],
        "layer_T": [0, 0, 1, 1, 2],
    }
    for name, row in expected.items():
        assert getattr(structure, name).tolist() == row * 2, name


def features(*dags: DAG, plans: bool = True) -> tuple[Layout, StructuralFeatures]:
    batch = collated(list(dags))
    layout = Layout.of(batch)
    edges = Edges.of(batch, layout)
    out_degree_T = edges.out_degree_T if plans else torch.zeros_like(edges.out_degree_T)
    return layout, StructuralFeatures.of(layout, edges, out_degree_T)


def test_features_of_a_batch_are_those_of_its_graphs():
    dags = small_dags(4)
    _, together = features(*dags)
    alone = torch.cat([features(dag)[1].stacked() for dag in dags])
    assert torch.equal(together.stacked(), alone)


def test_pending_children_are_those_that_later_nodes_take():
    dag = small_dags(4)[-1]
    layout, structure = features(dag)
    source, target = dag.edge_index_2E
    layer_N = dag.layers()
    for node, token in enumerate(layout.token_N.tolist()):
        pending = (source <= node) & (target > node)
        own_layer = layer_N[source] == layer_N[node]
        before = layer_N[source] == layer_N[node] - 1
        assert structure.open_T[token] == pending.sum()
        assert structure.open_layer_T[token] == (pending & own_layer).sum()
        # Of the layer before: predicted children less the edges to this layer so far.
        reached = before & (target <= node) & (layer_N[target] == layer_N[node])
        assert structure.open_before_T[token] == before.sum() - reached.sum()


def test_a_whole_graph_leaves_no_child_pending():
    layout, structure = features(*small_dags(3))
    assert not structure.open_T[layout.end_B - 1].any()


def test_without_out_degrees_only_edges_so_far_are_counted():
    layout, structure = features(*small_dags(2), plans=False)
    assert not structure.out_degree_T.any()
    assert (structure.open_T <= 0).all()
    edges = structure.degree_T.sum()
    assert -structure.open_T[layout.end_B - 1].sum() == edges


def test_start_tokens_have_a_code_of_their_own():
    torch.manual_seed(0)
    embedding = TokenEmbedding(SIZES, 8)
    _, structure = features(DAG.build(torch.zeros(1, 3, dtype=torch.int64), NO_EDGE))
    first = torch.stack([embedding.start_A, torch.zeros(3, dtype=torch.int64)])
    start, node = embedding(first, structure)
    assert embedding.start_A.tolist() == list(SIZES.attributes)
    assert not torch.allclose(start, node)
    assert embedding.embedding.weight.shape[0] == sum(SIZES.attributes) + 3 + (
        len(fields(StructuralFeatures)) * embedding.scale.num_codes
    )


def test_negative_counts_are_embedded_as_zero():
    embedding = TokenEmbedding(SIZES, 8)
    codes = torch.zeros(1, 3, dtype=torch.int64)
    none = {field.name: torch.zeros(1, dtype=torch.int64) for field in fields(StructuralFeatures)}
    fewer = {**none, "open_T": torch.tensor([-5]), "open_before_T": torch.tensor([-1])}
    assert torch.equal(
        embedding(codes, StructuralFeatures(**none)), embedding(codes, StructuralFeatures(**fewer))
    )
    more = {**none, "open_T": torch.tensor([5])}
    assert not torch.equal(
        embedding(codes, StructuralFeatures(**none)), embedding(codes, StructuralFeatures(**more))
    )
