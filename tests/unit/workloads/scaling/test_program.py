"""Meshes found from groups, and groups on other meshes."""

from collections import Counter
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from laws import tried
from programs_by_hand import flags, gathers, operator, product, program, scatters, sums
from same_jobs import assert_same
from small_workloads import collective, with_attribute
from symbolic_jobs import GPT, LLAMA, MIXTURE, small

from layerdag.codec.folding import rank_classes
from layerdag.errors import TraceError, UsageError
from layerdag.traces.analysis import group_names, match_communication
from layerdag.traces.builder import NodeSpec
from layerdag.traces.chakra.corpus import embedded_corpus, read_index, read_runs
from layerdag.traces.chakra.workload import read_workload
from layerdag.traces.trace import Attribute, CollectiveType, NodeType, Wire, Workload
from layerdag.workloads.scaling.program import (
    FULL,
    OWN,
    EditableProgram,
    Job,
    Mesh,
    RankLayout,
    is_sharded,
    mesh_of,
    numbers_written,
    stated_kinds,
    with_words,
    written,
)
from layerdag.workloads.scaling.rescaling import scale
from layerdag.workloads.transformer.shapes import ModelShape


def test_two_kinds_of_groups_are_two_axes() -> None:
    groups = [(0, 1), (2, 3), (0, 2), (1, 3)]
    assert mesh_of(4, groups, "job") == Mesh((2, 2))


def test_a_group_over_two_axes_does_not_join_them() -> None:
    assert mesh_of(8, [(0, 2, 4, 6), (0, 2)], "job") == Mesh((2, 2, 2))


def test_ends_of_a_chain_are_no_axis() -> None:
    """First and last of four stages of two ranks."""
    mesh = mesh_of(8, [(0, 6), (0, 1), (2, 3)], "job")
    assert mesh == Mesh((2, 4))
    extents = mesh.extents((0, 6))
    assert extents == (OWN, (0, 3))
    assert mesh.groups(extents).tolist() == [[0, 6], [1, 7]]


def test_groups_that_share_no_mesh_are_refused() -> None:
    with pytest.raises(TraceError, match="do not form a grid"):
        mesh_of(6, [(0, 1), (0, 1, 2)], "job")


def test_irregular_ranks_are_no_box() -> None:
    assert mesh_of(4, [(0, 1, 3)], "job").extents((0, 1, 3)) == ((0, 1, 3),)
    assert Mesh((2, 2)).extents((0, 1, 3)) is None
    assert mesh_of(8, [(0, 1, 4, 7)], "job") == Mesh((8,))


def test_one_rank_has_no_axis() -> None:
    mesh = mesh_of(1, [(0,)], "job")
    assert (mesh.sizes, mesh.num_ranks) == ((), 1)
    assert mesh.groups(()).tolist() == [[0]]
    assert mesh.coordinates(np.array([0])).shape == (1, 0)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(2, 4), min_size=1, max_size=3), st.data())
def test_groups_part_the_ranks_and_are_found_again(sizes: list[int], data: st.DataObject) -> None:
    mesh = Mesh(tuple(sizes))
    extents = tuple(data.draw(st.sampled_from((FULL, OWN))) for _ in sizes)
    groups = mesh.groups(extents)
    assert sorted(groups.reshape(-1).tolist()) == list(range(mesh.num_ranks))
    for ranks in groups.tolist():
        assert mesh.extents(ranks) == extents
    every = [
        [FULL if at == axis else OWN for at in range(len(sizes))] for axis in range(len(sizes))
    ]
    assert mesh_of(mesh.num_ranks, [g for e in every for g in mesh.groups(e).tolist()], "") == mesh
    assert (mesh.ranks(mesh.position_RA) == np.arange(mesh.num_ranks)).all()


