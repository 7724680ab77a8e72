"""Meshes found from groups, and groups on other meshes."""

from dataclasses import replace
from functools import cache

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
    written,
)
from layerdag.workloads.scaling.rescaling import scale


def test_a_group_over_two_axes_does_not_join_them():
    assert mesh_of(8, [(0, 2, 4, 6), (0, 2)], "job") == Mesh((2, 2, 2))


def test_ends_of_a_chain_are_no_axis():
    """First and last of four stages of two ranks."""
    mesh = mesh_of(8, [(0, 6), (0, 1), (2, 3)], "job")
    assert mesh == Mesh((2, 4))
    extents = mesh.extents((0, 6))
    assert extents == (OWN, (0, 3))
    assert mesh.groups(extents).tolist() == [[0, 6], [1, 7]]


def test_groups_that_share_no_mesh_are_refused_and_irregular_ranks_are_no_box():
    with pytest.raises(TraceError, match="do not form a grid"):
        mesh_of(6, [(0, 1), (0, 1, 2)], "job")
    assert mesh_of(4, [(0, 1, 3)], "job").extents((0, 1, 3)) == ((0, 1, 3),)
    assert Mesh((2, 2)).extents((0, 1, 3)) is None
    assert mesh_of(8, [(0, 1, 4, 7)], "job") == Mesh((8,))


def test_one_rank_has_no_axis():
    mesh = mesh_of(1, [(0,)], "job")
    assert (mesh.sizes, mesh.num_ranks) == ((), 1)
    assert mesh.groups(()).tolist() == [[0]]
    assert mesh.coordinates(np.array([0])).shape == (1, 0)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(2, 4), min_size=1, max_size=3), st.data())
def test_groups_part_the_ranks_and_are_found_again(sizes, data):
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


def test_a_place_beyond_an_axis_is_no_rank():
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
def test_groups_along_axes_of_two_by_two_by_two(extents, groups):
    assert Mesh((2, 2, 2)).groups(extents).tolist() == groups


def test_chosen_places_stay_where_another_axis_grows():
    """First and last stage of four, of one data rank before and of three afterwards."""
    extents = Mesh((1, 4)).extents((0, 3))
    assert extents == (FULL, (0, 3))
    assert Mesh((3, 4)).groups(extents).tolist() == [[0, 1, 2, 9, 10, 11]]
    assert Mesh((3, 4)).groups((OWN, (0, 3))).tolist() == [[0, 9], [1, 10], [2, 11]]


def test_a_job_without_groups_is_one_axis():
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
def test_axes_of_twelve_ranks(groups, sizes):
    assert mesh_of(12, groups, "job") == Mesh(sizes)


def test_steps_that_do_not_divide_the_ranks_are_left_out():
    """Five neighbors of twelve are no row of any grid."""
    assert mesh_of(12, [(0, 1, 2, 3, 4)], "job") == Mesh((12,))


def test_groups_that_form_no_grid_are_told_by_their_steps():
    with pytest.raises(TraceError) as error:
        mesh_of(12, [(0, 1, 2, 3), (0, 6)], "my job")
    assert str(error.value).startswith(
        "my job: the communicator groups do not form a grid of ranks"
    )
    assert "one has steps of 4, another of 6" in str(error.value)


@tried(40)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.data())
def test_places_and_ranks_are_two_names_of_one_thing(sizes, data):
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


def test_parents_and_children_are_the_two_ends_of_each_edge():
    program = measured()
    edges = set(zip(*program.data_edges_2E.tolist(), strict=True))
    rows = range(program.num_nodes)
    assert edges
    assert {(parent, row) for row in rows for parent in program.parents(row)} == edges
    assert {(row, child) for row in rows for child in program.children(row)} == edges


def test_descendants_and_ancestors_mirror_each_other():
    program = measured()
    rows = range(0, program.num_nodes, 5)
    below = {row: program.descendants(only(program, row)) for row in rows}
    above = {row: program.ancestors(only(program, row)) for row in rows}
    assert any(reached_N.any() for reached_N in below.values())
    for first in rows:
        assert not below[first][first]
        assert all(below[first][row] == above[row][first] for row in rows)


def test_groups_and_kinds_are_of_collectives_only():
    program = measured()
    joins_N = program.trace.type_N == NodeType.COMM_COLL
    assert joins_N.any()
    assert (program.collective_N[joins_N] == CollectiveType.ALL_REDUCE).all()
    assert (program.collective_N[~joins_N] == CollectiveType.INVALID).all()
    assert {program.group_N[row] for row in np.flatnonzero(~joins_N)} == {""}


@pytest.mark.parametrize(("pipeline", "talks"), [(1, False), (2, True)])
def test_only_stages_of_a_pipeline_talk(pipeline, talks):
    trace = small(GPT, pipeline=pipeline).workload().traces[0]
    assert EditableProgram.from_trace(trace, (0,)).talks is talks


def test_a_program_that_no_rule_changed_keeps_its_trace():
    program = measured()
    assert written(program, program, none_N(program)) is program.trace


@pytest.mark.parametrize(("ops", "moved", "ratio"), [(3, 1, 3), (1, 2, 2), (2, 5, 5)])
def test_a_duration_follows_the_cost_that_grows_more(ops, moved, ratio):
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


