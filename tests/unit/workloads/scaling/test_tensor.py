"""Tensor degree: measured twins of the corpus; what no rule covers is refused."""

import pytest
from same_jobs import operators
from symbolic_jobs import GPT, small

from layerdag.errors import TraceError
from layerdag.simulator import Cluster, simulate
from layerdag.traces import read_index, read_runs
from layerdag.workloads.scaling import scale
from layerdag.workloads.scaling._rows import factors

NAMES = ("0822_mlp_tp_ws4", "0825_mlp_tp_ws4", "0831_gpt_tp_ws4", "0832_gpt_tp_ws4")


def test_two_tensor_ranks_tell_what_four_do() -> None:
    """SGD by parameter, a fused optimizer, clipping and multi-tensor Adam."""
    wanted = {r.run: r for r in read_index("data") if r.run in NAMES}
    targets = {run.record.run: run.traces[0] for run in read_runs("data", wanted.values())}
    twins = [r for r in read_index("data/twins") if r.run.removesuffix(".ws2") in NAMES]
    for run in read_runs("data/twins", twins):
        made = scale(run.workload(), ranks=4).workload
        assert operators(made.traces[3]) == operators(targets[run.record.run[:-4]])
        assert simulate(made, Cluster.preset("small")).makespan_ns > 0


def test_a_degree_that_does_not_divide_is_refused() -> None:
    records = [r for r in read_index("data/twins") if r.run == "0822_mlp_tp_ws4.ws2"]
    for run in read_runs("data/twins", records):
        with pytest.raises(TraceError, match="does not divide evenly over 6 tensor ranks"):
            scale(run.workload(), tensor=6)


def test_a_split_vocabulary_is_refused() -> None:
    with pytest.raises(TraceError, match="is no sum of what a product split by rows leaves"):
        scale(small(GPT, tensor=2).workload(), tensor=4)


def test_factors_of_product_and_sum() -> None:
    assert factors(12, 7) == (3, 4)
    assert factors(12, 8) == (2, 6)
    assert factors(12, 9) == ()
    assert factors(1, -2) == ()