def test_places_count_up_on_the_axis_of_neighbors_first() -> None:
    """Rank = place on the first axis + 2 * place on the second + 6 * place on the third."""
    mesh = Mesh((2, 3, 2))
    assert mesh.num_ranks == 12
    assert mesh.coordinates(np.array([0, 1, 2, 5, 6, 11])).tolist() == [
        [0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 2, 0], [0, 0, 1], [1, 2, 1],
    ]  # fmt: skip
    assert mesh.ranks(np.array([[1, 2, 0], [0, 1, 1]])).tolist() == [5, 8]


def test_a_place_beyond_an_axis_is_no_rank() -> None:
    with pytest.raises(ValueError, match="invalid entry"):
        Mesh((2, 3)).ranks(np.array([[2, 0]]))


@pytest.mark.parametrize(
    ("extents", "groups"),
    [
        ((FULL, OWN, OWN), [[0, 1], [2, 3], [4, 5], [6, 7]]),
        ((OWN, FULL, OWN), [[0, 2], [1, 3], [4, 6], [5, 7]]),
        ((OWN, OWN, FULL), [[0, 4], [1, 5], [2, 6], [3, 7]]),
        ((FULL, OWN, FULL), [[0, 1, 4, 5], [2, 3, 6, 7]]),
        ((FULL, FULL, FULL), [[0, 1, 2, 3, 4, 5, 6, 7]]),
        ((OWN, OWN, OWN), [[rank] for rank in range(8)]),
    ],
)
def test_groups_along_axes_of_two_by_two_by_two(
    extents: tuple[str, ...], groups: list[list[int]]
) -> None:
    assert Mesh((2, 2, 2)).groups(extents).tolist() == groups


def test_extents_of_a_group_do_not_depend_on_the_order_of_its_ranks() -> None:
    mesh = Mesh((2, 3))
    assert mesh.extents((4, 0, 2)) == mesh.extents((0, 2, 4)) == (OWN, FULL)
    assert mesh.extents((3, 1)) == (OWN, (0, 1))


def test_the_same_extents_on_a_larger_mesh_are_larger_groups() -> None:
    """Data ranks of two tensor ranks: two of them before, four afterwards."""
    extents = Mesh((2, 2)).extents((0, 2))
    assert extents == (OWN, FULL)
    assert Mesh((2, 4)).groups(extents).tolist() == [[0, 2, 4, 6], [1, 3, 5, 7]]


def test_chosen_places_stay_where_another_axis_grows() -> None:
    """First and last stage of four, of one data rank before and of three afterwards."""
    extents = Mesh((1, 4)).extents((0, 3))
    assert extents == (FULL, (0, 3))
    assert Mesh((3, 4)).groups(extents).tolist() == [[0, 1, 2, 9, 10, 11]]
    assert Mesh((3, 4)).groups((OWN, (0, 3))).tolist() == [[0, 9], [1, 10], [2, 11]]


def test_a_job_without_groups_is_one_axis() -> None:
    assert mesh_of(6, [], "job") == Mesh((6,))
    assert mesh_of(6, [(0,), (5,)], "job") == Mesh((6,))  # groups of one rank say nothing


@pytest.mark.parametrize(
    ("groups", "sizes"),
    [
        ([(0, 1, 2, 3)], (4, 3)),  # neighbors
        ([(1, 4, 7, 10)], (3, 4)),  # every third, from whichever rank on
        ([(0, 1, 6, 7)], (2, 3, 2)),  # pairs, six apart
        ([(3, 2, 1, 0)], (4, 3)),  # in any order
        ([(0, 1), (0, 1, 2, 3), tuple(range(12))], (2, 2, 3)),
    ],
)
def test_axes_of_twelve_ranks(groups: list[tuple[int, ...]], sizes: tuple[int, ...]) -> None:
    assert mesh_of(12, groups, "job") == Mesh(sizes)


def test_steps_that_do_not_divide_the_ranks_are_left_out() -> None:
    """Five neighbors of twelve are no row of any grid."""
    assert mesh_of(12, [(0, 1, 2, 3, 4)], "job") == Mesh((12,))


