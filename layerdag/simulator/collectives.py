"""Collectives as plans: chunks that go through phases, an algorithm in a dimension each.

Algorithms have the names of ASTRA-sim's implementation lists. ``inNetwork`` is ours: the switch of
a dimension sums or copies what its ranks send, as SHARP and NVLink SHARP do
(docs/reference/simulator.md, "In-network collectives"). Numbers are those of native/sim/sim.h.

Source: docs/reference/simulator.md, "Collectives" (ASTRA-sim 2.x, Sys::generate_collective).
"""

import math
import re
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import accumulate
from operator import mul

import numpy as np

from layerdag.errors import ConfigError, SimulationError
from layerdag.graph.topology import pointers
from layerdag.hardware.collectives import COLLECTIVES, CollectiveType
from layerdag.simulator.config import MissingImplementations, NetworkConfig, SystemConfig, Topology
from layerdag.traces.analysis import WORLD, is_group_name
from layerdag.traces.trace import Workload


class Algorithm(IntEnum):
    """How a phase does it; the values are those of native/sim/sim.h."""

    RING = 0
    DIRECT = 1
    HALVING_DOUBLING = 2
    DOUBLE_BINARY_TREE = 3
    IN_NETWORK = 4


@dataclass(frozen=True)
class Implementation:
    """One entry of an implementation list.

    Attributes:
        algorithm: The algorithm.
        window: Messages in flight of the direct algorithm; None for one to every other member.
        flat: Whether all ranks form one ring, whatever the dimensions.
    """

    algorithm: Algorithm
    window: int | None = None
    flat: bool = False


_IMPLEMENTATIONS = {
    "ring": Implementation(Algorithm.RING),
    "direct": Implementation(Algorithm.DIRECT),
    "halvingDoubling": Implementation(Algorithm.HALVING_DOUBLING),
    "doubleBinaryTree": Implementation(Algorithm.DOUBLE_BINARY_TREE),
    "oneRing": Implementation(Algorithm.RING, flat=True),
    "oneDirect": Implementation(Algorithm.DIRECT, flat=True),
    "oneHalvingDoubling": Implementation(Algorithm.HALVING_DOUBLING, flat=True),
    "inNetwork": Implementation(Algorithm.IN_NETWORK),
}


def parse_implementation(name: str) -> Implementation:
    """Return the implementation of a name, such as "ring" or "direct4".

    Raises:
        ConfigError: If there is no such algorithm.
    """
    match = re.fullmatch(r"(direct|oneDirect)([1-9]\d{0,8})", name)
    if match:
        return replace(_IMPLEMENTATIONS[match[1]], window=int(match[2]))
    if name not in _IMPLEMENTATIONS:
        known = ", ".join(_IMPLEMENTATIONS)
        raise ConfigError(f"unknown collective implementation '{name}'; known are {known}.")
    return _IMPLEMENTATIONS[name]


