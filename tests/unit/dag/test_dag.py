"""Layers of many graphs at once, against a plain walk over each."""

import pickle
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from laws import tried
from random_graphs import random_dag
from small_models import request, sampling_in_torch, small_dags, small_model
from torch import Tensor

from layerdag.dag.dag import DAG, DAGBatch, graph_hash, graph_hashes, layers_of, node_colors
from layerdag.errors import GraphError
from layerdag.graph.topology import neighborhood_colors, union_layers
from layerdag.models.draws import sample_if_possible
from layerdag.models.fast import parent_draws, sampling_rounds
from layerdag.models.fast.model import FastLayerDAG


def chain(length: int, code: int) -> DAG:
    steps = torch.arange(length - 1)
    return DAG.build(torch.full((length, 1), code), torch.stack([steps, steps + 1]))


def batch_of(*dags: DAG) -> DAGBatch:
    none = torch.zeros(len(dags), 0)
    return DAGBatch.from_dags(dags, none, none.long())


def test_collate_shifts_ids_and_keeps_layers():
    batch = batch_of(chain(3, 5), chain(2, 7))
    assert batch.edge_index_2E.tolist() == [[0, 1, 3], [1, 2, 4]]
    assert batch.x_NA.flatten().tolist() == [5, 5, 5, 7, 7]
    assert batch.layer_N.tolist() == [0, 1, 2, 0, 1]
    assert batch.graph_of_node().tolist() == [0, 0, 0, 1, 1]
    assert batch.num_layers().tolist() == [3, 2]


def test_a_batch_tells_its_sizes_and_keeps_conditions_and_edge_types():
    first = replace(chain(2, 0), edge_type_E=torch.tensor([4]), u_NA=torch.tensor([[0.5], [0.25]]))
    numeric, category = torch.tensor([[0.5], [float("nan")]]), torch.tensor([[-1], [2]])
    dags = [first, chain(3, 1)]
    batch = DAGBatch.from_dags(dags, numeric, category)
    assert (batch.num_graphs, batch.num_nodes) == (2, 5)
    assert batch.node_ptr.tolist() == [0, 2, 5]
    assert batch.edge_ptr.tolist() == [0, 1, 3]
    assert batch.edge_type_E.tolist() == [4, 0, 0]
    assert batch.u_NA.flatten().tolist() == [0.5, 0.25, 0, 0, 0]
    assert batch.numeric_BC is numeric
    assert batch.category_BM is category


def test_graphs_out_of_layer_order_are_refused():
    backwards = chain(3, 1).permuted(torch.tensor([0, 2, 1]))
    with pytest.raises(GraphError, match="Graph 1 is not in layer order: its node 2 comes after"):
        batch_of(chain(2, 1), backwards)
    assert batch_of(chain(2, 1), backwards.in_layer_order()).num_nodes == 5


def test_every_tensor_of_a_batch_moves():
    moved = batch_of(chain(2, 1), chain(1, 2)).to("meta")
    assert {value.device.type for value in vars(moved).values()} == {"meta"}
    assert moved.edge_index_2E.shape == (2, 1)


def diamond() -> DAG:
    # ids are deliberately not in layer order: 3 -> {0, 2} -> 1
    edges = torch.tensor([[3, 3, 0, 2], [0, 2, 1, 1]])
    return DAG.build(
        torch.tensor([[10], [11], [12], [13]]), edges, edge_type_E=torch.tensor([0, 1, 2, 3])
    )


def test_layer_order_moves_attributes_and_edge_types_along():
    ordered = diamond().in_layer_order()
    assert ordered.x_NA.flatten().tolist() == [13, 10, 12, 11]
    assert ordered.edge_index_2E.tolist() == [[0, 0, 1, 2], [1, 2, 3, 3]]
    assert ordered.edge_type_E.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"edge_index_2E": torch.tensor([[0, 0], [1, 1]]), "edge_type_E": torch.tensor([0, 0])},
            "1 edges occur twice",
        ),
        ({"edge_type_E": torch.tensor([0])}, "4 edges but 1 edge types"),
        ({"u_NA": torch.zeros(3, 1)}, "u_NA has shape"),
        (
            {"edge_index_2E": torch.tensor([[0, 1], [1, 0]]), "edge_type_E": torch.tensor([0, 0])},
            "cycle",
        ),
        ({"x_NA": torch.zeros(4, 1)}, "int64 matrix"),
    ],
)
def test_check_names_the_fault(change, message):
    from dataclasses import replace

    with pytest.raises(GraphError, match=message):
        replace(diamond(), **change).check()


