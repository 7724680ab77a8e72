"""States of prefixes depend on the prefix and its conditions, and on nothing else."""

from dataclasses import replace

import pytest
import torch

from layerdag.dag.dag import DAG, DAGBatch, GraphSizes
from layerdag.models.conditions import Conditions
from layerdag.models.reference.model import drop_conditions
from layerdag.models.reference.networks import (
    MAX_LAYER_DISTANCE,
    PrefixEncoder,
    PrefixNodeEncoder,
    ReferenceConditionEncoder,
)
from layerdag.models.reference.prefixes import PartialGraphs, Prefixes, PrefixGraphs


@pytest.fixture
def conditions() -> Conditions:
    return Conditions(torch.tensor([[0.5], [float("nan")], [-2.0]]), torch.tensor([[1], [2], [-1]]))


def test_every_condition_changes_the_vector(sizes, conditions):
    encoder = ReferenceConditionEncoder(sizes, 8)
    whole, none = encoder(conditions), encoder(conditions.unknown())
    assert torch.equal(none[0], none[1])
    for row in range(3):
        assert not torch.allclose(whole[row], none[row])


def test_a_wide_range_of_labels_stays_apart(sizes):
    encoder = ReferenceConditionEncoder(sizes, 8)
    labels = torch.linspace(-3, 3, 50)[:, None]
    vectors = encoder(Conditions(labels, torch.zeros(50, 1, dtype=torch.int64)))
    distance = torch.cdist(vectors, vectors) + torch.eye(50)
    assert distance.min() > 1e-4


def test_without_conditions_all_graphs_share_a_vector():
    encoder = ReferenceConditionEncoder(GraphSizes((3,)), 8)
    vectors = encoder(Conditions(torch.zeros(4, 0), torch.zeros(4, 0, dtype=torch.int64)))
    assert vectors.shape == (4, 8)
    assert torch.equal(vectors[0], vectors[3])


def test_dropping_makes_the_asked_share_unknown(generator):
    conditions = Conditions(torch.zeros(10_000, 2), torch.zeros(10_000, 1, dtype=torch.int64))
    dropped = drop_conditions(conditions, 0.1, generator)
    lost = dropped.numeric_BC.isnan()
    assert abs(lost.float().mean() - (1 - 0.9**2)) < 0.01
    all_lost = lost.all(1) & (dropped.category_BM[:, 0] == -1)
    assert abs(all_lost.float().mean() - 0.1) < 0.01


def test_a_graph_s_vector_depends_on_its_own_conditions_alone(sizes, conditions):
    encoder = ReferenceConditionEncoder(sizes, 8)
    together = encoder(conditions)
    for row in range(3):
        alone = encoder(conditions.of(torch.tensor([row])))
        torch.testing.assert_close(alone[0], together[row])


def test_unknown_numbers_and_categories_have_vectors_of_their_own():
    encoder = ReferenceConditionEncoder(GraphSizes((2,), numeric_conditions=1), 8)
    none = torch.zeros(2, 0, dtype=torch.int64)
    unknown, zero = encoder(Conditions(torch.tensor([[torch.nan], [0.0]]), none))
    assert not torch.allclose(unknown, zero)
    encoder = ReferenceConditionEncoder(GraphSizes((2,), category_conditions=(3, 2)), 8)
    codes = torch.cartesian_prod(torch.arange(-1, 3), torch.arange(-1, 2))
    found = encoder(Conditions(torch.zeros(12, 0), codes))
    assert (torch.cdist(found, found) + torch.eye(12)).min() > 1e-2


def test_dropping_takes_one_number_per_graph_first(conditions):
    """Golden losses hang on the order of the draws: for all of a graph, then for each."""
    uniform = torch.rand(3, generator=torch.Generator().manual_seed(3))
    rate = float(uniform.sort().values[:2].mean())
    dropped = drop_conditions(conditions, rate, torch.Generator().manual_seed(3))
    lost = int(uniform.argmin())
    assert dropped.numeric_BC[lost].isnan().all()
    assert (dropped.category_BM[lost] == -1).all()