@dataclass(frozen=True, eq=False)
class GroupIndex:
    """Communicator groups as arrays.

    Attributes:
        names: Integer name of each group.
        index_of: Name -> position.
        ptr: int64 (G+1,); members of group g are ``rank[ptr[g]:ptr[g+1]]`` in the file's order.
        rank: int32 members.
        rank_ptr: int64 (R+1,); the groups of rank r are ``of_rank[rank_ptr[r]:rank_ptr[r+1]]``.
        of_rank: int32 group positions.
        position: int32 position of the rank inside that group.
    """

    names: np.ndarray
    index_of: dict[str, int]
    ptr: np.ndarray
    rank: np.ndarray
    rank_ptr: np.ndarray
    of_rank: np.ndarray
    position: np.ndarray

    @classmethod
    def build(cls, workload: Workload) -> "GroupIndex":
        """Index the groups of ``workload``.

        Raises:
            SimulationError: If a name is no integer above 0, or two are the same integer. A group
                "0" of all ranks is what nodes without a group mean, and needs no entry.
        """
        all_ranks = tuple(range(workload.num_ranks))
        usable = {
            name: members
            for name, members in workload.groups.items()
            if (name, members) != (WORLD, all_ranks)
        }
        seen: dict[int, str] = {}
        for name in usable:
            if not is_group_name(name):
                raise SimulationError(
                    f"{workload.source}: communicator group '{name}' has no integer above 0 as its "
                    "name, which ASTRA-sim needs; rename it in the group file and in pg_name."
                )
            other = seen.setdefault(int(name), name)
            if other != name:
                raise SimulationError(
                    f"{workload.source}: communicator groups '{other}' and '{name}' have the same "
                    "number; rename one."
                )
        sizes = np.array([len(members) for members in usable.values()], dtype=np.int64)
        rank = np.array([r for members in usable.values() for r in members], dtype=np.int32)
        group = np.repeat(np.arange(len(usable), dtype=np.int32), sizes)
        ptr = pointers(sizes)
        position = (np.arange(len(rank)) - np.repeat(ptr[:-1], sizes)).astype(np.int32)
        order = np.argsort(rank, kind="stable")
        counts = np.bincount(rank, minlength=workload.num_ranks)
        return cls(
            names=np.array([int(name) for name in usable], dtype=np.int64),
            index_of={str(int(name)): i for i, name in enumerate(usable)},
            ptr=ptr,
            rank=rank,
            rank_ptr=pointers(counts),
            of_rank=group[order],
            position=position[order],
        )

    def size(self, group: int) -> int:
        """Return the number of ranks of ``group``."""
        return int(self.ptr[group + 1] - self.ptr[group])

    def members(self, group: int) -> np.ndarray:
        """Return the ranks of ``group``, in the file's order."""
        return self.rank[self.ptr[group] : self.ptr[group + 1]]

    def dimensions(self, group: int, network: NetworkConfig) -> tuple[set[int], set[int]]:
        """Return the dimensions that a flat ring of a group is charged to, and those it spans.

        A message between neighbors of the ring takes the first dimension in which they differ.
        """
        member = self.members(group).astype(np.int64)
        neighbor = np.roll(member, -1)
        charged = np.full(len(member), -1)
        spanned = set()
        for index, dimension in enumerate(network.dimensions):
            differ = member % dimension.npus != neighbor % dimension.npus
            charged[differ & (charged < 0)] = index
            spanned |= {index} if differ.any() else set()
            member, neighbor = member // dimension.npus, neighbor // dimension.npus
        return set(charged[charged >= 0].tolist()), spanned

    def lines(self, group: int, sizes: tuple[int, ...]) -> tuple["RankStride", ...] | None:
        """Return the line that ``group`` fills in each dimension, None if it is no grid of lines.

        The group holds every rank whose place in each dimension is on the line there, such as
        every second rank of the first node, of all nodes. ``sizes`` are the ranks of each dimension
        of the network, dimension 0 varying fastest.
        """
        member = self.members(group).astype(np.int64)
        found, below = [], 1
        for size in sizes:
            position = np.unique(member % size)
            step = int(position[1] - position[0]) if len(position) > 1 else 1
            # Every rank must be able to compute its place on the line. The kernel
            # takes rank / stride modulo members, which holds where lines of this kind tile the
            # dimension.
            count = len(position)
            tiles = size % (step * count) == 0 and position[0] // step % count == 0
            if not tiles or (np.diff(position) != step).any():
                return None
            found.append(RankStride(len(position), step * below))
            member, below = member // size, below * size
        whole_grid = math.prod(line.members for line in found) == self.size(group)
        return tuple(found) if whole_grid else None


@dataclass(frozen=True)
class RankStride:
    """Equally spaced ranks of one dimension; ``stride`` is the distance of neighbors."""

    members: int
    stride: int


def reject_world_description(workload: Workload) -> None:
    """Refuse a group file that describes group "0", on which ASTRA-sim aborts.

    Raises:
        SimulationError: If it does.
    """
    if WORLD in workload.groups:
        raise SimulationError(
            f'{workload.source}: its communicator groups describe group "0", which stands for all '
            "ranks and on which ASTRA-sim aborts; remove the entry from the group file, or give "
            "the group a number above 0."
        )


