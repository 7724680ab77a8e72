"""A job on other ranks: the degrees that were asked for, and the rules that follow from them."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, final

import numpy as np

from layerdag._runtime import Limits, require_few_bytes, require_few_ranks
from layerdag.codec import rank_classes
from layerdag.errors import UsageError
from layerdag.traces import Trace, Workload, read_any
from layerdag.workloads.scaling._degrees import Degrees, Found, new_sizes
from layerdag.workloads.scaling._mesh import Mesh
from layerdag.workloads.scaling._program import Program, written
from layerdag.workloads.scaling._roles import Job, Kind, is_sharded, stated_kinds
from layerdag.workloads.scaling._shards import Change, Resharding
from layerdag.workloads.scaling._unfold import Layout

NODE_BYTES = 135


@final
@dataclass(frozen=True, eq=False)
class Scaled:
    """A workload made larger.

    Attributes:
        workload: The traces of all ranks; each is made when it is asked for.
        found: What was found in the trace and what has changed, for ``--json``.
    """

    workload: Workload
    found: dict[str, Any]


def scale(
    trace: Workload | str | Path,
    *,
    ranks: int | None = None,
    data: int | None = None,
    tensor: int | None = None,
    expert: int | None = None,
    layers: int | None = None,
    plan: str | None = None,
    limits: Limits | None = None,
) -> Scaled:
    """Return a job on other ranks or with other layers, by rules; each rank keeps its batch.

    Args:
        trace: A workload, or anything that ``layerdag.read`` reads traces from.
        ranks: All ranks afterwards; the data-parallel degree follows.
        data: Data-parallel degree.
        tensor: Tensor-parallel degree.
        expert: Expert-parallel degree.
        layers: Number of layers.
        plan: Kinds of parallelism, "tensor,data", that of neighboring ranks first, where the trace
            does not tell them.
        limits: The most ranks and bytes that may come out.

    Returns:
        The workload with what was found.

    Raises:
        UsageError: If the trace does not have what should change; says what was found.
        TraceError: If the trace is damaged, or does not determine the result.
    """
    workload = trace if isinstance(trace, Workload) else read_any(trace)
    asked = Degrees(ranks, data, tensor, expert)
    asked.check(layers)
    job, kinds = _job(workload, plan)
    found = Found(kinds, job.mesh.sizes, tuple(_sharded_axes(job)))
    mesh = Mesh(new_sizes(asked, found, job.source))
    limits = limits or Limits(max_ranks=65_536)
    require_few_ranks(mesh.num_ranks, limits, job.source)
    layout, changes = _Scaling(job, kinds, mesh).layout()
    nodes = np.array([trace.num_nodes for trace in layout.traces])[layout.class_R].sum()
    require_few_bytes(int(nodes) * NODE_BYTES, limits, job.source)
    return Scaled(layout.workload(), {
        "source": job.source,
        "ranks": {"before": job.mesh.num_ranks, "after": mesh.num_ranks},
        "nodes": {"before": _nodes(job), "after": int(nodes)},
        "classes": [
            {"ranks": len(program.ranks), "nodes": program.num_nodes} for program in job.programs
        ],
        "plan": [
            {"kind": kind, "before": old, "after": new, "sharded": sharded}
            for kind, old, new, sharded in zip(
                kinds, job.mesh.sizes, mesh.sizes, found.sharded, strict=True
            )
        ],
        "changes": changes,
    })  # fmt: skip


def _job(workload: Workload, plan: str | None) -> tuple[Job, tuple[Kind, ...]]:
    """Return the folded job and the kinds of its axes."""
    programs = [Program.of(part.trace, part.ranks) for part in rank_classes(workload)]
    job = Job.of(programs, dict(workload.groups), workload.source)
    return job, stated_kinds(plan, job) if plan else job.kinds


def _nodes(job: Job) -> int:
    return sum(program.num_nodes * len(program.ranks) for program in job.programs)


def _sharded_axes(job: Job) -> list[bool]:
    """Return which axes have gathers or scatters of shards."""
    return [
        any(
            is_sharded(program, job.rows(number, role))
            for role in job.roles if axis in role.full_axes
            for number, program in enumerate(job.programs)
        )
        for axis in range(len(job.mesh.sizes))
    ]  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Scaling:
    """A job, and the mesh on which it is to run.

    Attributes:
        job: As it was.
        kinds: Parallelism of each axis.
        mesh: The new ranks.
    """

    job: Job
    kinds: tuple[Kind, ...]
    mesh: Mesh

    def layout(self) -> tuple[Layout, list[dict[str, Any]]]:
        """Return the programs on the new mesh, and what has changed."""
        traces: list[Trace] = []
        origin: list[int] = []
        changes: list[dict[str, Any]] = []
        of_class: dict[int, int] = {}
        for number, program in enumerate(self.job.programs):
            changed = self._resized(number, program)
            of_class[number] = len(traces)
            traces.append(written(changed, program))
            origin.append(number)
            changes += _told(number, program, changed)
        class_R = np.array([of_class[old] for old in self._old_classes().tolist()], dtype=np.int64)
        return Layout(self.job, self.mesh, tuple(traces), tuple(origin), class_R), changes

    def _old_classes(self) -> np.ndarray:
        """Return the class of the old rank that stands for each new one, int64 (R,)."""
        old_R = np.zeros(self.job.mesh.num_ranks, dtype=np.int64)
        for number, program in enumerate(self.job.programs):
            old_R[list(program.ranks)] = number
        place_RA = self.mesh.place_RA.copy()
        for axis, (old, new) in enumerate(zip(self.job.mesh.sizes, self.mesh.sizes, strict=True)):
            if old != new:
                place_RA[:, axis] = 0
        found: np.ndarray = old_R[self.job.mesh.ranks(place_RA)]
        return found

    def _resized(self, number: int, program: Program) -> Program:
        """Return a program on the new degrees."""
        for role in self.job.roles:
            rows_N = self.job.rows(number, role)
            change = Change(*(self._members(role, mesh) for mesh in (self.job.mesh, self.mesh)))
            if change.old == change.new or not rows_N.any():
                continue
            kinds = {
                self.kinds[axis] for axis in role.full_axes
                if self.job.mesh.sizes[axis] != self.mesh.sizes[axis]
            }  # fmt: skip
            if kinds == {"data"} and is_sharded(program, rows_N):
                program = Resharding(program, rows_N, change).done()
        return program

    def _members(self, role: Any, mesh: Mesh) -> int:
        return int(np.prod([mesh.sizes[axis] for axis in role.full_axes], dtype=np.int64))


def _told(number: int, before: Program, after: Program) -> list[dict[str, Any]]:
    """Return how many operators of a class have other costs or sizes."""
    found = []
    for what, column in (
        ("operations", "ops_N"), ("bytes", "bytes_N"), ("communication", "comm_N"),
    ):  # fmt: skip
        old_N, new_N = getattr(before, column), getattr(after, column)
        changed = int((old_N != new_N).sum()) if len(old_N) == len(new_N) else len(new_N)
        if changed:
            found.append({
                "class": number, "what": what, "nodes": changed,
                "before": int(old_N.sum()), "after": int(new_N.sum()),
            })  # fmt: skip
    return found
