"""Graphs grown layer by layer come out whole, each by itself."""

from collections.abc import Callable

import torch

from layerdag.graph import DAG
from layerdag.models.diffusion._partial_graphs import NewLayer, PartialGraphs

CPU = torch.device("cpu")
NONE = torch.zeros(0, dtype=torch.int64)


def codes(*values: int) -> torch.Tensor:
    """One attribute, and an in-degree that says nothing."""
    return torch.tensor([[value, 0] for value in values])


def two_graphs() -> PartialGraphs:
    """Graph 0: 1 -> 3 -> 4; graph 1: 2 alone. Nodes are known by their attribute."""
    graphs = PartialGraphs(2, CPU)
    graphs.append(NewLayer(torch.tensor([0, 1]), codes(1, 2), NONE, NONE, NONE))
    one = torch.tensor([0])
    graphs.append(NewLayer(one, codes(3), torch.tensor([0]), one, torch.tensor([1])))
    graphs.append(NewLayer(one, codes(4), torch.tensor([2]), one, torch.tensor([0])))
    return graphs


def test_layers_are_counted_and_nodes_keep_theirs():
    graphs = two_graphs()
    assert graphs.depth == 3
    assert graphs.layer_N.tolist() == [0, 0, 1, 2]
    assert graphs.graph_N.tolist() == [0, 1, 0, 0]
    assert graphs.edge_index_2E.tolist() == [[0, 2], [2, 3]]


def test_every_graph_gets_its_own_nodes_and_edges_without_the_in_degree():
    first, second = two_graphs().finished(torch.zeros(4, 1), 2)
    assert first.x_NA.tolist() == [[1], [3], [4]]
    assert first.edge_index_2E.tolist() == [[0, 1], [1, 2]]
    assert first.edge_type_E.tolist() == [1, 0]
    assert second.x_NA.tolist() == [[2]]
    assert second.num_edges == 0


def test_positions_in_bins_are_given_in_the_order_of_the_graphs():
    first, second = two_graphs().finished(torch.tensor([[0.1], [0.2], [0.3], [0.4]]), 2)
    assert torch.equal(first.u_NA, torch.tensor([[0.1], [0.2], [0.3]]))
    assert torch.equal(second.u_NA, torch.tensor([[0.4]]))


def test_whole_graphs_are_grown_back_from_their_layers(
    make_dag: Callable[..., DAG], generator: torch.Generator
):
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
        graphs.append(NewLayer(graph_W, code_WA, source, target, kind))
    u_NA = torch.cat([dag.u_NA for dag in dags])
    for found, wanted in zip(graphs.finished(u_NA, 2), dags, strict=True):
        for name in ("x_NA", "u_NA", "edge_index_2E", "edge_type_E"):
            assert torch.equal(getattr(found, name), getattr(wanted.in_layer_order(), name)), name
