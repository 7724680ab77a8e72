"""What each axis of the corpus and of symbolic jobs is taken for."""

from typing import Any

import numpy as np
import pytest
from programs_by_hand import flags, gathers, operator, product, program, scatters, sums
from small_workloads import collective, with_attribute
from symbolic_jobs import GPT, LLAMA, MIXTURE, small

from layerdag.codec import rank_classes
from layerdag.errors import TraceError, UsageError
from layerdag.traces import (
    Attribute,
    CollectiveType,
    Wire,
    Workload,
    embedded_corpus,
    read_index,
    read_runs,
)
from layerdag.traces.chakra import NodeSpec
from layerdag.workloads.scaling._mesh import Mesh
from layerdag.workloads.scaling._program import Program
from layerdag.workloads.scaling._roles import Job, is_sharded, stated_kinds
from layerdag.workloads.symbolic import ModelShape

EXPECTED = {
    "ddp": "data", "fsdp2": "data", "tp": "tensor",
    "ep": "expert", "a2a": "expert", "pp": "pipeline",
}  # fmt: skip


def folded(workload: Workload) -> Job:
    """Return a job as classes on a mesh."""
    programs = [Program.of(part.trace, part.ranks) for part in rank_classes(workload)]
    return Job.of(programs, dict(workload.groups), workload.source)


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
    return Job.of([program(*nodes, ranks=range(ranks))], {}, "job")


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
    return Job.of(programs, groups, "job")


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
    job = Job.of([program(*nodes)], {"5": (0, 1), "7": (0, 1)}, "job")
    assert [(role.extents, role.number) for role in job.roles] == [(("full",), 0), (("full",), 1)]


def test_a_group_that_is_no_box_is_told_by_its_name() -> None:
    groups = {"8": (0, 1), "9": (0, 3)}  # a pair of neighbors, and a diagonal
    nodes = (in_group(sums(0, 8), "8"), in_group(sums(1, 8), "9"))
    job = Job((program(*nodes, ranks=range(4)),), groups, Mesh((2, 2)), "my job")
    with pytest.raises(TraceError, match=r"my job: group '9' is no box of the grid .*\(2, 2\)"):
        _ = job.roles


def test_a_group_that_no_file_names_is_told_with_what_to_add() -> None:
    with pytest.raises(TraceError, match="group '6', which is not among") as error:
        Job.of([program(in_group(sums(0, 8), "6"))], {"1": (0, 1)}, "job")
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
        ("data", r"names 1 kinds of parallelism, but job has 2 axes \(tensor x 2, data x 2\)"),
        ("data,data,data", "names 3 kinds"),
        ("data,zero", "'zero' is unknown; known are data, tensor, sequence, expert, pipeline"),
        ("data,unknown", "'unknown' is unknown"),  # no plan, though an axis can be called so
        ("", "'' is unknown"),
    ],
)
def test_a_plan_that_does_not_fit_is_told_with_what_was_found(text: str, told: str) -> None:
    with pytest.raises(UsageError, match=told) as error:
        stated_kinds(text, grid())
    assert str(error.value).startswith("--plan")