def test_repr_tells_sizes_and_no_tensor():
    edges, told = torch.tensor([[0, 0, 1], [1, 2, 3]]), {"label": 1.5, "family": "gpt"}
    dag = DAG.build(torch.zeros((4, 2), dtype=torch.int64), edges, conditions=told)
    sizes = "nodes=4, edges=3, layers=3, attributes=2"
    assert repr(dag) == f"DAG({sizes}, conditions=(label=1.5, family=gpt))"
    cyclic = DAG.build(dag.x_NA, torch.tensor([[0, 1], [1, 0]]))
    assert "layers=none (cyclic or damaged)" in repr(cyclic)


def test_layers_are_found_once_and_not_carried_to_another_graph():
    dag = DAG.build(torch.zeros((2, 1), dtype=torch.int64), torch.tensor([[0], [1]]))
    assert dag.layer_N is dag.layer_N
    assert dag.layer_N.tolist() == [0, 1]
    apart = replace(dag, edge_index_2E=dag.edge_index_2E[:, :0], edge_type_E=dag.edge_type_E[:0])
    assert (apart.layer_N.tolist(), apart.num_layers, dag.num_layers) == ([0, 0], 1, 2)
    dag.edge_index_2E[0] = 1
    with pytest.raises(GraphError, match="cycle"):
        dag.check()


def test_copies_with_the_same_edges_carry_their_layers(monkeypatch):
    given = torch.tensor([1, 2, 1, 0])
    dag = DAG.build(diamond().x_NA, diamond().edge_index_2E, layer_N=given).check()
    monkeypatch.setattr(DAG, "layers", lambda _: pytest.fail("found again"))
    assert dag.layer_N is given
    assert dag.with_conditions({"label": 1.0}).layer_N is given
    assert dag.with_columns(torch.zeros(4, 2).long(), torch.zeros(4, 2)).layer_N is given
    assert dag.in_layer_order().layer_N.tolist() == [0, 1, 1, 2]
    assert dag.to("meta").layer_N.device.type == "meta"
    assert pickle.loads(pickle.dumps(dag)).layer_N.tolist() == given.tolist()


@pytest.mark.parametrize(
    ("layer_N", "message"),
    [
        (torch.tensor([1, 2, 2, 0]), "node 2 into layer 2, but by its edges it is in layer 1"),
        (torch.tensor([1, 2]), r"layer_N has shape \(2,\) for 4 nodes"),
    ],
)
def test_check_names_layers_that_are_not_those_of_the_edges(layer_N, message):
    dag = diamond()
    with pytest.raises(GraphError, match=message):
        DAG.build(dag.x_NA, dag.edge_index_2E, layer_N=layer_N).check()


def test_other_columns_leave_the_rest():
    dag = replace(diamond(), u_NA=torch.full((4, 1), 0.5), conditions={"label": 1.0})
    changed = dag.with_columns(torch.zeros((4, 1), dtype=torch.int64))
    assert changed.x_NA.sum() == 0
    assert changed.u_NA is dag.u_NA
    assert changed.conditions == {"label": 1.0}
    assert dag.with_conditions({}).conditions == {}


def test_check_names_edges_that_are_no_pairs():
    flat = replace(diamond(), edge_index_2E=torch.tensor([0, 1]))
    with pytest.raises(GraphError, match=r"edge_index must have shape \(2, edges\), found \(2,\)"):
        flat.check()
    outside = replace(diamond(), edge_index_2E=torch.tensor([[3, 3, 0, 9], [0, 2, 1, 1]]))
    with pytest.raises(GraphError, match="Edge 3 names node 9 but the graph has 4 nodes"):
        outside.check()


def test_permuting_back_gives_the_same_graph():
    dag = diamond().in_layer_order()
    order = torch.tensor([2, 0, 3, 1])
    there = dag.permuted(order)
    assert there.x_NA.flatten().tolist() == [12, 13, 11, 10]
    back = there.permuted(torch.argsort(order))
    for name in ("x_NA", "u_NA", "edge_index_2E", "edge_type_E"):
        assert torch.equal(getattr(back, name), getattr(dag, name))


def test_positions_in_bins_move_with_their_nodes():
    dag = replace(diamond(), u_NA=torch.tensor([[0.1], [0.2], [0.3], [0.4]]))
    assert dag.in_layer_order().u_NA.flatten().tolist() == pytest.approx([0.4, 0.1, 0.3, 0.2])


