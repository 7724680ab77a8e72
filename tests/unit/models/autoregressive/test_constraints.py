import torch

from layerdag.graph import DAG, DAGBatch, GraphSizes, GraphStatistics
from layerdag.models.autoregressive import DegreeConstraints


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
    batch = DAGBatch.collate(
        dags,
        [dag.layers() for dag in dags],
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
