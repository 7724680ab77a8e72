"""Collectives as plans: how many chunks, and which algorithm in which dimension for each.

Source: docs/reference/simulator.md, "Collectives" (ASTRA-sim 2.x, Sys::generate_collective).
"""

from dataclasses import dataclass

from layerdag.errors import ConfigError, SimulationError
from layerdag.simulator import MissingImplementations, NetworkConfig, SystemConfig, Topology
from layerdag.simulator.engine._algorithms import Algorithm, Implementation, parse_implementation
from layerdag.simulator.engine._groups import Line
from layerdag.simulator.engine._phases import CollectivePlan, Phase, PhaseType, QueueChoice
from layerdag.traces import CollectiveType

_LISTS = {
    CollectiveType.ALL_REDUCE: ("all_reduce", PhaseType.ALL_REDUCE),
    CollectiveType.ALL_GATHER: ("all_gather", PhaseType.ALL_GATHER),
    CollectiveType.REDUCE_SCATTER: ("reduce_scatter", PhaseType.REDUCE_SCATTER),
    CollectiveType.ALL_TO_ALL: ("all_to_all", PhaseType.ALL_TO_ALL),
    CollectiveType.BROADCAST: ("broadcast", PhaseType.BROADCAST),
}
SUPPORTED: frozenset[CollectiveType] = frozenset(_LISTS) - {CollectiveType.BROADCAST}
"""Collective types that are simulated in any case; a broadcast only where a switch does it."""


@dataclass(frozen=True)
class Asked:
    """A collective as a node asks for it.

    Attributes:
        kind: One of ``SUPPORTED``, or BROADCAST.
        size: Bytes: the full buffer of a rank, for an all-gather its shard.
        involved: Whether each dimension takes part.
        members: Ranks of the communicator group; None for all ranks of the cluster.
        lines: What a group that runs phase by phase fills of each dimension; None where it runs as
            one flat ring.
    """

    kind: CollectiveType
    size: int
    involved: tuple[bool, ...]
    members: int | None = None
    lines: tuple[Line, ...] | None = None


def plan_collective(asked: Asked, system: SystemConfig, network: NetworkConfig) -> CollectivePlan:
    """Return chunks and phases of one collective.

    Args:
        asked: What is to be done by whom.
        system: Algorithms and chunking.
        network: Dimensions.

    Raises:
        SimulationError: If nothing would ever be sent, or the algorithm cannot do it.
        ConfigError: If the system names no or too many implementations.
    """
    attribute, phase_type = _LISTS[asked.kind]
    names: tuple[str, ...] = getattr(system, attribute)
    if not names:
        raise ConfigError(
            f"the workload has a collective of type {asked.kind.name}, but '{_key(attribute)}' is "
            'missing; add it, e.g. ["ring"].'
        )
    if len(names) > len(network.dimensions):
        raise ConfigError(
            f"{_key(attribute)} has {len(names)} entries for "
            f"{len(network.dimensions)} dimensions; give at most one per dimension."
        )
    size, splits = asked.size, system.preferred_dataset_splits
    chunk, chunks = _chunks(asked.kind, size, splits, network.num_npus)
    implementations = [parse_implementation(name) for name in names]
    involved, lines = asked.involved, _usable(asked.lines, implementations, network)
    if asked.members is not None and lines is None:
        cluster = (system, network)
        phases = _group_phases(phase_type, chunk, asked.members, implementations, cluster)
    else:
        if lines is not None:
            involved = tuple(line.members > 1 for line in lines)
        elif implementations[0].flat:
            lines = (Line(network.num_npus, 1),)
            involved = involved[:1]
        else:
            lines = _whole(network)
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
        _check(phase, asked.kind, network.dimensions[phase.dimension].topology)
    return CollectivePlan(chunks, tuple(phases), size)


def _key(attribute: str) -> str:
    """Return the key of system.json that an attribute of ``SystemConfig`` comes from."""
    return attribute.replace("_", "-") + "-implementation"


def _check_dimensions(
    attribute: str, involved: tuple[bool, ...], system: SystemConfig, network: NetworkConfig
) -> None:
    """Refuse a collective that the reference would leave undone in some dimension."""
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
    cluster: tuple[SystemConfig, NetworkConfig],
) -> list[Phase]:
    """A group smaller than the cluster: one flat ring over its members, in the queues of dim 0."""
    system, network = cluster
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


def _whole(network: NetworkConfig) -> tuple[Line, ...]:
    """Return the lines that all ranks fill."""
    lines, stride = [], 1
    for dimension in network.dimensions:
        lines.append(Line(dimension.npus, stride))
        stride *= dimension.npus
    return tuple(lines)


def _usable(
    lines: tuple[Line, ...] | None, implementations: list[Implementation], network: NetworkConfig
) -> tuple[Line, ...] | None:
    """Return the lines of a group, None where its algorithm has to run as one flat ring.

    A switch sums up what all ranks below it send, so it serves whole dimensions only.
    """
    if lines is None or implementations[0].flat:
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
    lines: tuple[Line, ...],
    system: SystemConfig,
) -> list[Phase]:
    """All ranks, or a grid of them: one phase a dimension, or up and down for an all-reduce."""
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
    """Return (dimension, what is done there, queues) in order."""
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
    """Return the messages in flight of one rank."""
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
