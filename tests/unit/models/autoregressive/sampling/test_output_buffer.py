"""Nodes and edges written step by step come out as one graph per sample."""

import numpy as np
import pytest
import torch

from layerdag.models.autoregressive.sampling._output_buffer import OutputBuffer
from layerdag.models.autoregressive.sampling._slots import SLOTS_PER_PARENT, RandomSlot

CPU = torch.device("cpu")
SEEDS = np.array([11, 12, 0], dtype=np.uint64)
"""Of two samples and the padding sample."""


def rows(*values: int) -> torch.Tensor:
    return torch.tensor(values)


def filled() -> OutputBuffer:
    """Sample 0 has nodes 5 -> 7, sample 1 node 6 alone; the padding sample is written to, too."""
    output = OutputBuffer(SEEDS, CPU)
    output.add_nodes(rows(0, 1), torch.tensor([[5], [6]]), rows(0, 0))
    output.add_nodes(rows(0, 2), torch.tensor([[7], [9]]), rows(1, 1))
    output.add_edges(rows(0, 2), rows(1, 1), rows(2, 2), rows(3, 0))
    return output


def test_every_sample_gets_its_own_nodes_and_edges():
    first, second = filled().result().dags
    assert first.x_NA.tolist() == [[5], [7]]
    assert first.edge_index_2E.tolist() == [[0], [1]]
    assert first.edge_type_E.tolist() == [3]
    assert second.x_NA.tolist() == [[6]]
    assert second.num_edges == 0
    assert [dag.check().layer_N.tolist() for dag in (first, second)] == [[0, 1], [0]]


def test_what_finished_rows_write_is_dropped():
    result = filled().result()
    assert len(result.dags) == 2
    assert sum(dag.num_nodes for dag in result.dags) == 3


def test_rows_in_any_order_are_sorted_out():
    output = OutputBuffer(SEEDS, CPU)
    output.add_nodes(rows(1, 0), torch.tensor([[6], [5]]), rows(0, 0))
    output.add_nodes(rows(0), torch.tensor([[7]]), rows(1))
    output.add_edges(rows(0), rows(1), rows(2), rows(3))
    for found, wanted in zip(output.result().dags, filled().result().dags, strict=True):
        assert torch.equal(found.x_NA, wanted.x_NA)
        assert torch.equal(found.u_NA, wanted.u_NA)
        assert torch.equal(found.edge_index_2E, wanted.edge_index_2E)


def test_the_truncated_samples_are_told():
    output = filled()
    assert output.result().truncated == (False, False)
    output.truncate(rows(1))
    assert output.result().truncated == (False, True)


def test_positions_in_bins_follow_the_seed_and_not_the_row():
    output = OutputBuffer(SEEDS[[1, 2]], CPU)
    output.add_nodes(rows(0), torch.tensor([[6]]), rows(0))
    (alone,) = output.result().dags
    assert torch.equal(alone.u_NA, filled().result().dags[1].u_NA)
    assert ((alone.u_NA >= 0) & (alone.u_NA < 1)).all()


def test_nothing_at_all_and_a_graph_without_a_node_are_errors():
    with pytest.raises(ValueError, match="no graph has a node, as where every probability is NaN"):
        OutputBuffer(SEEDS, CPU).result()
    output = OutputBuffer(SEEDS, CPU)
    output.add_nodes(rows(0, 2), torch.tensor([[5], [5]]), rows(0, 0))
    with pytest.raises(ValueError, match="a graph has no node"):
        output.result()


def test_no_two_decisions_about_a_node_take_the_same_uniform():
    pairs = ("LAYER_SIZE", "FIRST_PARENT", "IN_DEGREE", "OUT_DEGREE")
    taken = [RandomSlot[name] + i for name in pairs for i in range(2)]
    # A thousand attributes and 20 000 parents are more than a graph may have.
    taken += [RandomSlot.KIND, *range(RandomSlot.ATTRIBUTE, RandomSlot.ATTRIBUTE + 1000)]
    parents = range(
        RandomSlot.FURTHER_PARENT, RandomSlot.FURTHER_PARENT + 20_000 * SLOTS_PER_PARENT
    )
    assert len(taken) == len(set(taken))
    assert max(taken) < parents.start
    assert parents.stop < RandomSlot.POSITION_IN_BIN