def test_defaults_are_zeros_and_conditions_are_a_copy():
    conditions = {"label": 2.0}
    dag = DAG.build(torch.zeros((2, 3), dtype=torch.int64), torch.tensor([[0], [1]]),
                    conditions=conditions)  # fmt: skip
    conditions["label"] = 3.0
    assert dag.conditions == {"label": 2.0}
    assert dag.edge_type_E.tolist() == [0]
    assert dag.u_NA.tolist() == [[0.0] * 3] * 2
    assert (dag.num_nodes, dag.num_edges, dag.num_layers) == (2, 1, 2)


def test_an_empty_graph_has_no_layer():
    empty = DAG.build(
        torch.zeros((0, 1), dtype=torch.int64), torch.zeros((2, 0), dtype=torch.int64)
    )
    assert (empty.num_nodes, empty.num_layers) == (0, 0)
    assert empty.in_layer_order().num_nodes == 0


def test_moving_keeps_everything_else():
    dag = replace(diamond(), conditions={"label": 1.0}).to("cpu")
    assert dag.x_NA.flatten().tolist() == [10, 11, 12, 13]
    assert dag.edge_type_E.tolist() == [0, 1, 2, 3]
    assert dag.conditions == {"label": 1.0}
    assert dag.to("meta").x_NA.device.type == "meta"


def test_hash_does_not_depend_on_node_order(rng):
    dag = random_dag(rng, [3, 5, 4], [4, 2], num_edge_types=2)
    shuffled = dag.permuted(torch.from_numpy(rng.permutation(dag.num_nodes)))
    assert graph_hash(shuffled) == graph_hash(dag)


def test_hash_sees_attributes_edge_types_and_direction(rng):
    dag = random_dag(rng, [3, 5, 4], [4, 2], num_edge_types=2)
    x_NA = dag.x_NA.clone()
    x_NA[0, 0] += 1
    variants = [
        replace(dag, x_NA=x_NA),
        replace(dag, edge_type_E=1 - dag.edge_type_E),
        replace(dag, edge_index_2E=dag.edge_index_2E.flip(0)),
    ]
    hashes = {graph_hash(variant) for variant in [dag, *variants]}
    assert len(hashes) == 4


@pytest.mark.parametrize("at_once", [1, 15, 1 << 14])
def test_many_hashes_are_those_of_each_graph_alone(at_once, rng, monkeypatch):
    monkeypatch.setattr("layerdag.dag.dag._NODES_AT_ONCE", at_once)
    empty = DAG.build(
        torch.zeros((0, 2), dtype=torch.int64), torch.zeros((2, 0), dtype=torch.int64)
    )
    dags = [random_dag(rng, [2, 3], [4, 2], num_edge_types=2) for _ in range(7)]
    dags = [empty, *dags[:4], empty, random_dag(rng, [2, 2], [3]), *dags[4:], empty]
    for rounds in (0, 3):
        assert list(graph_hashes(iter(dags), rounds)) == [graph_hash(dag, rounds) for dag in dags]


def test_a_hash_is_what_it_always_was():
    x_NA = torch.tensor([[1, 0], [2, 3], [1, 1]])
    dag = DAG.build(x_NA, torch.tensor([[0, 0], [1, 2]]), edge_type_E=torch.tensor([0, 1]))
    assert (graph_hash(dag), graph_hash(dag, 8)) == ("0f2a955752be0881", "91a65c1e8accf276")


def partition(colors) -> list[list[int]]:
    """Return the sets of nodes of equal color, in order of their first node."""
    found: dict[object, list[int]] = {}
    for node, color in enumerate(colors):
        found.setdefault(color, []).append(node)
    return list(found.values())


def slow_colors(labels: list, edges: list[tuple[int, int, int]], rounds: int) -> list:
    """Return Weisfeiler-Lehman colors as nested tuples, straight from the definition."""
    colors = list(labels)
    for _ in range(rounds):
        colors = [
            (
                colors[node],
                tuple(sorted((repr(colors[a]), kind) for a, b, kind in edges if b == node)),
                tuple(sorted((repr(colors[b]), kind) for a, b, kind in edges if a == node)),
            )
            for node in range(len(labels))
        ]
    return colors


@tried(30)
@given(st.lists(st.integers(1, 3), min_size=1, max_size=4), st.integers(0, 2**32 - 1),
       st.integers(0, 3))  # fmt: skip
