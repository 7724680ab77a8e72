"""A recorded program whose numbers can be changed, its device mesh and the roles of its axes.

Which parallelism each axis of the mesh is, read from the collectives that run along it.

A sum whose result is multiplied by weights again is one of activations: tensor parallelism. A sum
whose result only the optimizer uses is one of gradients: data parallelism, fully sharded if shards
of weights or gradients are gathered and scattered. All-to-all exchanges what experts or tables
need. Ranks that only send each other messages are stages of a pipeline.
"""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, final

import numpy as np

from layerdag.codec.placement import RankTraces
from layerdag.errors import TraceError, UsageError
from layerdag.simulator.compute import item_bytes
from layerdag.traces.analysis import WORLD_NAMES, group_names
from layerdag.traces.chakra.files import normalize
from layerdag.traces.operator_kinds import MATRIX, OperatorKind, operator_kinds
from layerdag.traces.trace import DATA, CollectiveType, NodeType, Trace, Workload, dependency_edges

FULL, OWN = "full", "own"
Extent = str | tuple[int, ...]
"""Of a group along an axis: all of it, the rank's own place, or these places."""


@final
@dataclass(frozen=True)
class Mesh:
    """Ranks in mixed-radix order.

    Attributes:
        sizes: Ranks along each axis, the axis on which neighbors differ first.
    """

    sizes: tuple[int, ...]

    @cached_property
    def num_ranks(self) -> int:
        """Number of ranks."""
        # Of what a user asks for, which may be more than 64 bits hold.
        return math.prod(map(int, self.sizes))

    @cached_property
    def position_RA(self) -> np.ndarray:
        """Place of each rank on each axis, int64 (R, A)."""
        return self.coordinates(np.arange(self.num_ranks))

    def coordinates(self, rank_K: np.ndarray) -> np.ndarray:
        """Return the places of some ranks on each axis, int64 (K, A)."""
        if not self.sizes:
            return np.zeros((len(rank_K), 0), dtype=np.int64)
        return np.stack(np.unravel_index(rank_K, self.sizes, order="F"), axis=1)

    def ranks(self, position_KA: np.ndarray) -> np.ndarray:
        """Return the ranks at some places, int64 (K,)."""
        if not self.sizes:
            return np.zeros(len(position_KA), dtype=np.int64)
        return np.asarray(np.ravel_multi_index(tuple(position_KA.T), self.sizes, order="F"))

    def extents(self, ranks: Sequence[int]) -> tuple[Extent, ...] | None:
        """Return what a group is along each axis, None if it is no box of the mesh."""
        position_MA = self.coordinates(np.array(sorted(ranks)))
        along = [tuple(sorted(set(position_M.tolist()))) for position_M in position_MA.T]
        if np.prod([len(coordinates) for coordinates in along], dtype=np.int64) != len(ranks):
            return None
        return tuple(
            FULL if len(coordinates) == size else OWN if len(coordinates) == 1 else coordinates
            for coordinates, size in zip(along, self.sizes, strict=True)
        )

    def groups(self, extents: Sequence[Extent]) -> np.ndarray:
        """Return all groups of these extents, int64 (G, members), by their first ranks."""
        if not self.sizes:
            return np.zeros((1, 1), dtype=np.int64)
        own = [axis for axis, extent in enumerate(extents) if extent == OWN]
        inner: dict[int, Iterable[int]] = {}
        for axis, extent in enumerate(extents):
            if axis not in own:
                inner[axis] = range(self.sizes[axis]) if isinstance(extent, str) else extent
        inner_MA = self._boxes(inner)
        outer_GA = self._boxes({axis: range(self.sizes[axis]) for axis in own})
        position_GMA = outer_GA[:, None] + inner_MA[None]
        rank_GM = self.ranks(position_GMA.reshape(-1, len(self.sizes)))
        rank_GM = np.sort(rank_GM.reshape(len(outer_GA), len(inner_MA)), axis=1)
        return rank_GM[np.argsort(rank_GM[:, 0])]

    def _boxes(self, along: Mapping[int, Iterable[int]]) -> np.ndarray:
        """Return all places with these coordinates, and 0 on the other axes, int64 (K, A)."""
        lists = [np.array([*along.get(axis, (0,))]) for axis in range(len(self.sizes))]
        return np.stack([g.reshape(-1) for g in np.meshgrid(*lists, indexing="ij")], axis=1)


