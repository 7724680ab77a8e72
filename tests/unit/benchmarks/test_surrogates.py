import sys

import pytest
import torch
from documentation import ROOT

from layerdag.dag.dag import DAG

sys.path.insert(0, str(ROOT / "benchmarks"))
from surrogates import makespan


def dag(values: list[int], edges: list[tuple[int, int]]) -> DAG:
    edge_index_2E = torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).T
    return DAG.build(torch.tensor(values)[:, None], edge_index_2E)


@pytest.mark.parametrize(
    ("values", "edges", "expected"),
    [
        ([0], [], 1.0),
        ([1, 1], [], 3.0),  # side by side
        ([1, 1], [(0, 1)], 6.0),  # one after the other
        ([0, 0, 0], [], 2.0),  # two workers
        ([1, 0, 0], [(1, 2)], 3.0),  # the short ones beside the long one
        ([1, 0, 1], [(0, 2), (1, 2)], 6.0),
    ],
)
def test_two_workers_take_nodes_as_they_become_ready(values, edges, expected):
    assert makespan(dag(values, edges)) == expected
