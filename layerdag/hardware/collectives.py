"""Collectives: how formats and libraries spell them, and who times them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Collective:
    """A row of the table.

    Attributes:
        name: Such as "all_reduce"; in capitals the name of its type in a Chakra trace.
        kernel: What names of NCCL's kernels and arguments hold, letters alone and in small ones.
        hlo: Its operation in StableHLO and HLO, "" where there is none.
        simulated: Whether the simulator has algorithms for it.
        measured: Whether its times in a node were measured.
    """

    name: str
    kernel: str
    hlo: str = ""
    simulated: bool = False
    measured: bool = False


COLLECTIVES = (
    Collective("all_reduce", "allreduce", "all_reduce", simulated=True, measured=True),
    Collective("all_gather", "allgather", "all_gather", simulated=True, measured=True),
    Collective("reduce_scatter", "reducescatter", "reduce_scatter", simulated=True, measured=True),
    Collective("all_to_all", "alltoall", "all_to_all", simulated=True, measured=True),
    Collective("broadcast", "broadcast", "collective_broadcast", simulated=True),
    Collective("gather", "gather"),
    Collective("scatter", "scatter"),
    Collective("reduce", "reduce"),
    Collective("barrier", "barrier"),
)
"""Every collective. A word that is a part of others stands after them."""
