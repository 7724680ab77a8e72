"""Groups of ranks after degrees have changed."""

from symbolic_jobs import GPT, small

from layerdag.traces import read_workload
from layerdag.workloads.scaling import scale


def test_tensor_pairs_and_data_groups_are_those_of_the_larger_mesh() -> None:
    source = small(GPT, tensor=2, data=2, batch=8).workload()
    groups = {tuple(ranks) for ranks in scale(source, data=4).workload.groups.values()}
    pairs = {(0, 1), (2, 3), (4, 5), (6, 7)}  # tensor ranks are neighbors
    columns = {(0, 2, 4, 6), (1, 3, 5, 7)}  # data ranks are two apart
    assert pairs | columns <= groups


def test_every_rank_of_a_scaled_job_is_in_the_one_group() -> None:
    scaled = scale(read_workload("data/examples/ddp_mlp"), ranks=6).workload
    assert (len(scaled.traces), scaled.num_ranks) == (6, 6)
    assert {tuple(ranks) for ranks in scaled.groups.values()} == {tuple(range(6))}
