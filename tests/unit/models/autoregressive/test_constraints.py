import numpy as np
import pytest
import torch

from layerdag.graph import DAG, DAGBatch, GraphSizes, GraphStatistics, random_dag
from layerdag.models.autoregressive import ConstraintConfig, DegreeConstraints
from layerdag.models.layers import CountCode, Counter


def test_codes_that_no_training_node_has_are_ruled_out() -> None:
    statistics = GraphStatistics(
        graphs=1,
        attributes=((2, 1), (3, 0), (0, 1, 2)),
        edge_types=(1,),
        in_degrees=(((0, 2),), ((1, 1),)),
        out_degrees=(((0, 1), (1, 1)), ((0, 1),)),
        layer_sizes=((1, 1), (2, 1)),
        layer_counts=((2, 1),),
    )
    constraints = DegreeConstraints(statistics)
    assert constraints.limit_attributes(torch.zeros(1, 2), 0).tolist() == [[0.0, -torch.inf]]
    assert constraints.limit_attributes(torch.zeros(1, 3), 1).tolist() == [[-torch.inf, 0.0, 0.0]]


def test_a_kind_starts_a_graph_and_has_parents_only_as_in_training() -> None:
    sizes = GraphSizes((4,))
    chain = DAG.build(torch.tensor([[0], [1], [2], [2]]), torch.tensor([[0, 0, 1], [1, 2, 2]]))
    constraints = DegreeConstraints(GraphStatistics.measure([chain], sizes))
    limited = constraints.limit_kinds(torch.zeros(3, 4), torch.tensor([0, 1, 2]))
    # Kinds 0 and 2 start; kind 1 has one parent, kind 2 two; kind 3 does not occur.
    assert limited.isfinite().tolist() == [
        [True, False, True, False],
        [False, True, False, False],
        [False, True, True, False],
    ]


def fork(children: int, kinds: tuple[int, int] = (0, 1)) -> DAG:
    """A root with so many children."""
    edges_2E = torch.stack([torch.zeros(children, dtype=torch.int64), torch.arange(children) + 1])
    return DAG.build(torch.tensor([[kinds[0]], *[[kinds[1]]] * children]), edges_2E)


def test_nodes_with_more_or_fewer_children_than_any_of_their_kind_are_violations() -> None:
    sizes = GraphSizes(attributes=(4,), edge_types=1)
    constraints = DegreeConstraints(GraphStatistics.measure([fork(2), fork(3)], sizes))
    dags = [fork(2), fork(3), fork(1), fork(4), fork(2, kinds=(0, 0)), fork(5, kinds=(2, 3))]
    batch = DAGBatch.of(
        dags,
        torch.zeros(len(dags), 0),
        torch.zeros(len(dags), 0, dtype=torch.int64),
    )
    # Roots of one and of four children; two leaves of a kind that has two; kinds never seen.
    assert constraints.violations(batch).tolist() == [0.0, 0.0, 1.0, 1.0, 2.0, 0.0]


def test_the_capacity_is_bounded_by_the_predicted_out_degree_and_by_the_kind() -> None:
    constraints = DegreeConstraints(GraphStatistics.measure([fork(3)], GraphSizes((3,))))
    kind, out_degree = torch.tensor([0, 0, 1]), torch.tensor([2, 5, 4])
    assert constraints.capacity(kind, None).tolist() == [3, 3, 0]
    assert constraints.capacity(kind, out_degree).tolist() == [2, 3, 0]


def test_no_logit_of_an_allowed_code_is_changed(generator: torch.Generator) -> None:
    constraints = DegreeConstraints(GraphStatistics.measure([fork(2), fork(3)], GraphSizes((4,))))
    logits = torch.randn(2, 4, generator=generator)
    limited = constraints.limit_kinds(logits, torch.tensor([0, 1]))
    allowed = limited.isfinite()
    assert allowed.tolist() == [[True, False, False, False], [False, True, False, False]]
    assert torch.equal(limited[allowed], logits[allowed])