class PhaseType(IntEnum):
    """What a phase does; the values are those of native/sim/sim.h."""

    REDUCE_SCATTER = 0
    ALL_REDUCE = 1
    ALL_GATHER = 2
    ALL_TO_ALL = 3
    BROADCAST = 4


class QueueChoice(IntEnum):
    """Which queues of a dimension a phase may use; the values are those of native/sim/sim.h."""

    ROUND_ROBIN = 0
    FIRST_HALF = 1
    UPPER_HALF = 2


@dataclass(frozen=True)
class Phase:
    """One algorithm run in one dimension (struct Phase of native/sim/sim.h).

    Attributes:
        size: Bytes that the phase starts from.
        window: Messages in flight.
        dimension: Dimension whose queues it uses.
        members: Ranks that take part.
        stride: Distance of neighbors in rank numbers; 0 for the members of a group.
        tree_counter: Which of a rank's counters alternates the two binary trees.
    """

    size: int
    type: PhaseType
    algorithm: Algorithm
    window: int
    dimension: int
    members: int
    stride: int
    queue_choice: QueueChoice = QueueChoice.ROUND_ROBIN
    tree_counter: int = 0


@dataclass(frozen=True)
class CollectivePlan:
    """A collective cut into equal chunks that all go through the same phases.

    ``size`` are the bytes that the trace states.
    """

    chunks: int
    phases: tuple[Phase, ...]
    size: int
    kind: CollectiveType


_LISTS = {row.type: (row.name, PhaseType[row.type.name]) for row in COLLECTIVES if row.simulated}
SUPPORTED: frozenset[CollectiveType] = frozenset(_LISTS) - {CollectiveType.BROADCAST}
"""Collective types that are simulated in any case; a broadcast only where a switch does it."""


def plan_collective(
    kind: CollectiveType,
    size: int,
    involved: tuple[bool, ...],
    members: int | None,
    lines: tuple[RankStride, ...] | None,
    system: SystemConfig,
    network: NetworkConfig,
) -> CollectivePlan:
    """Return chunks and phases of one collective.

    Args:
        kind: One of ``SUPPORTED``, or BROADCAST.
        size: Bytes: the full buffer of a rank, for an all-gather its shard.
        involved: Whether each dimension takes part.
        members: Ranks of the communicator group; None for all ranks of the cluster.
        lines: Of a group that runs phase by phase, its line in each dimension; None where it runs
            as one flat ring.
        system: Algorithms and chunking.
        network: Dimensions.

    Raises:
        SimulationError: If nothing would ever be sent, or the algorithm cannot do it.
        ConfigError: If the system names no or too many implementations.
    """
    attribute, phase_type = _LISTS[kind]
    names: tuple[str, ...] = getattr(system, attribute)
    if not names:
        raise ConfigError(
            f"the workload has a collective of type {kind.name}, but '{_key(attribute)}' is "
            'missing; add it, e.g. ["ring"].'
        )
    if len(names) > len(network.dimensions):
        raise ConfigError(
            f"{_key(attribute)} has {len(names)} entries for "
            f"{len(network.dimensions)} dimensions; give at most one per dimension."
        )
    chunk, chunks = _chunks(kind, size, system.preferred_dataset_splits, network.num_npus)
    implementations = [parse_implementation(name) for name in names]
    lines = _usable(lines, implementations, network)
    if members is not None and lines is None:
        phases = _group_phases(phase_type, chunk, members, implementations, system, network)
    else:
        if lines is not None:
            involved = tuple(line.members > 1 for line in lines)
        elif implementations[0].flat:
            lines = (RankStride(network.num_npus, 1),)
            involved = involved[:1]
        else:
            sizes = [dimension.npus for dimension in network.dimensions]
            strides = accumulate(sizes[:-1], mul, initial=1)
            lines = tuple(map(RankStride, sizes, strides))
        if not implementations[0].flat:
            _check_dimensions(attribute, involved, system, network)
        dims = [
            d
            for d in range(min(len(implementations), len(lines)))
            if lines[d].members > 1 and d < len(involved) and involved[d]
        ]
        phases = _grid_phases(phase_type, chunk, dims, implementations, lines, system)
    if not phases:
        raise SimulationError("no dimension with more than one rank takes part, so it never ends")
    for phase in phases:
        _check(phase, kind, network.dimensions[phase.dimension].topology)
    return CollectivePlan(chunks, tuple(phases), size, kind)