def mesh_of(num_ranks: int, groups: Iterable[Sequence[int]], source: str) -> Mesh:
    """Return the coarsest mesh in which sets of ranks are boxes.

    Args:
        num_ranks: Ranks of the job.
        groups: Communicator groups and classes of ranks; those that are no boxes with steps that
            divide the number of ranks are left out here.
        source: For messages.

    Raises:
        TraceError: If the groups do not share a mesh.
    """
    cuts = {1, num_ranks}
    for ranks in {tuple(sorted(group)) for group in groups}:
        for step, count in _steps(ranks):
            if num_ranks % (step * count) == 0:
                cuts |= {step, step * count}
    ordered = sorted(cuts)
    for below, above in itertools.pairwise(ordered):
        if above % below:
            raise TraceError(
                f"{source}: the communicator groups do not form a grid of ranks (one has steps of "
                f"{below}, another of {above}), so that no degree of parallelism can be read."
            )
    return Mesh(tuple(above // below for below, above in itertools.pairwise(ordered)))


def _steps(ranks: Sequence[int]) -> list[tuple[int, int]]:
    found, left = [], np.array(ranks)
    while left.size > 1:
        step = int(left[1] - left[0])
        count = 1
        while count < left.size and left[count] - left[0] == step * count:
            count += 1
        if left.size % count:
            return []
        rows = left.reshape(-1, count)
        if (rows - rows[:, :1] != rows[0] - rows[0, 0]).any():
            return []
        found.append((step, count))
        left = rows[:, 0]
    return found


_INTENSE = 4  # operations for each byte that only products of matrices have


@dataclass(frozen=True, eq=False)
class EditableProgram:
    """What all ranks of a class run.

    Attributes:
        trace: Of the first rank, as Chakra's readers take it.
        ranks: All ranks of the class, ascending.
        ops_N: Floating-point operations, 0 where absent, int64 (N,).
        bytes_N: Bytes read and written.
        comm_N: Bytes of a message or collective.
    """

    trace: Trace
    ranks: tuple[int, ...]
    ops_N: np.ndarray
    bytes_N: np.ndarray
    comm_N: np.ndarray

    @classmethod
    def from_trace(cls, trace: Trace, ranks: Sequence[int]) -> "EditableProgram":
        """Return the program of a trace. Raises TraceError if consumers could not read it."""
        trace = normalize(trace)
        numbers = (trace.integers(name)[0] for name in _NUMBERS)
        return cls(trace, tuple(ranks), *numbers)

    @property
    def num_nodes(self) -> int:
        """Number of nodes (N)."""
        return self.trace.num_nodes

    @cached_property
    def names(self) -> list[str]:
        """Name of each node."""
        return self.trace.names()

    @cached_property
    def group_N(self) -> list[str]:
        """Group of each collective, "" elsewhere."""
        found, _ = group_names(self.trace)
        kinds = (self.trace.type_N == NodeType.COMM_COLL).tolist()
        return [group if joins else "" for group, joins in zip(found, kinds, strict=True)]

    @cached_property
    def collective_N(self) -> np.ndarray:
        """``CollectiveType`` of each collective, INVALID elsewhere, int64 (N,)."""
        kind_N, _ = self.trace.integers("comm_type", int(CollectiveType.INVALID))
        joins_N = self.trace.type_N == NodeType.COMM_COLL
        return np.where(joins_N, kind_N, int(CollectiveType.INVALID))

    @cached_property
    def item_N(self) -> np.ndarray:
        """Bytes of an element of each node by its stated format, int64 (N,).

        Raises:
            TraceError: If a format is not known.
        """
        names = self.trace.dtypes()
        known = {name: item_bytes(name) for name in dict.fromkeys(names)}
        unknown = [name for name, size in known.items() if size is None]
        if unknown:
            raise TraceError(
                f"{self.trace.source}: the number format '{unknown[0]}' of its nodes is not known, "
                "and so the size of shards is not; write it as PyTorch does, such as bfloat16."
            )
        return np.array([known[name] for name in names], dtype=np.int64)

    @cached_property
    def data_edges_2E(self) -> np.ndarray:
        """Data dependencies as rows, int64 (2, E)."""
        edges_2E, kind_E = dependency_edges(self.trace)
        return edges_2E[:, kind_E == DATA]

    @cached_property
    def computes_N(self) -> np.ndarray:
        """Which nodes are operators, bool (N,)."""
        return self.trace.type_N == NodeType.COMP

    @cached_property
    def matrix_N(self) -> np.ndarray:
        """Which operators are products of matrices, by kind or by operations per byte."""
        known_N = np.isin(np.array(self.kinds, dtype=object), MATRIX)
        intense_N = (self.bytes_N > 0) & (self.ops_N > _INTENSE * self.bytes_N)
        return self.computes_N & (known_N | intense_N)

    @cached_property
    def kinds(self) -> list[OperatorKind | None]:
        """What each node does, where that is known."""
        return operator_kinds(self.trace)

    @property
    def talks(self) -> bool:
        """Whether the program sends or receives messages."""
        kinds = (NodeType.COMM_SEND, NodeType.COMM_RECV)
        return bool(np.isin(self.trace.type_N, kinds).any())

    def descendants(self, from_N: np.ndarray) -> np.ndarray:
        """Return which nodes depend on the given ones by data, bool (N,)."""
        return _reached(self.data_edges_2E, from_N)

    def ancestors(self, to_N: np.ndarray) -> np.ndarray:
        """Return which nodes the given ones depend on by data, bool (N,)."""
        return _reached(self.data_edges_2E[::-1], to_N)

    def parents(self, row: int) -> list[int]:
        """Return the rows on which a node depends by data."""
        source_E, target_E = self.data_edges_2E
        found: list[int] = source_E[target_E == row].tolist()
        return found

    def children(self, row: int) -> list[int]:
        """Return the rows that depend on a node by data."""
        source_E, target_E = self.data_edges_2E
        found: list[int] = target_E[source_E == row].tolist()
        return found


_NUMBERS = {"num_ops": "ops_N", "tensor_size": "bytes_N", "comm_size": "comm_N"}


def _reached(edges_2E: np.ndarray, from_N: np.ndarray) -> np.ndarray:
    from scipy.sparse import csr_array

    size = len(from_N)
    ones_E = np.ones(edges_2E.shape[1], dtype=np.int32)
    step_NN = csr_array((ones_E, (edges_2E[1], edges_2E[0])), shape=(size, size))
    reached_N = np.zeros(size, dtype=bool)
    front_N = from_N
    while front_N.any():
        front_N = ((step_NN @ front_N.astype(np.int32)) > 0) & ~reached_N
        reached_N |= front_N
    return reached_N


def written(program: EditableProgram, before: EditableProgram, regrouped_N: np.ndarray) -> Trace:
    """Return the trace of a program whose numbers a rule has changed.

    Durations of operators follow their costs: the larger of the ratios of operations and bytes.
    Measured times of collectives on other ranks or of other sizes are dropped, and so are the
    shapes of changed operators.

    Args:
        program: With new numbers.
        before: The same nodes as they were.
        regrouped_N: Collectives of groups that have other members, bool (N,).
    """
    changed_N = program.ops_N != before.ops_N
    changed_N |= (program.bytes_N != before.bytes_N) | (program.comm_N != before.comm_N)
    stale_N = regrouped_N | (changed_N & ~program.computes_N)
    if not (changed_N | stale_N).any():
        return program.trace
    trace = program.trace
    values = {name: getattr(program, column) for name, column in _NUMBERS.items()}
    ratio_N = np.maximum(
        _ratio(program.ops_N, before.ops_N), _ratio(program.bytes_N, before.bytes_N)
    )
    ratio_N = np.where((before.ops_N > 0) | (before.bytes_N > 0), ratio_N, 1.0)
    ratio_N = np.where(program.computes_N & changed_N, ratio_N, np.where(stale_N, 0.0, 1.0))
    nanoseconds_N, _ = trace.integers("duration_ns")
    values["duration_ns"] = np.rint(nanoseconds_N * ratio_N).astype(np.int64)
    io_N6 = np.where(changed_N[:, None], np.int32(-1), trace.io_N6)
    duration_N = np.rint(trace.duration_us_N * ratio_N).astype(np.uint64)
    return replace(with_words(trace, values), duration_us_N=duration_N, io_N6=io_N6)


def numbers_written(program: EditableProgram) -> Trace:
    """Return the trace of a program with its operations, bytes and messages as they are now."""
    values = {name: getattr(program, column) for name, column in _NUMBERS.items()}
    return with_words(program.trace, values)


def _ratio(after_N: np.ndarray, before_N: np.ndarray) -> np.ndarray:
    """Return by what numbers grew, 0 where there was none."""
    return np.divide(after_N, before_N, out=np.zeros(len(after_N)), where=before_N > 0)


def with_words(trace: Trace, value_N: Mapping[str, np.ndarray]) -> Trace:
    """Return the trace with other values of integer attributes, where nodes have them."""
    table = trace.attributes
    word_A = table.word_A.copy()
    node_A = np.repeat(np.arange(trace.num_nodes), np.diff(table.ptr_N1))
    for name, values in value_N.items():
        if name in trace.strings:
            of_name_A = table.name_A == trace.strings.index(name)
            word_A[of_name_A] = values[node_A[of_name_A]].astype(np.int64).view(np.uint64)
    return replace(trace, attributes=replace(table, word_A=word_A))


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

    programs: tuple[EditableProgram, ...]
    groups: dict[str, tuple[int, ...]]
    mesh: Mesh
    source: str

    @classmethod
    def from_programs(
        cls, programs: Sequence[EditableProgram], groups: dict[str, tuple[int, ...]], source: str
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

    def _roles(self, program: EditableProgram) -> tuple[Role | None, ...]:
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
        found: set[Kind] = set()
        for number, program in enumerate(self.programs):
            rows_N = self.rows(number, role)
            if rows_N.any():
                found.add(_purpose(program, rows_N))
        order: tuple[Kind, ...] = ("expert", "sequence", "tensor", "data")
        return next((kind for kind in order if kind in found), "unknown")

    def _talk_along(self, axis: int) -> bool:
        for program in self.programs:
            for name in ("comm_dst", "comm_src"):
                peer_N, told_N = program.trace.integers(name)
                position_KA = self.mesh.coordinates(peer_N[told_N])
                own_A = self.mesh.coordinates(np.array(program.ranks[:1]))[0]
                if (position_KA[:, axis] != own_A[axis]).any():
                    return True
        return False


def _in_world(program: EditableProgram) -> bool:
    joins_N = program.trace.type_N == NodeType.COMM_COLL
    pairs = zip(program.group_N, joins_N.tolist(), strict=True)
    return any(joins and not group for group, joins in pairs)


def _purpose(program: EditableProgram, rows_N: np.ndarray) -> Kind:
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


def is_sharded(program: EditableProgram, rows_N: np.ndarray) -> bool:
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
    if not job.mesh.sizes:
        raise UsageError(
            f"--plan: {job.source} has one rank, and so no axis of ranks to name; leave it out."
        )
    if len(parts) != len(job.mesh.sizes):
        raise UsageError(
            f"--plan names '{text}', but {job.source} has these axes of ranks: {found}; name one "
            "kind for each, that of neighboring ranks first."
        )
    return tuple(kind for part in parts for kind in KINDS if kind == part)


@dataclass(frozen=True, eq=False)
class RankLayout:
    """Where the classes of a job run after its degrees have changed.

    Attributes:
        job: As it was, with its groups and mesh.
        mesh: The new ranks; axes in the same order.
        traces: The program of each new class, with the groups and peers of the old job.
        origin: Class of the old job of each new class.
        class_R: New class of each new rank.
    """

    job: Job
    mesh: Mesh
    traces: tuple[Trace, ...]
    origin: tuple[int, ...]
    class_R: np.ndarray

    def workload(self) -> Workload:
        """Return the traces of all ranks; each is made when it is asked for."""
        texts = {role: f"role {number}" for number, role in enumerate(self.job.roles)}
        steps: dict[tuple[int, ...], int] = {}
        programs = [
            self._with_peers(self._with_roles(trace, old, texts), old, steps)
            for trace, old in zip(self.traces, self.origin, strict=True)
        ]
        used = {text for trace in programs for text in trace.strings}
        members = {
            text: self.mesh.groups(role.extents) for role, text in texts.items() if text in used
        }
        peers = [self._peers(step) for step in steps]
        traces = RankTraces(programs, self.class_R, members, peers, self._numbers(texts))
        return Workload(traces, traces.groups, self.job.source)

    def _numbers(self, texts: dict[Role, str]) -> dict[str, int]:
        """Return 0 for the group of all ranks, if it had this name."""
        found = {}
        for program, roles in zip(self.job.programs, self.job.role_CN, strict=True):
            for group, role in zip(program.group_N, roles, strict=True):
                if role is not None and group in WORLD_NAMES and group:
                    found[texts[role]] = int(group)
        return found

    def _with_roles(self, trace: Trace, old: int, texts: dict[Role, str]) -> Trace:
        pairs = zip(self.job.programs[old].group_N, self.job.role_CN[old], strict=True)
        role_of = {group: role for group, role in pairs if role is not None}
        table = trace.attributes
        named_A = [trace.strings[name] == "pg_name" for name in table.name_A.tolist()]
        strings, word_A = list(trace.strings), table.word_A.copy()
        index_of: dict[Role, int] = {}
        for row in np.flatnonzero(named_A).tolist():
            role = role_of.get(trace.strings[int(word_A[row])])
            if role is not None:
                if role not in index_of:
                    index_of[role] = len(strings)
                    strings.append(texts[role])
                word_A[row] = index_of[role]
        return replace(trace, strings=tuple(strings), attributes=replace(table, word_A=word_A))

    def _with_peers(self, trace: Trace, old: int, steps: dict[tuple[int, ...], int]) -> Trace:
        table = trace.attributes
        named = [trace.strings.index(n) for n in ("comm_dst", "comm_src") if n in trace.strings]
        row_M = np.flatnonzero(np.isin(table.name_A, named))
        if not row_M.size:
            return trace
        mesh = self.job.mesh
        own_A = mesh.coordinates(np.array(self.job.programs[old].ranks[:1]))[0]
        step_MA = mesh.coordinates(table.word_A[row_M].astype(np.int64)) - own_A
        moved = [
            axis for axis in range(len(mesh.sizes)) if mesh.sizes[axis] != self.mesh.sizes[axis]
        ]
        if step_MA[:, moved].any():
            raise TraceError(
                f"{trace.source}: messages go along an axis whose size changes; what a longer "
                "chain of ranks sends is not determined. Leave this degree as it is."
            )
        word_A = table.word_A.copy()
        word_A[row_M] = [steps.setdefault(tuple(step), len(steps)) for step in step_MA.tolist()]
        return replace(trace, attributes=replace(table, word_A=word_A))

    def _peers(self, step: Sequence[int]) -> np.ndarray:
        """Return the rank one step away from each, around the mesh, int64 (R,)."""
        position_RA = (self.mesh.position_RA + np.array(step)) % np.array(self.mesh.sizes)
        return self.mesh.ranks(position_RA)
