"""Which parallelism each axis of the mesh is, read from the collectives that run along it.

A sum whose result is multiplied by weights again is one of activations: tensor parallelism. A sum
whose result only the optimizer uses is one of gradients: data parallelism, fully sharded if shards
of weights or gradients are gathered and scattered. All-to-all exchanges what experts or tables
need. Ranks that only send each other messages are stages of a pipeline.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, final

import numpy as np

from layerdag.errors import TraceError, UsageError
from layerdag.traces import CollectiveType, NodeType
from layerdag.traces.analysis import WORLD_NAMES
from layerdag.workloads.scaling._mesh import FULL, Extent, Mesh, mesh_of
from layerdag.workloads.scaling._program import Program

Kind = Literal["data", "tensor", "sequence", "expert", "pipeline", "unknown"]
KINDS: tuple[Kind, ...] = ("data", "tensor", "sequence", "expert", "pipeline", "unknown")

_REDUCE = (CollectiveType.ALL_REDUCE, CollectiveType.REDUCE_SCATTER)
_SHARDED = (CollectiveType.ALL_GATHER, CollectiveType.REDUCE_SCATTER)


@dataclass(frozen=True)
class Role:
    """Groups of one shape, in which a class of ranks communicates for one purpose.

    Attributes:
        extents: Of a group along each axis.
        number: Which of several groups of equal ranks.
    """

    extents: tuple[Extent, ...]
    number: int = 0

    @property
    def full_axes(self) -> tuple[int, ...]:
        """Axes that the group spans."""
        return tuple(axis for axis, extent in enumerate(self.extents) if extent == FULL)


@final
@dataclass(frozen=True, eq=False)
class Job:
    """A job as classes of ranks on a mesh.

    Attributes:
        programs: One per class of ranks.
        groups: Ranks of each group by name.
        mesh: The ranks.
        source: For messages.
    """

    programs: tuple[Program, ...]
    groups: dict[str, tuple[int, ...]]
    mesh: Mesh
    source: str

    @classmethod
    def of(
        cls, programs: Sequence[Program], groups: dict[str, tuple[int, ...]], source: str
    ) -> "Job":
        """Find the mesh of a job. Raises TraceError if there is none."""
        num_ranks = sum(len(program.ranks) for program in programs)
        world = {name: tuple(range(num_ranks)) for name in WORLD_NAMES}
        known = {**world, **groups}
        used = {name for program in programs for name in program.group_N if name}
        used |= {""} if any(_in_world(program) for program in programs) else set()
        sets = [known[name] for name in used if name in known]
        strange = sorted(name for name in used if name not in known)
        if strange:
            raise TraceError(
                f"{source}: a collective runs in group '{strange[0]}', which is not among the "
                "job's groups; add the communicator-group file that was written with the traces."
            )
        if any(program.talks for program in programs):  # stages of a pipeline
            sets += [program.ranks for program in programs]
        return cls(tuple(programs), known, mesh_of(num_ranks, sets, source), source)

    @cached_property
    def role_CN(self) -> tuple[tuple[Role | None, ...], ...]:
        """Role of the group of each collective of each class, None for other nodes."""
        return tuple(self._roles(program) for program in self.programs)

    def _roles(self, program: Program) -> tuple[Role | None, ...]:
        joins_N = (program.trace.type_N == NodeType.COMM_COLL).tolist()
        used = dict.fromkeys(g for g, joins in zip(program.group_N, joins_N, strict=True) if joins)
        of_group: dict[str, Role] = {}
        seen: dict[tuple[Extent, ...], int] = {}
        for name in sorted(used, key=lambda text: int(text or 0)):
            extents = self.mesh.extents(self.groups[name])
            if extents is None:
                raise TraceError(
                    f"{self.source}: group '{name}' is no box of the grid of ranks "
                    f"{self.mesh.sizes}, so that its ranks at another size are not determined."
                )
            of_group[name] = Role(extents, seen.get(extents, 0))
            seen[extents] = seen.get(extents, 0) + 1
        pairs = zip(program.group_N, joins_N, strict=True)
        return tuple(of_group[name] if joins else None for name, joins in pairs)

    @cached_property
    def roles(self) -> tuple[Role, ...]:
        """All roles, in order of first use."""
        found = (role for roles in self.role_CN for role in roles if role is not None)
        return tuple(dict.fromkeys(found))

    def rows(self, number: int, role: Role) -> np.ndarray:
        """Return which nodes of class ``number`` are collectives of a role, bool (N,)."""
        return np.array([found == role for found in self.role_CN[number]], dtype=bool)

    @cached_property
    def kinds(self) -> tuple[Kind, ...]:
        """Parallelism of each axis, by the most special role that spans it."""
        return tuple(self._kind(axis) for axis in range(len(self.mesh.sizes)))

    def _kind(self, axis: int) -> Kind:
        spanning = [role for role in self.roles if axis in role.full_axes]
        if self._talk_along(axis):
            return "pipeline"
        if not spanning:
            return "unknown"
        fewest = min(len(role.full_axes) for role in spanning)
        found = {self._kind_of(role) for role in spanning if len(role.full_axes) == fewest}
        return next(kind for kind in ("expert", "tensor", "sequence", "data", "unknown")
                    if kind in found)  # fmt: skip

    def _kind_of(self, role: Role) -> Kind:
        """Return what the collectives of a role say."""
        found: set[Kind] = set()
        for number, program in enumerate(self.programs):
            rows_N = self.rows(number, role)
            if rows_N.any():
                found.add(_purpose(program, rows_N))
        order: tuple[Kind, ...] = ("expert", "sequence", "tensor", "data")
        return next((kind for kind in order if kind in found), "unknown")

    def _talk_along(self, axis: int) -> bool:
        """Return whether messages go along an axis."""
        for program in self.programs:
            for name in ("comm_dst", "comm_src"):
                peer_N, told_N = program.trace.integers(name)
                position_KA = self.mesh.coordinates(peer_N[told_N])
                own_A = self.mesh.coordinates(np.array(program.ranks[:1]))[0]
                if (position_KA[:, axis] != own_A[axis]).any():
                    return True
        return False


def _in_world(program: Program) -> bool:
    """Return whether some collective names no group: it runs in that of all ranks."""
    joins_N = program.trace.type_N == NodeType.COMM_COLL
    pairs = zip(program.group_N, joins_N.tolist(), strict=True)
    return any(joins and not group for group, joins in pairs)


def _purpose(program: Program, rows_N: np.ndarray) -> Kind:
    """Return what the collectives at some rows of a program are for."""
    kinds = set(program.collective_N[rows_N].tolist())
    if CollectiveType.ALL_TO_ALL in kinds:
        return "expert"
    reduces_N = rows_N & np.isin(program.collective_N, _REDUCE)
    useful_N = program.ancestors(program.matrix_N)  # what some product of matrices depends on
    if (reduces_N & useful_N).any():
        scatters = CollectiveType.REDUCE_SCATTER in program.collective_N[reduces_N & useful_N]
        return "sequence" if scatters else "tensor"
    if reduces_N.any():
        return "data"
    gathers_N = rows_N & (program.collective_N == CollectiveType.ALL_GATHER)
    made_N = program.descendants(program.matrix_N)  # activations
    if gathers_N.any():
        return "sequence" if (gathers_N & made_N).any() else "data"
    return "unknown"


def is_sharded(program: Program, rows_N: np.ndarray) -> bool:
    """Return whether the collectives at some rows gather or scatter shards."""
    return bool(np.isin(program.collective_N[rows_N], _SHARDED).any())


def stated_kinds(text: str, job: Job) -> tuple[Kind, ...]:
    """Return the kinds that a user states, "tensor,data", the axis of neighboring ranks first.

    Raises:
        UsageError: If a word is unknown, or there are more or fewer axes.
    """
    parts = tuple(part.strip() for part in text.split(","))
    found = ", ".join(f"{kind} x {size}" for kind, size in zip(
        job.kinds, job.mesh.sizes, strict=True))  # fmt: skip
    for part in parts:
        if part not in KINDS[:-1]:
            raise UsageError(f"--plan: '{part}' is unknown; known are {', '.join(KINDS[:-1])}.")
    if len(parts) != len(job.mesh.sizes):
        raise UsageError(
            f"--plan names {len(parts)} kinds of parallelism, but {job.source} has "
            f"{len(job.mesh.sizes)} axes ({found or 'one rank'}); name one for each, that of "
            "neighboring ranks first."
        )
    return tuple(kind for part in parts for kind in KINDS if kind == part)