COLUMNS = (4, 2, 6)


def codes_of(batch: DAGBatch) -> torch.Tensor:
    """The attributes, and the in-degree itself as its code."""
    degree_N = torch.bincount(batch.edge_index_2E[1], minlength=batch.num_nodes).clamp(max=5)
    return torch.cat([batch.x_NA, degree_N[:, None]], dim=1)


def all_of(batch: DAGBatch) -> Prefixes:
    return Prefixes.all_of(batch, codes_of(batch))


def prefixes_of(batch: DAGBatch) -> PrefixGraphs:
    return all_of(batch).end_to_end()


def conditions_of(batch: DAGBatch) -> Conditions:
    return Conditions(batch.numeric_BC, batch.category_BM)


@pytest.fixture
def encoder(sizes) -> PrefixEncoder:
    torch.manual_seed(0)
    return PrefixEncoder(sizes, COLUMNS, width=8, rounds=2).eval()


@pytest.fixture
def dags(make_dag) -> list[DAG]:
    return [make_dag(2, 3, 2), make_dag(1), make_dag(1, 4, 1)]


def test_there_is_a_state_for_every_prefix_the_empty_one_included(encoder, dags, make_batch):
    batch = make_batch(*dags)
    found = encoder(prefixes_of(batch), conditions_of(batch))
    assert found.shape == (4 + 2 + 4, 8)
    assert found.isfinite().all()
    # The empty prefixes differ by their conditions alone.
    unknown = encoder(prefixes_of(batch), conditions_of(batch).unknown())
    torch.testing.assert_close(unknown[0], unknown[4])
    assert not torch.allclose(found[0], found[4])


def test_the_state_of_a_prefix_does_not_depend_on_the_other_prefixes(encoder, dags, make_batch):
    batch = make_batch(*dags)
    items = all_of(batch)
    together = encoder(prefixes_of(batch), conditions_of(batch))
    for number in range(len(items)):
        one = items.where(torch.tensor([number]))
        alone = encoder(one.end_to_end(), conditions_of(batch))
        torch.testing.assert_close(alone[0], together[number], rtol=1e-4, atol=1e-5)


def test_later_layers_do_not_change_the_state_of_a_prefix(encoder, dags, make_batch):
    """The number of children is no input; the in-degree is that of finished nodes."""
    dag = dags[0]
    nodes = int((dag.layers() < 2).sum())
    keep = dag.edge_index_2E[1] < nodes
    start = DAG.build(
        dag.x_NA[:nodes], dag.edge_index_2E[:, keep], edge_type_E=dag.edge_type_E[keep]
    )
    whole, cut = make_batch(dag), make_batch(start)
    found = encoder(prefixes_of(cut), conditions_of(cut))
    wanted = encoder(prefixes_of(whole), conditions_of(whole))[:3]
    torch.testing.assert_close(found, wanted)


def test_the_order_of_nodes_in_a_layer_does_not_matter(encoder, dags, make_batch, generator):
    dag = dags[0]
    key = dag.layers() + torch.rand(dag.num_nodes, generator=generator)
    mixed = make_batch(dag.permuted(torch.argsort(key)))
    batch = make_batch(dag)
    torch.testing.assert_close(
        encoder(prefixes_of(mixed), conditions_of(mixed)),
        encoder(prefixes_of(batch), conditions_of(batch)),
    )


@pytest.mark.parametrize("name", ["code_NA", "distance_R", "depth_I", "edge_kind_V"])
def test_every_part_of_a_prefix_is_an_input(name, encoder, dags, make_batch):
    batch = make_batch(dags[0])
    partial = prefixes_of(batch)
    other = 1 - getattr(partial, name) if name == "edge_kind_V" else getattr(partial, name) + 1
    if name == "code_NA":
        other = other % torch.tensor(COLUMNS)
    changed = replace(partial, **{name: other})
    conditions = conditions_of(batch)
    assert not torch.allclose(encoder(changed, conditions)[-1], encoder(partial, conditions)[-1])