def test_where_no_kind_fits_none_is_ruled_out() -> None:
    """Here every node beyond layer 0 has two parents, and only one node exists."""
    two = DAG.build(torch.tensor([[0], [0], [1]]), torch.tensor([[0, 1], [2, 2]]))
    constraints = DegreeConstraints(GraphStatistics.measure([two], GraphSizes((3,))))
    found = constraints.limit_kinds(torch.zeros(2, 3), torch.tensor([1, 2]))
    assert found.isfinite().tolist() == [[True, True, True], [False, True, False]]


def three_parents() -> DegreeConstraints:
    """Kind 1 has two or three parents, kind 2 one; kind 3 does not occur."""
    dag = DAG.build(
        torch.tensor([[0], [0], [0], [1], [1], [2]]),
        torch.tensor([[0, 1, 2, 0, 1, 0], [3, 3, 3, 4, 4, 5]]),
    )
    return DegreeConstraints(GraphStatistics.measure([dag], GraphSizes((4,))))


def test_in_degrees_stay_within_those_of_the_kind_and_the_nodes_there_are() -> None:
    kind, first = torch.tensor([1, 1, 1, 2, 3, 0]), torch.tensor([5, 2, 1, 5, 5, 0])
    constraints = three_parents()
    low = constraints.clamp(torch.zeros(6, dtype=torch.int64), kind, first)
    high = constraints.clamp(torch.full((6,), 99), kind, first)
    assert low.tolist() == [2, 2, 1, 1, 1, 0]
    assert high.tolist() == [3, 2, 1, 1, 1, 0]
    inside = torch.tensor([3, 2, 1, 1, 1, 0])
    assert torch.equal(constraints.clamp(inside, kind, first), inside)


@pytest.mark.parametrize("exact", [1, 2, 8])
def test_a_code_of_in_degrees_is_allowed_if_one_of_its_counts_is(exact: int) -> None:
    counter, constraints = Counter(CountCode(exact, 9)), three_parents()
    kind, first = torch.tensor([1, 1, 2, 3]), torch.tensor([5, 2, 4, 1])
    zeros = torch.zeros(4, counter.num_codes)
    found = constraints.limit_degrees(zeros, counter, kind, first).isfinite()
    for row, allowed in enumerate([{2, 3}, {2}, {1}, {1}]):
        codes = {int(counter.encode(torch.tensor(degree))) for degree in allowed}
        assert found[row].nonzero()[:, 0].tolist() == sorted(codes)


def test_any_number_of_children_is_allowed_if_they_are_unlimited() -> None:
    statistics = GraphStatistics.measure([fork(3)], GraphSizes((3,)))
    free = DegreeConstraints(statistics, ConstraintConfig("unlimited"))
    many = free.capacity(torch.tensor([0, 1, 2]), torch.tensor([1, 0, 5]))
    assert (many > 10**9).all()
    dag = fork(9)
    none = (torch.zeros(1, 0), torch.zeros(1, 0, dtype=torch.int64))
    batch = DAGBatch.of([dag], *none)
    assert free.violations(batch).tolist() == [0.0]
    assert DegreeConstraints(statistics).violations(batch).tolist() == [1.0]


def test_training_graphs_break_no_constraint() -> None:
    sizes = GraphSizes((3, 2))
    rng = np.random.default_rng(4)
    dags = [random_dag(rng, [2, 3, 2, 1], [3, 2], extra_edges=1.0) for _ in range(6)]
    constraints = DegreeConstraints(GraphStatistics.measure(dags, sizes))
    none = (torch.zeros(6, 0), torch.zeros(6, 0, dtype=torch.int64))
    batch = DAGBatch.of(dags, *none)
    assert not constraints.violations(batch).any()
    degree = torch.bincount(batch.edge_index_2E[1], minlength=batch.num_nodes)
    first = torch.full_like(degree, 99).masked_fill(batch.layer_N == 0, 0)
    assert torch.equal(constraints.clamp(degree, batch.x_NA[:, 0], first), degree)
    kinds = constraints.limit_kinds(torch.zeros(batch.num_nodes, 3), first)
    assert kinds.gather(1, batch.x_NA[:, :1]).isfinite().all()
    others = constraints.limit_attributes(torch.zeros(batch.num_nodes, 2), 0)
    assert others.gather(1, batch.x_NA[:, 1:]).isfinite().all()


def test_limits_are_no_part_of_the_weights() -> None:
    assert not three_parents().state_dict()
