"""Collectives as plans: how many chunks, and which algorithm in which dimension for each.

Source: docs/simulator.md, "Collectives" (ASTRA-sim 2.x, Sys::generate_collective).
"""

import re
from dataclasses import dataclass
from enum import IntEnum

from layerdag.errors import ConfigError, SimulationError
from layerdag.simulator.cluster import NetworkConfig, SystemConfig
from layerdag.traces.trace import CollectiveType


class PhaseType(IntEnum):
    """What a phase does; the values are those of native/sim.h."""

    REDUCE_SCATTER = 0
    ALL_REDUCE = 1
    ALL_GATHER = 2
    ALL_TO_ALL = 3


class Algorithm(IntEnum):
    """How a phase does it; the values are those of native/sim.h."""

    RING = 0
    DIRECT = 1
    HALVING_DOUBLING = 2
    DOUBLE_BINARY_TREE = 3


class QueueChoice(IntEnum):
    """Which queues of a dimension a phase may use; the values are those of native/sim.h."""

    ROUND_ROBIN = 0
    FIRST_HALF = 1
    UPPER_HALF = 2


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


_ALGORITHMS = {
    "ring": Algorithm.RING,
    "direct": Algorithm.DIRECT,
    "halvingdoubling": Algorithm.HALVING_DOUBLING,
    "doublebinarytree": Algorithm.DOUBLE_BINARY_TREE,
}
_SPELLINGS = (
    "ring",
    "direct",
    "halvingDoubling",
    "doubleBinaryTree",
    "oneRing",
    "oneDirect",
    "oneHalvingDoubling",
)


def parse_implementation(name: str) -> Implementation:
    """Return the implementation that ``name`` stands for, such as "ring" or "direct4".

    Raises:
        ConfigError: If there is no such algorithm.
    """
    match = re.fullmatch(r"(direct|oneDirect)([1-9]\d{0,8})?", name)
    if match:
        window = int(match[2]) if match[2] else None
        return Implementation(Algorithm.DIRECT, window, match[1] == "oneDirect")
    if name not in _SPELLINGS:
        known = ", ".join(_SPELLINGS)
        raise ConfigError(f"unknown collective implementation '{name}'; known are {known}.")
    flat = name.startswith("one")
    return Implementation(_ALGORITHMS[name.removeprefix("one").lower()], None, flat)


