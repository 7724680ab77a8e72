"""What a collective is cut into: chunks that go through phases, an algorithm in a dimension each.

The numbers are those of native/sim/sim.h.
"""

from dataclasses import dataclass
from enum import IntEnum

from layerdag.simulator.engine._algorithms import Algorithm


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
        type: What it does.
        algorithm: How.
        window: Messages in flight.
        dimension: Dimension whose queues it uses.
        members: Ranks that take part.
        stride: Distance of neighbors in rank numbers; 0 for the members of a group.
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
    """A collective cut into equal chunks that all go through the same phases.

    Attributes:
        chunks: Number of chunks.
        phases: What each goes through.
        size: Bytes that the trace states.
    """

    chunks: int
    phases: tuple[Phase, ...]
    size: int
