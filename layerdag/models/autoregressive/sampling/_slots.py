"""The uniform of each decision about a node: slots of its counter-based random numbers."""

from enum import IntEnum


class RandomSlot(IntEnum):
    """Number of the first uniform of each decision about one node.

    Counts and parents use two consecutive slots (bin and position in the bin; block and token),
    attribute number i uses ``ATTRIBUTE + i``.
    """

    LAYER_SIZE = 0
    FIRST_PARENT = 2
    KIND = 4
    IN_DEGREE = 5
    OUT_DEGREE = 7
    ATTRIBUTE = 9
    FURTHER_PARENT = 1 << 16
    """First slot of ``SLOTS_PER_PARENT`` for each parent: its edge type, and the next parent."""

    CHOICE = (1 << 31) - 1
    """Which candidate for the node is kept."""

    RESAMPLING = 1 << 31
    """Which particles go on; only the first particle's is used."""

    POSITION_IN_BIN = 1 << 32
    """First slot of the positions of numeric attributes in their bins, one per attribute."""


SLOTS_PER_PARENT = 3