def test_groups_that_form_no_grid_are_told_by_their_steps() -> None:
    with pytest.raises(TraceError) as error:
        mesh_of(12, [(0, 1, 2, 3), (0, 6)], "my job")
    assert str(error.value).startswith(
        "my job: the communicator groups do not form a grid of ranks"
    )
    assert "one has steps of 4, another of 6" in str(error.value)


@tried(40)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.data())
def test_places_and_ranks_are_two_names_of_one_thing(sizes: list[int], data: st.DataObject) -> None:
    mesh = Mesh(tuple(sizes))
    rank = data.draw(st.integers(0, mesh.num_ranks - 1))
    (place,) = mesh.coordinates(np.array([rank])).tolist()
    assert all(0 <= at < size for at, size in zip(place, sizes, strict=True))
    steps = [int(np.prod(sizes[:axis])) for axis in range(len(sizes))]
    assert rank == sum(at * step for at, step in zip(place, steps, strict=True))
    assert mesh.ranks(np.array([place])).tolist() == [rank]


@cache
def measured() -> EditableProgram:
    """Return the program of a measured job of data-parallel ranks."""
    return EditableProgram.from_trace(read_workload("data/examples/ddp_mlp").traces[0], (0, 1))


def none_N(program: EditableProgram) -> np.ndarray:
    return np.zeros(program.num_nodes, dtype=bool)


def only(program: EditableProgram, row: int) -> np.ndarray:
    rows_N = none_N(program)
    rows_N[row] = True
    return rows_N


def costly_row(program: EditableProgram) -> int:
    """Return the first operator that has operations, bytes and a duration."""
    nanoseconds_N, _ = program.trace.integers("duration_ns")
    timed_N = (program.ops_N > 0) & (program.bytes_N > 0) & (nanoseconds_N > 0)
    return int(np.flatnonzero(program.computes_N & timed_N)[0])


def test_parents_and_children_are_the_two_ends_of_each_edge() -> None:
    program = measured()
    edges = set(zip(*program.data_edges_2E.tolist(), strict=True))
    rows = range(program.num_nodes)
    assert edges
    assert {(parent, row) for row in rows for parent in program.parents(row)} == edges
    assert {(row, child) for row in rows for child in program.children(row)} == edges


def test_descendants_and_ancestors_mirror_each_other() -> None:
    program = measured()
    rows = range(0, program.num_nodes, 5)
    below = {row: program.descendants(only(program, row)) for row in rows}
    above = {row: program.ancestors(only(program, row)) for row in rows}
    assert any(reached_N.any() for reached_N in below.values())
    for first in rows:
        assert not below[first][first]
        assert all(below[first][row] == above[row][first] for row in rows)


def test_nothing_depends_on_no_node() -> None:
    program = measured()
    assert not program.descendants(none_N(program)).any()
    assert not program.ancestors(none_N(program)).any()


def test_groups_and_kinds_are_of_collectives_only() -> None:
    program = measured()
    joins_N = program.trace.type_N == NodeType.COMM_COLL
    assert joins_N.any()
    assert (program.collective_N[joins_N] == CollectiveType.ALL_REDUCE).all()
    assert (program.collective_N[~joins_N] == CollectiveType.INVALID).all()
    assert {program.group_N[row] for row in np.flatnonzero(~joins_N)} == {""}


@pytest.mark.parametrize(("pipeline", "talks"), [(1, False), (2, True)])
def test_only_stages_of_a_pipeline_talk(pipeline: int, talks: bool) -> None:
    trace = small(GPT, pipeline=pipeline).workload().traces[0]
    assert EditableProgram.from_trace(trace, (0,)).talks is talks


def test_a_program_that_no_rule_changed_keeps_its_trace() -> None:
    program = measured()
    assert written(program, program, none_N(program)) is program.trace