def test_far_layers_share_one_distance(sizes, dags, make_batch):
    torch.manual_seed(0)
    rows = PrefixNodeEncoder(sizes, COLUMNS, width=8, rounds=1, edge_kinds=2)
    batch = make_batch(dags[0])
    partial, conditions = prefixes_of(batch), conditions_of(batch)

    def states(distance: int) -> torch.Tensor:
        distance_R = torch.full_like(partial.distance_R, distance)
        return rows(replace(partial, distance_R=distance_R), conditions)

    assert torch.equal(states(MAX_LAYER_DISTANCE), states(1000))
    assert not torch.allclose(states(MAX_LAYER_DISTANCE), states(MAX_LAYER_DISTANCE - 1))


def test_with_no_rounds_a_row_sees_itself_alone(sizes, dags, make_batch):
    torch.manual_seed(0)
    rows = PrefixNodeEncoder(sizes, COLUMNS, width=8, rounds=0, edge_kinds=2)
    batch = make_batch(dags[0])
    partial, conditions = prefixes_of(batch), conditions_of(batch)
    bare = replace(
        partial, edge_index_2V=partial.edge_index_2V[:, :0], edge_kind_V=partial.edge_kind_V[:0]
    )
    assert torch.equal(rows(partial, conditions), rows(bare, conditions))


def test_every_parameter_learns(encoder, dags, make_batch):
    batch = make_batch(*dags)
    encoder(prefixes_of(batch), conditions_of(batch)).square().sum().backward()
    idle = [name for name, p in encoder.named_parameters() if p.grad is None or not p.grad.any()]
    assert idle == []


CPU = torch.device("cpu")
NONE = torch.zeros(0, dtype=torch.int64)


def codes(*values: int) -> torch.Tensor:
    """One attribute, and an in-degree that says nothing."""
    return torch.tensor([[value, 0] for value in values])


def two_graphs() -> PartialGraphs:
    """Graph 0: 1 -> 3 -> 4; graph 1: 2 alone. Nodes are known by their attribute."""
    graphs = PartialGraphs(2, CPU)
    graphs.append(torch.tensor([0, 1]), codes(1, 2), NONE, NONE, NONE)
    one = torch.tensor([0])
    graphs.append(one, codes(3), torch.tensor([0]), one, torch.tensor([1]))
    graphs.append(one, codes(4), torch.tensor([2]), one, torch.tensor([0]))
    return graphs


def test_layers_are_counted_and_nodes_keep_theirs():
    graphs = two_graphs()
    assert graphs.depth == 3
    assert graphs.layer_N.tolist() == [0, 0, 1, 2]
    assert graphs.graph_N.tolist() == [0, 1, 0, 0]
    assert graphs.edge_index_2E.tolist() == [[0, 2], [2, 3]]


def test_whole_graphs_are_grown_back_from_their_layers(make_dag, generator):
    """Two graphs at once, the nodes of a layer ordered by graph, edges in any order."""
    dags = [make_dag(2, 3, 1), make_dag(1, 2)]
    graphs, place = PartialGraphs(3, CPU), {}
    for layer in range(3):
        rows = [(g, n) for g, dag in enumerate(dags) for n in range(dag.num_nodes)
                if dag.layers()[n] == layer]  # fmt: skip
        start = len(place)
        edges = [
            (place[g, int(source)], start_of, int(kind))
            for start_of, (g, n) in enumerate(rows)
            for (source, target), kind in zip(
                dags[g].edge_index_2E.T, dags[g].edge_type_E, strict=True
            )
            if target == n
        ]
        place.update({row: start + i for i, row in enumerate(rows)})
        mixed = [edges[i] for i in torch.randperm(len(edges), generator=generator)]
        source, target, kind = torch.tensor(mixed, dtype=torch.int64).reshape(-1, 3).T
        x_WA = torch.stack([dags[g].x_NA[n] for g, n in rows])
        code_WA = torch.cat([x_WA, torch.zeros(len(rows), 1, dtype=torch.int64)], dim=1)
        graph_W = torch.tensor([g for g, _ in rows])
        graphs.append(graph_W, code_WA, source, target, kind)
    u_NA = torch.cat([dag.u_NA for dag in dags])
    for found, wanted in zip(graphs.finished(u_NA, 2), dags, strict=True):
        for name in ("x_NA", "u_NA", "edge_index_2E", "edge_type_E"):
            assert torch.equal(getattr(found, name), getattr(wanted.in_layer_order(), name)), name


