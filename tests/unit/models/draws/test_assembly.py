from collections.abc import Callable

import torch

from layerdag.graph import DAG, DAGBatch
from layerdag.models.draws import assemble_dags, bin_positions


def test_a_shuffled_batch_comes_apart_into_its_graphs(
    make_dag: Callable[..., DAG],
    make_batch: Callable[..., DAGBatch],
    generator: torch.Generator,
):
    dags = [make_dag(2, 3, 2), make_dag(1), make_dag(1, 4, 4, extra_edges=1.0)]
    batch = make_batch(*dags)
    order_E = torch.randperm(batch.edge_type_E.numel(), generator=generator)
    found = assemble_dags(
        batch.x_NA,
        batch.u_NA,
        batch.node_ptr.diff(),
        batch.edge_index_2E[:, order_E],
        batch.edge_type_E[order_E],
        batch.layer_N,
    )
    for dag, wanted in zip(found, dags, strict=True):
        dag.check()
        for name in ("x_NA", "u_NA", "edge_index_2E", "edge_type_E", "layer_N"):
            assert torch.equal(getattr(dag, name), getattr(wanted.in_layer_order(), name))


def test_a_graph_does_not_keep_the_tensors_of_the_others():
    x_NA = torch.zeros(1000, 1, dtype=torch.int64)
    none = torch.zeros(2, 0, dtype=torch.int64)
    small, _ = assemble_dags(x_NA, x_NA.float(), torch.tensor([1, 999]), none, none[0], x_NA[:, 0])
    assert small.x_NA.untyped_storage().nbytes() == 8
    assert small.u_NA.untyped_storage().nbytes() == 4
    assert small.layer_N.untyped_storage().nbytes() == 8


def test_a_position_just_below_1_stays_below_1_in_single_precision():
    found = bin_positions(torch.tensor([0.25, 1 - 2.0**-53], dtype=torch.float64))
    assert found.dtype == torch.float32
    assert found[0] == 0.25
    assert found[1] < 1