@pytest.mark.parametrize(("ops", "moved", "ratio"), [(3, 1, 3), (1, 2, 2), (2, 5, 5)])
def test_a_duration_follows_the_cost_that_grows_more(ops: int, moved: int, ratio: int) -> None:
    before = measured()
    row = costly_row(before)
    ops_N, bytes_N = before.ops_N.copy(), before.bytes_N.copy()
    ops_N[row] *= ops
    bytes_N[row] *= moved
    trace = written(replace(before, ops_N=ops_N, bytes_N=bytes_N), before, none_N(before))
    old_N, new_N = (t.integers("duration_ns")[0] for t in (before.trace, trace))
    assert new_N[row] == ratio * old_N[row]
    np.testing.assert_array_equal(np.delete(new_N, row), np.delete(old_N, row))
    assert (trace.io_N6[row] == -1).all()  # its shapes are not those of the new size


def test_a_regrouped_collective_loses_its_measured_time_and_keeps_its_size() -> None:
    program = measured()
    row = int(np.flatnonzero(program.trace.type_N == NodeType.COMM_COLL)[0])
    trace = written(program, program, only(program, row))
    assert program.trace.integers("duration_ns")[0][row] > 0
    assert trace.integers("duration_ns")[0][row] == 0
    assert trace.integers("comm_size")[0][row] == program.comm_N[row]


def test_numbers_are_read_again_as_they_were_written() -> None:
    program = measured()
    doubled = replace(program, ops_N=2 * program.ops_N, comm_N=2 * program.comm_N)
    again = EditableProgram.from_trace(numbers_written(doubled), program.ranks)
    np.testing.assert_array_equal(again.ops_N, 2 * program.ops_N)
    np.testing.assert_array_equal(again.comm_N, 2 * program.comm_N)
    np.testing.assert_array_equal(again.bytes_N, program.bytes_N)


def test_an_attribute_that_no_node_has_changes_nothing() -> None:
    trace = measured().trace
    same = with_words(trace, {"no such attribute": np.ones(trace.num_nodes, dtype=np.int64)})
    np.testing.assert_array_equal(same.attributes.word_A, trace.attributes.word_A)


EXPECTED = {
    "ddp": "data", "fsdp2": "data", "tp": "tensor",
    "ep": "expert", "a2a": "expert", "pp": "pipeline",
}  # fmt: skip


def folded(workload: Workload) -> Job:
    """Return a job as classes on a mesh."""
    programs = [
        EditableProgram.from_trace(part.trace, part.ranks) for part in rank_classes(workload)
    ]
    return Job.from_programs(programs, dict(workload.groups), workload.source)


def test_the_plan_of_runs_of_the_corpus_is_found() -> None:
    corpus = embedded_corpus()
    records = [r for r in read_index(corpus) if r.strategy in EXPECTED and r.family != "bert"][::16]
    for run in read_runs(corpus, records):
        assert folded(run.workload()).kinds == (EXPECTED[run.record.strategy],), run.record.run


@pytest.mark.parametrize(
    ("shape", "plan", "kinds"),
    [
        (GPT, {"data": 2}, ("data",)),
        (LLAMA, {"tensor": 2, "sequence_parallel": True}, ("sequence",)),
        (LLAMA, {"tensor": 2, "data": 2, "zero": 3}, ("tensor", "data")),
        (GPT, {"context": 2, "data": 2}, ("sequence", "data")),
        (GPT, {"tensor": 2, "pipeline": 2, "data": 2}, ("tensor", "data", "pipeline")),
        (GPT, {"pipeline": 2, "data": 2}, ("data", "pipeline")),
        (MIXTURE, {"data": 4, "expert": 2}, ("expert", "data")),
        (GPT, {"tensor": 2, "phase": "prefill"}, ("tensor",)),
        (GPT, {"tensor": 1}, ()),
    ],
)
def test_the_plan_of_symbolic_jobs_is_found(
    shape: ModelShape, plan: dict[str, Any], kinds: tuple[str, ...]
) -> None:
    assert folded(small(shape, **plan).workload()).kinds == kinds


