"""Groups of ranks after degrees have changed."""

from collections import Counter

import numpy as np
import pytest
from same_jobs import assert_same
from symbolic_jobs import GPT, small

from layerdag.codec import rank_classes
from layerdag.errors import TraceError
from layerdag.traces import NodeType, Workload, read_workload
from layerdag.traces.analysis import group_names, match_communication
from layerdag.workloads.scaling import scale
from layerdag.workloads.scaling._mesh import Mesh
from layerdag.workloads.scaling._program import Program
from layerdag.workloads.scaling._roles import Job
from layerdag.workloads.scaling._unfold import Layout

SENDS_AND_RECEIVES = (NodeType.COMM_SEND, NodeType.COMM_RECV)


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


def staged(**plan: int) -> Workload:
    """Return a job of two stages of a pipeline."""
    return small(GPT, pipeline=2, micro_batches=2, **plan).workload()


def peers(workload: Workload, rank: int) -> set[int]:
    """Return the ranks with which a rank exchanges messages."""
    columns = (workload.traces[rank].integers(name) for name in ("comm_dst", "comm_src"))
    return {peer for peer_N, told_N in columns for peer in peer_N[told_N].tolist()}


def test_each_rank_talks_to_the_other_stage_at_its_own_data_place() -> None:
    """Ranks 0 to 3 are the first stage, 4 to 7 the second; before it was two and two."""
    before = staged(data=2)
    assert [peers(before, rank) for rank in range(4)] == [{2}, {3}, {0}, {1}]
    after = scale(before, data=4).workload
    assert [peers(after, rank) for rank in range(8)] == [{4}, {5}, {6}, {7}, {0}, {1}, {2}, {3}]


def test_every_send_of_a_scaled_pipeline_has_its_receive() -> None:
    scaled = scale(staged(data=2, tensor=2, batch=8), data=5).workload
    assert match_communication(scaled).mismatches == ()
    ends = Counter[tuple[int, int, bool]]()
    for rank, trace in enumerate(scaled.traces):
        for row in np.flatnonzero(np.isin(trace.type_N, SENDS_AND_RECEIVES)).tolist():
            sends = trace.type_N[row] == NodeType.COMM_SEND
            peer = int(trace.integers("comm_dst" if sends else "comm_src")[0][row])
            ends[(rank, peer, True) if sends else (peer, rank, False)] += 1
    sent = {(source, target): n for (source, target, sends), n in ends.items() if sends}
    received = {(source, target): n for (source, target, sends), n in ends.items() if not sends}
    assert sent
    assert sent == received


def test_collectives_of_a_rank_run_in_groups_that_hold_it() -> None:
    scaled = scale(staged(data=2, tensor=2, batch=8), data=4).workload
    for rank, trace in enumerate(scaled.traces):
        named = {name for name in group_names(trace)[0] if name}
        assert named
        assert all(rank in scaled.groups[name] for name in named)


def test_groups_of_each_role_part_the_ranks() -> None:
    """Tensor pairs, and data groups of three of each tensor place: twice six ranks."""
    source = small(GPT, tensor=2, data=2, batch=8).workload()
    groups = [tuple(ranks) for ranks in scale(source, data=3).workload.groups.values()]
    pairs = [ranks for ranks in groups if len(ranks) == 2]
    columns = [ranks for ranks in groups if len(ranks) == 3]
    assert sorted(rank for ranks in pairs for rank in ranks) == list(range(6))
    assert sorted(columns) == [(0, 2, 4), (1, 3, 5)]


def test_ranks_of_a_class_share_the_columns_of_their_program() -> None:
    traces = scale(read_workload("data/examples/ddp_mlp"), ranks=64).workload.traces
    assert traces[0].id_N is traces[63].id_N
    assert traces[5] is traces[5]  # made once


def layout(job: Job, mesh: Mesh) -> Layout:
    """Return the layout of the programs of a job as they are on another mesh."""
    traces = tuple(program.trace for program in job.programs)
    classes = np.arange(mesh.num_ranks) * len(traces) // mesh.num_ranks
    return Layout(job, mesh, traces, tuple(range(len(traces))), classes)


def folded(workload: Workload) -> Job:
    programs = [Program.of(part.trace, part.ranks) for part in rank_classes(workload)]
    return Job.of(programs, dict(workload.groups), workload.source)


def test_a_longer_chain_of_stages_is_refused() -> None:
    job = folded(staged(data=2))
    assert job.mesh.sizes == (2, 2)
    with pytest.raises(TraceError, match="messages go along an axis whose size changes") as error:
        layout(job, Mesh((2, 4))).workload()
    assert str(error.value).endswith("Leave this degree as it is.")


def test_the_layout_of_a_job_on_its_own_mesh_is_the_job() -> None:
    workload = staged(data=2)
    job = folded(workload)
    assert_same(layout(job, job.mesh).workload(), workload)
