"""Collectives: how formats and libraries spell them, and who times them."""

from dataclasses import dataclass
from enum import IntEnum


class CollectiveType(IntEnum):
    """Chakra ``CollectiveCommType``; 0 is a real value, so absence must be kept apart."""

    ALL_REDUCE = 0
    REDUCE = 1
    ALL_GATHER = 2
    GATHER = 3
    SCATTER = 4
    BROADCAST = 5
    ALL_TO_ALL = 6
    REDUCE_SCATTER = 7
    REDUCE_SCATTER_BLOCK = 8
    BARRIER = 9
    INVALID = 99


@dataclass(frozen=True, slots=True)
class Collective:
    """A row of the table.

    Attributes:
        type: In a Chakra trace.
        kernel: What names of NCCL's kernels and arguments hold, letters alone and in lower case.
        hlo: Its operation in StableHLO and HLO, "" where there is none.
        simulated: Whether the simulator has algorithms for it.
        measured: Whether its times in a node were measured.
    """

    type: CollectiveType
    kernel: str
    hlo: str = ""
    simulated: bool = False
    measured: bool = False

    @property
    def name(self) -> str:
        """Such as "all_reduce"."""
        return self.type.name.lower()


_T = CollectiveType
COLLECTIVES = (
    Collective(_T.ALL_REDUCE, "allreduce", "all_reduce", simulated=True, measured=True),
    Collective(_T.ALL_GATHER, "allgather", "all_gather", simulated=True, measured=True),
    Collective(_T.REDUCE_SCATTER, "reducescatter", "reduce_scatter", simulated=True, measured=True),
    Collective(_T.ALL_TO_ALL, "alltoall", "all_to_all", simulated=True, measured=True),
    Collective(_T.BROADCAST, "broadcast", "collective_broadcast", simulated=True),
    Collective(_T.GATHER, "gather"),
    Collective(_T.SCATTER, "scatter"),
    Collective(_T.REDUCE, "reduce"),
    Collective(_T.BARRIER, "barrier"),
)
"""Every collective. A name that is a part of others comes after them."""