@dataclass(frozen=True)
class Phase:
    """One algorithm run in one dimension (struct Phase of native/sim.h).

    Attributes:
        size: Bytes that the phase starts from.
        type: What it does.
        algorithm: How.
        window: Messages in flight.
        dimension: Dimension whose queues it uses.
        members: Ranks that take part.
        stride: Distance of neighbours in rank numbers; 0 for the members of a group.
        queue_choice: Which queues it may use.
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
    """A collective cut into equal chunks that all go through the same phases."""

    chunks: int
    phases: tuple[Phase, ...]


_LISTS = {
    CollectiveType.ALL_REDUCE: ("all_reduce", PhaseType.ALL_REDUCE),
    CollectiveType.ALL_GATHER: ("all_gather", PhaseType.ALL_GATHER),
    CollectiveType.REDUCE_SCATTER: ("reduce_scatter", PhaseType.REDUCE_SCATTER),
    CollectiveType.ALL_TO_ALL: ("all_to_all", PhaseType.ALL_TO_ALL),
}
SUPPORTED = frozenset(_LISTS)
"""Collective types that are simulated message by message."""


def plan_collective(
    kind: CollectiveType,
    size: int,
    involved: tuple[bool, ...],
    group_size: int | None,
    system: SystemConfig,
    network: NetworkConfig,
) -> CollectivePlan:
    """Return chunks and phases of one collective.

    Args:
        kind: One of ``SUPPORTED``.
        size: Bytes: the full buffer of a rank, for an all-gather its shard.
        involved: Whether each dimension takes part.
        group_size: Ranks of the communicator group; None for all ranks of the cluster.
        system: Algorithms and chunking.
        network: Dimensions.

    Raises:
        SimulationError: If nothing would ever be sent, or the algorithm cannot do it.
        ConfigError: If the system names no or too many implementations.
    """
    attribute, phase_type = _LISTS[kind]
    names: tuple[str, ...] = getattr(system, attribute)
    if not names:
        key = attribute.replace("_", "-") + "-implementation"
        raise ConfigError(
            f"the workload has a collective of type {kind.name}, but '{key}' is missing."
        )
    if len(names) > len(network.dimensions):
        raise ConfigError(
            f"{attribute.replace('_', '-')}-implementation has {len(names)} entries for "
            f"{len(network.dimensions)} dimensions; give at most one a dimension."
        )
    chunk, chunks = _chunks(kind, size, system.preferred_dataset_splits, network.num_npus)
    implementations = [parse_implementation(name) for name in names]
    if group_size is not None:
        phases = _group_phases(phase_type, chunk, group_size, implementations, system)
    else:
        phases = _world_phases(phase_type, chunk, involved, implementations, (system, network))
    if not phases:
        raise SimulationError("no dimension with more than one rank takes part, so it never ends")
    for phase in phases:
        _check(phase)
    return CollectivePlan(chunks, tuple(phases))


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
) -> list[Phase]:
    """A group smaller than the cluster: one flat ring over its members, in the queues of dim 0."""
    if members < 2:
        raise SimulationError("its group has one rank, so it never ends; drop the node")
    own = len(implementations) == 1
    implementation = implementations[0] if own else Implementation(Algorithm.RING)
    if implementation.algorithm is Algorithm.DOUBLE_BINARY_TREE:
        raise SimulationError("doubleBinaryTree cannot serve a communicator group; use another")
    choice = QueueChoice.ROUND_ROBIN
    if phase_type is PhaseType.ALL_REDUCE and system.collective_optimization == "localBWAware":
        choice = QueueChoice.FIRST_HALF
    window = _window(implementation, members)
    return [Phase(size, phase_type, implementation.algorithm, window, 0, members, 0, choice)]


def _world_phases(
    phase_type: PhaseType,
    size: int,
    involved: tuple[bool, ...],
    implementations: list[Implementation],
    cluster: tuple[SystemConfig, NetworkConfig],
) -> list[Phase]:
    """All ranks: one phase a dimension, or up and down again for an all-reduce."""
    system, network = cluster
    sizes = [dimension.npus for dimension in network.dimensions]
    if implementations[0].flat:
        sizes, involved = [network.num_npus], involved[:1]
    strides = [1]
    for count in sizes:
        strides.append(strides[-1] * count)
    dims = [
        d
        for d in range(min(len(implementations), len(sizes)))
        if sizes[d] > 1 and d < len(involved) and involved[d]
    ]
    phases = []
    for d, kind, choice in _steps(phase_type, dims, system.collective_optimization):
        implementation = implementations[d]
        window = _window(implementation, sizes[d])
        counter = 4 * d + phase_type
        phases.append(
            Phase(
                size,
                kind,
                implementation.algorithm,
                window,
                d,
                sizes[d],
                strides[d],
                choice,
                counter,
            )
        )
        if kind is PhaseType.REDUCE_SCATTER:
            size //= sizes[d]
        elif kind is PhaseType.ALL_GATHER:
            size *= sizes[d]
    return phases


def _steps(
    phase_type: PhaseType, dims: list[int], optimization: str
) -> list[tuple[int, PhaseType, QueueChoice]]:
    """Return (dimension, what is done there, queues) in order."""
    any_queue = QueueChoice.ROUND_ROBIN
    if phase_type is PhaseType.ALL_GATHER:
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
    """Return the messages in flight of one rank."""
    if implementation.algorithm is not Algorithm.DIRECT:
        return 1
    return min(implementation.window or members - 1, members - 1)


def _check(phase: Phase) -> None:
    """Raise SimulationError where the reference hangs, crashes or gives up."""
    power_of_two = phase.members & (phase.members - 1) == 0
    halving = phase.algorithm is Algorithm.HALVING_DOUBLING
    if halving and phase.type is PhaseType.ALL_TO_ALL:
        raise SimulationError("halvingDoubling has no all-to-all; use ring or direct")
    if (halving or phase.algorithm is Algorithm.DOUBLE_BINARY_TREE) and not power_of_two:
        raise SimulationError(
            f"{phase.algorithm.name.lower()} needs a power of two of ranks, found {phase.members}"
        )
