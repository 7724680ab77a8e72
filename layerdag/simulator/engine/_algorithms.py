"""Algorithms of collectives by the names of ASTRA-sim's implementation lists, and one of our own.

``inNetwork`` is ours: the switch of a dimension sums or copies what its ranks send, as SHARP and
NVLink SHARP do (docs/reference/simulator.md, "In-network collectives").
"""

import re
from dataclasses import dataclass
from enum import IntEnum

from layerdag.errors import ConfigError


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


_ALGORITHMS = {
    "ring": Algorithm.RING,
    "direct": Algorithm.DIRECT,
    "halvingdoubling": Algorithm.HALVING_DOUBLING,
    "doublebinarytree": Algorithm.DOUBLE_BINARY_TREE,
    "innetwork": Algorithm.IN_NETWORK,
}
_SPELLINGS = (
    "ring",
    "direct",
    "halvingDoubling",
    "doubleBinaryTree",
    "oneRing",
    "oneDirect",
    "oneHalvingDoubling",
    "inNetwork",
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