def test_nodes_share_a_color_if_and_only_if_their_neighborhoods_are_alike(sizes, seed, rounds):
    dag = random_dag(np.random.default_rng(seed), sizes, [2], extra_edges=0.8, num_edge_types=2)
    labels = dag.x_NA[:, 0].tolist()
    edges = list(zip(*dag.edge_index_2E.tolist(), dag.edge_type_E.tolist(), strict=True))
    expected = partition(slow_colors(labels, edges, rounds))
    assert partition(node_colors(dag, rounds).tolist()) == expected


@tried(30)
@given(st.lists(st.integers(1, 3), min_size=1, max_size=4), st.integers(0, 2**32 - 1))
def test_every_radius_of_a_neighborhood_has_a_row_of_colors(sizes, seed):
    dag = random_dag(np.random.default_rng(seed), sizes, [2], extra_edges=0.8)
    labels = dag.x_NA[:, 0].numpy()
    rows = neighborhood_colors(labels, dag.edge_index_2E.numpy(), 3)
    edges = [(a, b, 0) for a, b in dag.edge_index_2E.T.tolist()]
    assert rows.shape == (4, dag.num_nodes)
    for radius, row in enumerate(rows):
        expected = partition(slow_colors(labels.tolist(), edges, radius))
        assert partition(row.tolist()) == expected


def test_rounds_decide_how_far_a_difference_is_seen():
    """Two chains that differ in their last node only: their first nodes, four steps away."""
    steps = torch.arange(4)
    first, second = (
        DAG.build(torch.tensor([[0], [0], [0], [0], [last]]), torch.stack([steps, steps + 1]))
        for last in (0, 1)
    )
    for rounds in range(6):
        same = node_colors(first, rounds)[0] == node_colors(second, rounds)[0]
        assert bool(same) is (rounds < 4)


def test_an_empty_graph_and_one_without_edges_have_a_hash():
    none = torch.zeros((2, 0), dtype=torch.int64)
    empty = DAG.build(torch.zeros((0, 1), dtype=torch.int64), none)
    one = DAG.build(torch.zeros((1, 1), dtype=torch.int64), none)
    two = DAG.build(torch.zeros((2, 1), dtype=torch.int64), none)
    hashes = [graph_hash(dag) for dag in (empty, one, two)]
    assert len(set(hashes)) == 3
    assert all(len(word) == 16 and int(word, 16) >= 0 for word in hashes)


def test_the_number_of_edges_is_part_of_the_hash():
    """Without rounds the colors alone do not see edges."""
    x = torch.zeros((2, 1), dtype=torch.int64)
    apart, joined = (DAG.build(x, torch.tensor(e).reshape(2, -1)) for e in ([[], []], [[0], [1]]))
    assert graph_hash(apart, 0) != graph_hash(joined, 0)


def slow_layers(size: int, edges: np.ndarray) -> list[int]:
    """Return the longest path that ends in each node, one node at a time."""
    parents = [[int(a) for a, b in edges.T if b == node] for node in range(size)]

    def depth(node: int) -> int:
        return 1 + max(map(depth, parents[node]), default=-1)

    return [depth(node) for node in range(size)]


@given(st.integers(0, 2**32 - 1), st.integers(0, 4))
@tried(25)
def test_layers_of_a_union_are_those_of_each_graph(seed, count):
    rng = np.random.default_rng(seed)
    dags = []
    for _ in range(count):
        dag = random_dag(rng, rng.integers(1, 4, int(rng.integers(1, 5))).tolist(), [2])
        dags.append(dag.permuted(torch.from_numpy(rng.permutation(dag.num_nodes))))
    edges = [dag.edge_index_2E.numpy() for dag in dags]
    found = union_layers([dag.num_nodes for dag in dags], edges)
    assert [layer.tolist() for layer in found] == [
        slow_layers(dag.num_nodes, own) for dag, own in zip(dags, edges, strict=True)
    ]
    assert [layer.tolist() for layer in layers_of(dags)] == [layer.tolist() for layer in found]
    for dag in map(DAG.in_layer_order, dags):
        layer = dag.layers().tolist()
        assert layer == sorted(layer)
        assert (dag.edge_index_2E[0] < dag.edge_index_2E[1]).all()


def ring(size: int) -> DAG:
    node = torch.arange(size)
    return DAG.build(
        torch.zeros(size, 1, dtype=torch.int64), torch.stack([node, (node + 1) % size])
    )