def _key(attribute: str) -> str:
    return attribute.replace("_", "-") + "-implementation"


def _check_dimensions(
    attribute: str, involved: tuple[bool, ...], system: SystemConfig, network: NetworkConfig
) -> None:
    given, count = len(getattr(system, attribute)), len(network.dimensions)
    if len(involved) < count:
        raise SimulationError(
            f"its involved_dim has {len(involved)} entries (4 where it is missing), but the "
            f"network has {count} dimensions; give one for each"
        )
    undone = [d for d in range(given, count) if involved[d] and network.dimensions[d].npus > 1]
    if undone and system.missing is MissingImplementations.REFUSE:
        raise ConfigError(
            f"{_key(attribute)} has {given} of {count} entries, so dimension {undone[0]} would not "
            "be communicated at all; give one for each dimension, or ask for what the reference "
            "does with --missing-implementations skip."
        )


def _chunks(kind: CollectiveType, size: int, splits: int, npus: int) -> tuple[int, int]:
    """Return (bytes of a chunk, number of chunks); every chunk is whole."""
    if size < 0:
        raise SimulationError(f"its comm_size is {size}; give the bytes, at least 0")
    chunk = size // splits
    if kind is not CollectiveType.ALL_GATHER and chunk < npus:
        return npus, splits
    if chunk == 0:
        raise SimulationError(
            f"its comm_size of {size} bytes cannot be cut into {splits} chunks; "
            "enlarge it or lower preferred-dataset-splits"
        )
    return chunk, -(-size // chunk)


def _group_phases(
    phase_type: PhaseType,
    size: int,
    members: int,
    implementations: list[Implementation],
    system: SystemConfig,
    network: NetworkConfig,
) -> list[Phase]:
    """A group smaller than the cluster: one flat ring over its members, in the queues of dim 0."""
    if members < 2:
        raise SimulationError("its group has one rank, so it never ends; drop the node")
    own = len(implementations) == 1
    implementation = implementations[0] if own else Implementation(Algorithm.RING)
    if implementation.algorithm is Algorithm.DOUBLE_BINARY_TREE:
        raise SimulationError("doubleBinaryTree cannot serve a communicator group; use another")
    in_network = Algorithm.IN_NETWORK in {entry.algorithm for entry in implementations}
    needed = own or phase_type is PhaseType.BROADCAST
    if in_network and needed and len(network.dimensions) > 1:
        raise SimulationError(
            "inNetwork serves a communicator group of a network with several dimensions only where "
            "the group spans whole ones, under --group-collectives hierarchical; use that, or ring"
        )
    choice = QueueChoice.ROUND_ROBIN
    if phase_type is PhaseType.ALL_REDUCE and system.collective_optimization == "localBWAware":
        choice = QueueChoice.FIRST_HALF
    window = _window(implementation, members)
    return [Phase(size, phase_type, implementation.algorithm, window, 0, members, 0, choice)]


def _usable(
    lines: tuple[RankStride, ...] | None,
    implementations: list[Implementation],
    network: NetworkConfig,
) -> tuple[RankStride, ...] | None:
    """Return the lines of a group, None where its algorithm has to run as one flat ring.

    A switch sums up what all ranks below it send, so it serves whole dimensions only. A dimension
    without an implementation of its own has no phase.
    """
    if lines is None or implementations[0].flat:
        return None
    if any(line.members > 1 for line in lines[len(implementations) :]):
        return None
    switched = any(entry.algorithm is Algorithm.IN_NETWORK for entry in implementations)
    sizes = [dimension.npus for dimension in network.dimensions]
    partly = any(line.members not in (1, n) for line, n in zip(lines, sizes, strict=True))
    return None if switched and partly else lines


def _grid_phases(
    phase_type: PhaseType,
    size: int,
    dims: list[int],
    implementations: list[Implementation],
    lines: tuple[RankStride, ...],
    system: SystemConfig,
) -> list[Phase]:
    phases = []
    for d, kind, choice in _steps(phase_type, dims, system.collective_optimization):
        line, algorithm = lines[d], implementations[d].algorithm
        window = _window(implementations[d], line.members)
        counter = 4 * d + phase_type
        phases.append(
            Phase(size, kind, algorithm, window, d, line.members, line.stride, choice, counter)
        )
        if kind is PhaseType.REDUCE_SCATTER:
            size //= line.members
        elif kind is PhaseType.ALL_GATHER:
            size *= line.members
    return phases


def _steps(
    phase_type: PhaseType, dims: list[int], optimization: str
) -> list[tuple[int, PhaseType, QueueChoice]]:
    any_queue = QueueChoice.ROUND_ROBIN
    if phase_type in (PhaseType.ALL_GATHER, PhaseType.BROADCAST):
        return [(d, phase_type, any_queue) for d in reversed(dims)]
    if phase_type is not PhaseType.ALL_REDUCE or optimization == "baseline":
        return [(d, phase_type, any_queue) for d in dims]
    *lower, last = dims or [-1]
    if last < 0:
        return []
    up = [(d, PhaseType.REDUCE_SCATTER, QueueChoice.FIRST_HALF) for d in lower]
    turn = [(last, PhaseType.ALL_REDUCE, QueueChoice.FIRST_HALF)]
    down = [(d, PhaseType.ALL_GATHER, QueueChoice.UPPER_HALF) for d in reversed(lower)]
    return up + turn + down


def _window(implementation: Implementation, members: int) -> int:
    if implementation.algorithm is not Algorithm.DIRECT:
        return 1
    return min(implementation.window or members - 1, members - 1)


def _check(phase: Phase, kind: CollectiveType, topology: Topology) -> None:
    """Raise where the reference hangs, crashes or gives up, or where no switch can do the phase."""
    power_of_two = phase.members & (phase.members - 1) == 0
    tree = phase.algorithm is Algorithm.DOUBLE_BINARY_TREE
    halving = phase.algorithm is Algorithm.HALVING_DOUBLING
    in_network = phase.algorithm is Algorithm.IN_NETWORK
    if halving and phase.type is PhaseType.ALL_TO_ALL:
        raise SimulationError("halvingDoubling has no all-to-all; use ring or direct")
    if tree and kind is not CollectiveType.ALL_REDUCE:
        raise ConfigError(
            f"{_key(_LISTS[kind][0])} has 'doubleBinaryTree', which can only all-reduce: the "
            "reference runs a whole all-reduce in its place. Use another algorithm."
        )
    if (halving or tree) and not power_of_two:
        name = "doubleBinaryTree" if tree else "halvingDoubling"
        raise SimulationError(f"{name} needs a power of two of ranks, found {phase.members}")
    if in_network and topology is not Topology.SWITCH:
        raise ConfigError(
            f"'inNetwork' stands for dimension {phase.dimension}, which is a {topology.value} and "
            "has no switch that could do it; write 'ring' there or make it a Switch."
        )
    if in_network and phase.type is PhaseType.ALL_TO_ALL:
        raise ConfigError(
            "all-to-all-implementation has 'inNetwork', but a switch has nothing to sum or copy in "
            "an all-to-all; use ring or direct."
        )
    if phase.type is PhaseType.BROADCAST and not in_network:
        raise ConfigError(
            "broadcast-implementation takes 'inNetwork' in every dimension; without the key a "
            "broadcast takes its recorded duration, as in the reference."
        )