def test_an_unknown_group_is_refused() -> None:
    workload = small(GPT, data=2).workload()
    with pytest.raises(TraceError, match="group"):
        folded(Workload(tuple(workload.traces), {}, "job"))


# ---- purposes of collectives, by hand ----


def job_of(*nodes: NodeSpec, ranks: int = 2) -> Job:
    """Return a job of ranks that all run these nodes, in the group of all ranks."""
    return Job.from_programs([program(*nodes, ranks=range(ranks))], {}, "job")


def weighted(node: int, *deps: int) -> NodeSpec:
    return product(node, (2, 3, 4), *deps)


@pytest.mark.parametrize(
    ("nodes", "kind"),
    [
        # A sum that is multiplied by weights again is one of activations.
        ([weighted(0), sums(1, 8, 0), weighted(2, 1)], "tensor"),
        # One that only the optimizer uses, or nobody, is one of gradients.
        ([weighted(0), sums(1, 8, 0), operator(2, "adam", (8, 32), 1)], "data"),
        ([weighted(0), sums(1, 8, 0), weighted(2)], "data"),
        # What is scattered and multiplied again: sequence parallelism.
        ([weighted(0), scatters(1, 8, 0), weighted(2, 1)], "sequence"),
        # Gathers of weights come from no product, those of activations do.
        ([gathers(0, 6), weighted(1, 0)], "data"),
        ([weighted(0), gathers(1, 4, 0), weighted(2, 1)], "sequence"),
        ([gathers(0, 6), weighted(1, 0), scatters(2, 12, 1)], "data"),
        # A broadcast can belong to any of these.
        ([weighted(0), collective(1, 0, kind=CollectiveType.BROADCAST)], "unknown"),
        ([weighted(0), collective(1, 0, kind=CollectiveType.ALL_TO_ALL), weighted(2, 1)], "expert"),
    ],
)
def test_an_axis_is_what_its_collectives_are_for(nodes: list[NodeSpec], kind: str) -> None:
    assert job_of(*nodes).kinds == (kind,)


def test_the_most_special_purpose_of_a_group_is_that_of_its_axis() -> None:
    """Tensor ranks sum gradients of norms, too."""
    nodes = [weighted(0), sums(1, 8, 0), weighted(2, 1), sums(3, 6, 2)]
    assert job_of(*nodes).kinds == ("tensor",)


def test_ranks_that_do_not_communicate_are_of_unknown_purpose() -> None:
    silent = job_of(weighted(0), ranks=3)
    assert (silent.kinds, silent.mesh.sizes, silent.roles) == (("unknown",), (3,), ())


def in_group(spec: NodeSpec, name: str) -> NodeSpec:
    return with_attribute(spec, Attribute("pg_name", Wire.STRING, name))