def test_faults_of_several_graphs_are_told_with_graph_and_node():
    sound = random_dag(np.random.default_rng(0), [2, 2], [2])
    with pytest.raises(GraphError, match=r"Graph 1: The graph has a cycle .*: 0 -> 1 -> 2 -> 0"):
        layers_of([sound, ring(3), ring(2)])
    one = DAG.build(torch.zeros(1, 1, dtype=torch.int64), torch.tensor([[0], [1]]))
    with pytest.raises(GraphError, match="Graph 0: Edge 0 names node 1 but the graph has 1 nodes"):
        layers_of([one, one])
    with pytest.raises(GraphError, match="edge of graph 1 joins nodes 0 and 1, but"):
        union_layers([2, 1], [np.zeros((2, 0), np.int64), np.array([[0], [1]])])


def test_layers_are_found_once_for_all(monkeypatch):
    dags = [random_dag(np.random.default_rng(seed), [1, 2, 1], [2]) for seed in range(3)]
    fresh = [DAG.build(dag.x_NA, dag.edge_index_2E) for dag in dags]
    layers_of(fresh)
    monkeypatch.setattr(DAG, "layers", lambda _: pytest.fail("found again"))
    assert [dag.layer_N.tolist() for dag in fresh] == [[0, 1, 1, 2]] * 3


COUNT = 400


@pytest.fixture(scope="module")
def model() -> FastLayerDAG:
    return small_model(small_dags())


def first_nodes(model: FastLayerDAG, **changes: object) -> tuple[DAG, ...]:
    return model.sample(request(COUNT, max_nodes=1, **changes)).dags


def recorded(
    model: FastLayerDAG, patch: Callable, **changes: object
) -> list[tuple[Tensor, Tensor]]:
    """Return (log-probabilities, codes) of each decision about the first node."""
    seen = []

    def keep(logits_BK: Tensor, u_B: Tensor) -> Tensor:
        code_B = sample_if_possible(logits_BK, u_B)
        seen.append((logits_BK.double().log_softmax(1), code_B))
        return code_B

    sampling_in_torch(patch)
    for part in (parent_draws, sampling_rounds):
        patch(part, "sample_if_possible", keep)
    first_nodes(model, **changes)
    return seen


def test_every_decision_about_the_first_node_is_drawn_in_proportion(model, monkeypatch):
    """All graphs are alike so far, but for what was drawn before: the counts are a sum of draws."""
    # Layer size, first parent (there is none), kind, in-degree, two attributes, out-degree.
    decided = recorded(model, monkeypatch.setattr)[:7]
    assert decided.pop(1)[0].isnan().all()
    assert len(decided) == 6
    for log_prob_BK, code_B in decided:
        expected_K = log_prob_BK.exp().sum(0)
        found_K = torch.bincount(code_B, minlength=expected_K.numel())
        common_K = expected_K > 5
        chi_square = ((found_K - expected_K)[common_K] ** 2 / expected_K[common_K]).sum()
        # The chance of more is below 1e-4 for up to 24 degrees of freedom.
        assert chi_square < 60
        assert not found_K[expected_K == 0].any()


def test_the_first_node_is_of_a_kind_that_starts_graphs(model):
    kinds = torch.cat([dag.x_NA[:1, 0] for dag in first_nodes(model)])
    assert model.constraints.source_K[kinds].all()
    assert kinds.unique().numel() == int(model.constraints.source_K.sum())


def test_guidance_moves_along_a_line_of_log_probabilities(model, monkeypatch):
    numbers = torch.full((COUNT, 1), 2.0)
    unknown = {"numeric_BC": torch.full((COUNT, 1), torch.nan)}
    unknown["category_BM"] = torch.full((COUNT, 1), -1)

    def size_logits(**changes: object) -> Tensor:
        with monkeypatch.context() as patch:
            return recorded(model, patch.setattr, **changes)[0][0][0, 1:]

    known, free = size_logits(numeric_BC=numbers), size_logits(**unknown)
    for weight in (0.0, 0.5, 2.0, 3.0):
        found = size_logits(numeric_BC=numbers, guidance=weight)
        wanted = (free + weight * (known - free)).log_softmax(0)
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(known, free, atol=1e-3)


def test_one_node_and_one_layer_are_graphs(model):
    small = model.sample(request(20, max_nodes=1))
    assert all(dag.num_nodes == 1 and dag.num_edges == 0 for dag in small.dags)
    flat = model.sample(request(20, max_layers=1))
    assert all(int(dag.layers().max()) == 0 for dag in flat.dags)
    assert any(flat.truncated)
