"""``ld.scale``: a recorded job on other ranks or with other layers."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from math import prod
from pathlib import Path
from typing import Any, final

import numpy as np

from layerdag.codec.folding import rank_classes
from layerdag.codec.formats import read_any
from layerdag.errors import TraceError, UsageError
from layerdag.runtime.reading import Limits, require_few_bytes, require_few_ranks
from layerdag.runtime.settings import did_you_mean
from layerdag.traces.trace import Trace, Workload
from layerdag.workloads.scaling.layers import with_layers
from layerdag.workloads.scaling.program import (
    EditableProgram,
    Job,
    Kind,
    Mesh,
    RankLayout,
    Role,
    is_sharded,
    stated_kinds,
    written,
)
from layerdag.workloads.scaling.sharded import Resharding, ShardCountChange
from layerdag.workloads.scaling.tensor import TensorSplit

_FLAGS: tuple[Kind, ...] = ("data", "tensor")


@dataclass(frozen=True)
class Degrees:
    """Degrees that were asked for, None where nothing was said.

    Attributes:
        ranks: All ranks.
        data: Data-parallel degree.
        tensor: Tensor-parallel degree.
        layers: Layers of the model, those of all pipeline stages together.
        layers_now: Layers that the trace has, where several numbers of blocks repeat.
    """

    ranks: int | None = None
    data: int | None = None
    tensor: int | None = None
    layers: int | None = None
    layers_now: int | None = None

    @classmethod
    def from_values(cls, values: Mapping[str, int | None]) -> "Degrees":
        """Return what was asked for.

        Raises:
            UsageError: If a word is unknown, a number is below 1, or nothing is asked for.
        """
        known = [field.name for field in fields(cls)]
        for name, value in values.items():
            if name not in known:
                raise UsageError(
                    f"scale() has no setting '{name}'.{did_you_mean(name, known)} Known: "
                    f"{', '.join(known)}, plan, limits."
                )
            if value is not None and (type(value) is not int or value < 1):
                raise UsageError(f"{name} is {value!r}; it must be a whole number, at least 1.")
        wanted = [name for name in known if name != "layers_now"]
        if all(values.get(name) is None for name in wanted):
            raise UsageError(f"Say what should change: {', '.join(wanted)}.")
        return cls(**values)


@dataclass(frozen=True)
class DetectedDegrees:
    """The parallelism of a trace.

    Attributes:
        kinds: Of each axis, that of neighboring ranks first.
        sizes: Ranks along each axis.
        sharded: Whether weights or optimizer states are sharded along it.
    """

    kinds: tuple[Kind, ...]
    sizes: tuple[int, ...]
    sharded: tuple[bool, ...]

    def axis(self, kind: Kind) -> int | None:
        """Return the only axis of a kind, None if there is none."""
        axes = [axis for axis, found in enumerate(self.kinds) if found == kind]
        return axes[0] if len(axes) == 1 else None

    def __str__(self) -> str:
        """Return the axes in words."""
        pairs = zip(self.kinds, self.sizes, strict=True)
        return ", ".join(f"{kind} x {size}" for kind, size in pairs) or "one rank"


def new_sizes(asked: Degrees, found: DetectedDegrees, source: str) -> tuple[int, ...]:
    """Return the ranks along each axis after a change.

    Raises:
        UsageError: If the trace has no axis of this kind, or numbers do not fit together.
    """
    sizes = list(found.sizes)
    given = {kind: getattr(asked, kind) for kind in _FLAGS if getattr(asked, kind) is not None}
    for kind, degree in given.items():
        axis = found.axis(kind)
        if axis is None:
            if degree == 1 and kind not in found.kinds:
                continue
            raise UsageError(_no_axis(kind, found, source))
        sizes[axis] = degree
    if asked.ranks is None or prod(sizes) == asked.ranks:
        return tuple(sizes)
    axis = _free_axis(given, found, source)
    others = prod(sizes) // sizes[axis]
    if asked.ranks % others:
        raise UsageError(
            f"{source}: {asked.ranks} ranks are no multiple of the {others} ranks along the other "
            f"axes ({found}); ask for a multiple, or change another degree, too."
        )
    sizes[axis] = asked.ranks // others
    return tuple(sizes)


def _free_axis(given: dict[Kind, int], found: DetectedDegrees, source: str) -> int:
    free = [axis for axis, kind in enumerate(found.kinds) if kind in _FLAGS and kind not in given]
    data = [axis for axis in free if found.kinds[axis] == "data"]
    if len(data) == 1:
        return data[0]
    if len(free) == 1:
        return free[0]
    if not found.kinds:
        raise UsageError(f"{source}: {_ALONE}.")
    raise UsageError(
        f"{source}: --ranks does not say which degree changes: found {found}. "
        + ("Give --data or --tensor." if free else _NONE_FREE)
    )


_NONE_FREE = (
    "None of these can grow by a rule; a trace that has data parallelism on two ranks can. "
    "'--plan data' states what the axis is where the trace does not tell."
)
_ALONE = (
    "a trace of one rank does not tell what ranks exchange. Collect the job on two ranks "
    "('layerdag collect --nproc 2'), which can grow, or make it on any number of ranks with "
    "'layerdag capture' or 'layerdag workload' and --data"
)


def _no_axis(kind: Kind, found: DetectedDegrees, source: str) -> str:
    if kind in found.kinds:
        return (
            f"{source}: has several axes of {kind} parallelism ({found}); --{kind} does not say "
            "which one changes. Give --plan with the kind of each axis."
        )
    if not found.kinds:
        return f"{source}: {_ALONE}."
    return (
        f"{source}: has no {kind} parallelism (found {found}), so that its trace does not tell "
        f"what {kind} ranks exchange; start from a trace of at least two {kind} ranks, or state "
        "with --plan what the axes are."
    )


NODE_BYTES = 135  # measured on jobs of the corpus
_RULES = ("data", "tensor")


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

    def __repr__(self) -> str:
        """Return the sizes before and after."""
        ranks, nodes = self.found["ranks"], self.found["nodes"]
        return (
            f"Scaled({ranks['before']:,} to {ranks['after']:,} ranks, {nodes['before']:,} to "
            f"{nodes['after']:,} nodes)"
        )


def scale(
    trace: Workload | str | Path,
    *,
    plan: str | None = None,
    limits: Limits | None = None,
    **degrees: int | None,
) -> Scaled:
    """Return a job on other ranks or with other layers, by rules; each rank keeps its batch.

    Args:
        trace: A workload, or anything that ``layerdag.read`` reads traces from.
        plan: Kinds of parallelism, "tensor,data", that of neighboring ranks first, where the trace
            does not tell them.
        limits: The most ranks and bytes that may come out.
        **degrees: Fields of ``Degrees``: ``ranks``, ``data``, ``tensor``, ``layers``,
            ``layers_now``.

    Returns:
        The workload with what was found.

    Raises:
        UsageError: If the trace does not have what should change; says what was found.
        TraceError: If the trace is damaged, or does not determine the result.
    """
    workload = trace if isinstance(trace, Workload) else read_any(trace)
    asked = Degrees.from_values(degrees)
    before, kinds = _job(workload, plan)
    job, layers = before, dict[str, Any]()
    if asked.layers is not None:
        job, layers = with_layers(before, kinds, asked.layers, asked.layers_now)
    found = DetectedDegrees(kinds, job.mesh.sizes, tuple(_sharded_axes(job)))
    mesh = Mesh(new_sizes(asked, found, job.source))
    _require_rules(found, mesh, job.source)
    _require_whole_groups(job, mesh)
    limits = limits or Limits(max_ranks=65_536)
    require_few_ranks(mesh.num_ranks, limits, job.source)
    layout, changes = _Scaling(job, kinds, mesh).layout()
    nodes = np.array([trace.num_nodes for trace in layout.traces])[layout.class_R].sum()
    require_few_bytes(int(nodes) * NODE_BYTES, limits, job.source)
    return Scaled(layout.workload(), {
        "source": job.source,
        "ranks": {"before": job.mesh.num_ranks, "after": mesh.num_ranks},
        "nodes": {"before": _nodes(before), "after": int(nodes)},
        "classes": [
            {"ranks": len(program.ranks), "nodes": program.num_nodes} for program in before.programs
        ],
        "plan": [
            {"kind": kind, "before": old, "after": new, "sharded": sharded}
            for kind, old, new, sharded in zip(
                kinds, job.mesh.sizes, mesh.sizes, found.sharded, strict=True
            )
        ],
        "layers": layers,
        "changes": changes,
        "notes": _notes(found, mesh, changes, before),
    })  # fmt: skip


def _job(workload: Workload, plan: str | None) -> tuple[Job, tuple[Kind, ...]]:
    programs = [
        EditableProgram.from_trace(part.trace, part.ranks) for part in rank_classes(workload)
    ]
    job = Job.from_programs(programs, dict(workload.groups), workload.source)
    return job, stated_kinds(plan, job) if plan else job.kinds


def _notes(
    found: DetectedDegrees, mesh: Mesh, changes: Sequence[Mapping[str, Any]], before: Job
) -> list[str]:
    notes = []
    alike = any(len(program.ranks) > 1 for program in before.programs)
    if alike and found.sizes != mesh.sizes:
        firsts = ", ".join(str(program.ranks[0]) for program in before.programs[:4])
        more = ", ..." if len(before.programs) > 4 else ""
        notes.append(
            f"All ranks have the times of the first rank of their class ({firsts}{more}); slower "
            "ranks of the trace are not kept."
        )
    if changes:
        notes.append("Durations of operators whose cost changed were scaled with it.")
    if found.sizes != mesh.sizes:
        notes.append(
            "Measured times of collectives whose ranks or sizes changed were dropped; a simulator "
            "computes them."
        )
    if any(
        kind == "data" and old != new
        for kind, old, new in zip(found.kinds, found.sizes, mesh.sizes, strict=True)
    ):
        notes.append("Each rank keeps its batch: the batch of all ranks grows with their number.")
    return notes


def _nodes(job: Job) -> int:
    return sum(program.num_nodes * len(program.ranks) for program in job.programs)


def _sharded_axes(job: Job) -> list[bool]:
    return [
        any(
            is_sharded(program, job.rows(number, role))
            for role in job.roles if axis in role.full_axes
            for number, program in enumerate(job.programs)
        )
        for axis in range(len(job.mesh.sizes))
    ]  # fmt: skip


def _require_rules(found: DetectedDegrees, mesh: Mesh, source: str) -> None:
    for kind, old, new in zip(found.kinds, found.sizes, mesh.sizes, strict=True):
        if old != new and kind not in _RULES:
            raise UsageError(
                f"{source}: the {kind} degree cannot change from {old} to {new}: a trace does not "
                f"tell what other {kind} ranks do. Found {found}; leave it at {old}."
            )


def _require_whole_groups(job: Job, mesh: Mesh) -> None:
    for role in job.roles:
        for extent, old, new in zip(role.extents, job.mesh.sizes, mesh.sizes, strict=True):
            if old != new and not isinstance(extent, str):
                raise TraceError(
                    f"{job.source}: a group joins places {list(extent)[:8]} of {old} along an axis "
                    "whose size changes; which ones it would join is not determined. Leave this "
                    "degree as it is."
                )


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

    def layout(self) -> tuple[RankLayout, list[dict[str, Any]]]:
        """Return the programs on the new mesh, and what has changed."""
        traces: list[Trace] = []
        origin: list[int] = []
        changes: list[dict[str, Any]] = []
        old_R = self._old_classes()
        class_R = np.zeros(len(old_R), dtype=np.int64)
        for number, program in enumerate(self.job.programs):
            for changed, of_variant_R in self._variants(number, program):
                class_R[(old_R == number) & of_variant_R] = len(traces)
                traces.append(written(changed, program, self._regrouped(number)))
                origin.append(number)
                changes += _told(number, program, changed)
        return RankLayout(self.job, self.mesh, tuple(traces), tuple(origin), class_R), changes

    def _variants(
        self, number: int, program: EditableProgram
    ) -> Iterator[tuple[EditableProgram, np.ndarray]]:
        program = self._split(number, program)
        changes = self._changes(number, program)
        everywhere_R = np.ones(self.mesh.num_ranks, dtype=bool)
        if all(change.old == change.new for _, change in changes):
            yield program, everywhere_R
            return
        axis = self.kinds.index("data")
        members = range(self.mesh.sizes[axis])
        ends = [Resharding(program, changes, member).held() for member in (members[0], members[-1])]
        of_held: dict[tuple[int, ...], list[int]] = {}
        for member in members if ends[0] != ends[1] else members[:1]:  # the last one holds least
            of_held.setdefault(Resharding(program, changes, member).held(), []).append(member)
        for alike in of_held.values():
            ranks_R = np.isin(self.mesh.position_RA[:, axis], alike)
            ranks_R = ranks_R if len(of_held) > 1 else everywhere_R
            yield Resharding(program, changes, alike[0]).done(), ranks_R

    def _old_classes(self) -> np.ndarray:
        """Return the class of the old rank that stands for each new one, int64 (R,)."""
        old_R = np.zeros(self.job.mesh.num_ranks, dtype=np.int64)
        for number, program in enumerate(self.job.programs):
            old_R[list(program.ranks)] = number
        position_RA = self.mesh.position_RA.copy()
        for axis, (old, new) in enumerate(zip(self.job.mesh.sizes, self.mesh.sizes, strict=True)):
            if old != new:
                position_RA[:, axis] = 0
        found: np.ndarray = old_R[self.job.mesh.ranks(position_RA)]
        return found

    def _split(self, number: int, program: EditableProgram) -> EditableProgram:
        moved = [
            axis for axis, kind in enumerate(self.kinds)
            if kind == "tensor" and self.job.mesh.sizes[axis] != self.mesh.sizes[axis]
        ]  # fmt: skip
        if not moved:
            return program
        axis = moved[0]
        of_tensor = [role for role in self.job.roles if role.full_axes == (axis,)]
        rows_N = np.any([self.job.rows(number, role) for role in of_tensor], axis=0)
        change = ShardCountChange(self.job.mesh.sizes[axis], self.mesh.sizes[axis])
        return TensorSplit(program, rows_N, change).done()

    def _changes(
        self, number: int, program: EditableProgram
    ) -> list[tuple[np.ndarray, ShardCountChange]]:
        found = []
        for role in self.job.roles:
            rows_N = self.job.rows(number, role)
            if any(self.kinds[axis] == "data" for axis in role.full_axes) and is_sharded(
                program, rows_N
            ):
                sizes = (self._members(role, mesh) for mesh in (self.job.mesh, self.mesh))
                found.append((rows_N, ShardCountChange(*sizes)))
        return found

    def _regrouped(self, number: int) -> np.ndarray:
        roles = self.job.role_CN[number]
        other = {
            role: self._members(role, self.mesh) != self._members(role, self.job.mesh)
            for role in self.job.roles
        }
        return np.array([role is not None and other[role] for role in roles], dtype=bool)

    def _members(self, role: Role, mesh: Mesh) -> int:
        return int(np.prod([mesh.sizes[axis] for axis in role.full_axes], dtype=np.int64))


def _told(number: int, before: EditableProgram, after: EditableProgram) -> list[dict[str, Any]]:
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