@pytest.fixture
def batch(make_dag, make_batch) -> DAGBatch:
    return make_batch(make_dag(2, 3, 1), make_dag(4), make_dag(1, 1, 2, 5))


def test_items_are_all_prefixes_of_all_graphs(batch):
    items = all_of(batch)
    pairs = list(zip(items.graph_I.tolist(), items.depth_I.tolist(), strict=True))
    wanted = [(0, d) for d in range(4)] + [(1, 0), (1, 1)] + [(2, d) for d in range(5)]
    assert pairs == wanted


@pytest.mark.parametrize("ahead", [0, 1])
def test_prefixes_equal_those_found_one_by_one(batch, ahead):
    items = all_of(batch)
    items = items.where(items.depth_I + ahead <= items.layers_B[items.graph_I])
    found = items.end_to_end(ahead=bool(ahead))
    graph_N = batch.graph_of_node()
    for item in range(len(items)):
        graph, depth = int(items.graph_I[item]), int(items.depth_I[item])
        rows = found.prefix_R == item
        inside = (graph_N == graph) & (batch.layer_N < depth + ahead)
        assert found.node_R[rows].tolist() == torch.nonzero(inside)[:, 0].tolist()
        assert found.distance_R[rows].tolist() == (depth - batch.layer_N[inside]).tolist()
        target = batch.edge_index_2E[1]
        wanted = (graph_N[target] == graph) & (batch.layer_N[target] < depth)
        mine = found.prefix_R[found.edge_index_2V[1]] == item
        pairs = found.node_R[found.edge_index_2V[:, mine]]
        assert torch.equal(pairs, batch.edge_index_2E[:, wanted])
        assert torch.equal(found.edge_kind_V[mine], batch.edge_type_E[wanted])
        assert torch.all(found.prefix_R[found.edge_index_2V[0, mine]] == item)


def cost_of(items: Prefixes) -> torch.Tensor:
    """Nodes of each prefix, and pairs of these with the nodes of the next layer."""
    nodes_I = torch.bincount(items.end_to_end().prefix_R, minlength=len(items))
    return nodes_I * (1 + items.new_nodes()[1].diff())


def pairs_of(items: Prefixes) -> list[tuple[int, int]]:
    return list(zip(items.graph_I.tolist(), items.depth_I.tolist(), strict=True))


def test_a_budget_is_held_by_a_random_part_of_the_items(batch, generator):
    items = all_of(batch)
    parts = [items.subsampled(20, generator) for _ in range(30)]
    numbers = {pair: n for n, pair in enumerate(pairs_of(items))}
    chosen = [[numbers[pair] for pair in pairs_of(part)] for part in parts]
    assert all(cost_of(part).sum() <= 20 or len(part) == 1 for part in parts)
    assert all(part == sorted(part) for part in chosen)
    assert len({tuple(part) for part in chosen}) > 10


def test_a_budget_that_is_not_reached_changes_nothing(batch, generator):
    items = all_of(batch)
    assert items.subsampled(int(cost_of(items).sum()), generator) is items
    assert len(items.subsampled(0, generator)) >= 1