def test_a_regrouped_collective_loses_its_measured_time_and_keeps_its_size():
    program = measured()
    row = int(np.flatnonzero(program.trace.type_N == NodeType.COMM_COLL)[0])
    trace = written(program, program, only(program, row))
    assert program.trace.integers("duration_ns")[0][row] > 0
    assert trace.integers("duration_ns")[0][row] == 0
    assert trace.integers("comm_size")[0][row] == program.comm_N[row]


def test_numbers_are_read_again_as_they_were_written():
    program = measured()
    doubled = replace(program, ops_N=2 * program.ops_N, comm_N=2 * program.comm_N)
    again = EditableProgram.from_trace(numbers_written(doubled), program.ranks)
    np.testing.assert_array_equal(again.ops_N, 2 * program.ops_N)
    np.testing.assert_array_equal(again.comm_N, 2 * program.comm_N)
    np.testing.assert_array_equal(again.bytes_N, program.bytes_N)


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


def test_the_plan_of_runs_of_the_corpus_is_found():
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
def test_the_plan_of_symbolic_jobs_is_found(shape, plan, kinds):
    assert folded(small(shape, **plan).workload()).kinds == kinds


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
def test_an_axis_is_what_its_collectives_are_for(nodes, kind):
    assert job_of(*nodes).kinds == (kind,)


def test_an_axis_has_the_most_special_purpose_and_none_where_nobody_communicates():
    """Tensor ranks sum gradients of norms, too."""
    nodes = [weighted(0), sums(1, 8, 0), weighted(2, 1), sums(3, 6, 2)]
    assert job_of(*nodes).kinds == ("tensor",)
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


def test_roles_are_those_of_equal_groups_and_their_rows_their_collectives():
    job = grid()
    assert (job.mesh.sizes, job.kinds) == ((2, 2), ("tensor", "data"))
    assert [role.full_axes for role in job.roles] == [(0,), (1,), (0, 1)]
    assert len(set(job.role_CN)) == 1  # each rank has the same roles at the same nodes
    assert [role is not None for role in job.role_CN[0]] == [False, True, False, True, True]
    job = grid()
    found = [np.flatnonzero(job.rows(2, role)).tolist() for role in job.roles]
    assert found == [[1], [3], [4]]


def test_two_groups_of_the_same_ranks_are_two_roles():
    """Frameworks make a second communicator for the same ranks, to run beside the first."""
    nodes = (in_group(sums(0, 8), "5"), in_group(sums(1, 8), "7"))
    job = Job.from_programs([program(*nodes)], {"5": (0, 1), "7": (0, 1)}, "job")
    assert [(role.extents, role.number) for role in job.roles] == [(("full",), 0), (("full",), 1)]


def test_groups_without_a_place_or_a_name_are_told():
    groups = {"8": (0, 1), "9": (0, 3)}  # a pair of neighbors, and a diagonal
    nodes = (in_group(sums(0, 8), "8"), in_group(sums(1, 8), "9"))
    job = Job((program(*nodes, ranks=range(4)),), groups, Mesh((2, 2)), "my job")
    with pytest.raises(TraceError, match=r"my job: group '9' is no box of the grid .*\(2, 2\)"):
        _ = job.roles
    with pytest.raises(TraceError, match="group '6', which is not among") as error:
        Job.from_programs([program(in_group(sums(0, 8), "6"))], {"1": (0, 1)}, "job")
    assert str(error.value).endswith(
        "add the communicator-group file that was written with the traces."
    )


@pytest.mark.parametrize(
    ("spec", "shards"), [(gathers(0, 4), True), (scatters(0, 4), True), (sums(0, 4), False)]
)
def test_gathers_and_scatters_are_of_shards(spec, shards):
    made = program(spec, weighted(1))
    assert is_sharded(made, flags(made, 0)) is shards
    assert not is_sharded(made, flags(made))


def test_stated_kinds_are_taken_one_for_each_axis():
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
def test_a_plan_that_does_not_fit_is_told_with_what_was_found(text, told):
    with pytest.raises(UsageError, match=told) as error:
        stated_kinds(text, grid())
    assert str(error.value).startswith("--plan")


def staged(**plan: int) -> Workload:
    return small(GPT, pipeline=2, micro_batches=2, **plan).workload()


def test_ranks_of_a_class_share_the_columns_of_their_program():
    traces = scale(read_workload("data/examples/ddp_mlp"), ranks=64).workload.traces
    assert traces[0].id_N is traces[63].id_N
    assert traces[5] is traces[5]  # made once


def layout(job: Job, mesh: Mesh) -> RankLayout:
    """Return the layout of the programs of a job as they are on another mesh."""
    traces = tuple(program.trace for program in job.programs)
    classes = np.arange(mesh.num_ranks) * len(traces) // mesh.num_ranks
    return RankLayout(job, mesh, traces, tuple(range(len(traces))), classes)


def test_a_layout_on_its_own_mesh_is_the_job_and_a_longer_chain_of_stages_is_refused():
    job = folded(staged(data=2))
    assert job.mesh.sizes == (2, 2)
    with pytest.raises(TraceError, match="messages go along an axis whose size changes") as error:
        layout(job, Mesh((2, 4))).workload()
    assert str(error.value).endswith("Leave this degree as it is.")
    workload = staged(data=2)
    job = folded(workload)
    assert_same(layout(job, job.mesh).workload(), workload)