def grid() -> Job:
    """Return four ranks: sums of activations in pairs, of gradients across, of a loss in all."""
    groups = {"1": (0, 1), "2": (2, 3), "3": (0, 2), "4": (1, 3)}
    programs = []
    for rank in range(4):
        tensor, data = ("1", "2")[rank // 2], ("3", "4")[rank % 2]
        nodes = (
            weighted(0), in_group(sums(1, 8, 0), tensor), weighted(2, 1),
            in_group(sums(3, 6, 2), data), sums(4, 1, 2),
        )  # fmt: skip
        programs.append(program(*nodes, ranks=(rank,)))
    return Job.from_programs(programs, groups, "job")


def test_groups_of_equal_shape_are_one_role_for_all_ranks() -> None:
    job = grid()
    assert (job.mesh.sizes, job.kinds) == ((2, 2), ("tensor", "data"))
    assert [role.full_axes for role in job.roles] == [(0,), (1,), (0, 1)]
    assert len(set(job.role_CN)) == 1  # each rank has the same roles at the same nodes
    assert [role is not None for role in job.role_CN[0]] == [False, True, False, True, True]


def test_rows_of_a_role_are_its_collectives() -> None:
    job = grid()
    found = [np.flatnonzero(job.rows(2, role)).tolist() for role in job.roles]
    assert found == [[1], [3], [4]]


def test_two_groups_of_the_same_ranks_are_two_roles() -> None:
    """Frameworks make a second communicator for the same ranks, to run beside the first."""
    nodes = (in_group(sums(0, 8), "5"), in_group(sums(1, 8), "7"))
    job = Job.from_programs([program(*nodes)], {"5": (0, 1), "7": (0, 1)}, "job")
    assert [(role.extents, role.number) for role in job.roles] == [(("full",), 0), (("full",), 1)]


def test_a_group_that_is_no_box_is_told_by_its_name() -> None:
    groups = {"8": (0, 1), "9": (0, 3)}  # a pair of neighbors, and a diagonal
    nodes = (in_group(sums(0, 8), "8"), in_group(sums(1, 8), "9"))
    job = Job((program(*nodes, ranks=range(4)),), groups, Mesh((2, 2)), "my job")
    with pytest.raises(TraceError, match=r"my job: group '9' is no box of the grid .*\(2, 2\)"):
        _ = job.roles


def test_a_group_that_no_file_names_is_told_with_what_to_add() -> None:
    with pytest.raises(TraceError, match="group '6', which is not among") as error:
        Job.from_programs([program(in_group(sums(0, 8), "6"))], {"1": (0, 1)}, "job")
    assert str(error.value).endswith(
        "add the communicator-group file that was written with the traces."
    )


@pytest.mark.parametrize(
    ("spec", "shards"),
    [(gathers(0, 4), True), (scatters(0, 4), True), (sums(0, 4), False)],
)
def test_gathers_and_scatters_are_of_shards(spec: NodeSpec, *, shards: bool) -> None:
    made = program(spec, weighted(1))
    assert is_sharded(made, flags(made, 0)) is shards
    assert not is_sharded(made, flags(made))


# ---- what a user states ----


def test_stated_kinds_are_taken_one_for_each_axis() -> None:
    assert stated_kinds("data, pipeline", grid()) == ("data", "pipeline")
    assert stated_kinds("sequence,expert", grid()) == ("sequence", "expert")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("data", "names 'data', but job has these axes of ranks: tensor x 2, data x 2"),
        ("data,data,data", "names 'data,data,data'"),
        ("data,zero", "'zero' is unknown; known are data, tensor, sequence, expert, pipeline"),
        ("data,unknown", "'unknown' is unknown"),  # no plan, though an axis can be called so
        ("", "'' is unknown"),
    ],
)
def test_a_plan_that_does_not_fit_is_told_with_what_was_found(text: str, told: str) -> None:
    with pytest.raises(UsageError, match=told) as error:
        stated_kinds(text, grid())
    assert str(error.value).startswith("--plan")


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


def layout(job: Job, mesh: Mesh) -> RankLayout:
    """Return the layout of the programs of a job as they are on another mesh."""
    traces = tuple(program.trace for program in job.programs)
    classes = np.arange(mesh.num_ranks) * len(traces) // mesh.num_ranks
    return RankLayout(job, mesh, traces, tuple(range(len(traces))), classes)


def folded_unfold(workload: Workload) -> Job:
    programs = [
        EditableProgram.from_trace(part.trace, part.ranks) for part in rank_classes(workload)
    ]
    return Job.from_programs(programs, dict(workload.groups), workload.source)


def test_a_longer_chain_of_stages_is_refused() -> None:
    job = folded_unfold(staged(data=2))
    assert job.mesh.sizes == (2, 2)
    with pytest.raises(TraceError, match="messages go along an axis whose size changes") as error:
        layout(job, Mesh((2, 4))).workload()
    assert str(error.value).endswith("Leave this degree as it is.")


def test_the_layout_of_a_job_on_its_own_mesh_is_the_job() -> None:
    workload = staged(data=2)
    job = folded_unfold(workload)
    assert_same(layout(job, job.mesh).workload(), workload)
