"""Ranks that differ: slower or faster devices, stragglers, and noise with a heavy tail.

Beyond the reference, which runs every rank at the same speed; off by default.
"""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from layerdag.errors import ConfigError
from layerdag.simulator.engine import ClassProgram, NodeKind, Program
from layerdag.traces import NodeType


@dataclass(frozen=True)
class PowerLawNoise:
    """Each compute node takes t (1 + scale x), where P(X > x) = (1 + x) ** -exponent (Lomax).

    Attributes:
        exponent: Tail exponent, above 1; the smaller, the heavier the tail.
        scale: Size of the noise; its mean is scale / (exponent - 1).
        seed: Seed; every rank draws from a stream of its own.
    """

    exponent: float
    scale: float
    seed: int

    def __post_init__(self) -> None:
        if not (1 < self.exponent < math.inf and 0 < self.scale < math.inf):
            raise ConfigError(
                f"noise has exponent {self.exponent} and scale {self.scale}; the exponent must be "
                "above 1 and the scale positive."
            )

    def factors(self, rank: int, count: int) -> np.ndarray:
        """Return the factor of each of ``count`` nodes of ``rank``."""
        from layerdag._runtime import (
            numpy_generator,  # numpy.random is slow to import, rarely needed
        )

        uniform = numpy_generator(self.seed, "noise", rank).random(count)
        return 1.0 + self.scale * ((1.0 - uniform) ** (-1.0 / self.exponent) - 1.0)


@dataclass(frozen=True)
class Variation:
    """How ranks differ.

    Attributes:
        time_factor: Factor on the compute time of single ranks, e.g. {3: 1.5} for a straggler.
        noise: Noise on every compute node of every rank.
    """

    time_factor: Mapping[int, float] = field(default_factory=dict)
    noise: PowerLawNoise | None = None

    def __post_init__(self) -> None:
        for rank, factor in self.time_factor.items():
            if not 0 < factor < math.inf:
                raise ConfigError(f"rank {rank} has time factor {factor}; it must be positive.")


def with_variation(program: Program, variation: Variation) -> Program:
    """Return the program with the compute nodes of each rank at its own speed.

    Raises:
        ConfigError: If a factor names a rank that does not exist.
    """
    strange = [rank for rank in variation.time_factor if not 0 <= rank < program.num_ranks]
    if strange:
        raise ConfigError(
            f"rank {strange[0]} is given a speed, but ranks are 0 to {program.num_ranks - 1}."
        )
    classes = list(program.classes)
    class_of_rank = program.class_of_rank.copy()
    for rank in range(program.num_ranks):
        if variation.noise is None and rank not in variation.time_factor:
            continue
        class_of_rank[rank] = len(classes)
        classes.append(_slowed(program.of_rank(rank), variation, rank))
    return dataclasses.replace(program, classes=tuple(classes), class_of_rank=class_of_rank)


def _slowed(nodes: ClassProgram, variation: Variation, rank: int) -> ClassProgram:
    """Return the nodes of a rank with its factor and noise, at least 1 ns each."""
    rows = np.flatnonzero((nodes.type_N == NodeType.COMP) & (nodes.kind_N == NodeKind.TIMER))
    factor = np.full(len(rows), variation.time_factor.get(rank, 1.0))
    if variation.noise is not None:
        factor *= variation.noise.factors(rank, len(rows))
    duration_or_bytes_N = nodes.duration_or_bytes_N.copy()
    duration_or_bytes_N[rows] = np.maximum(np.floor(duration_or_bytes_N[rows] * factor), 1).astype(
        np.int64
    )
    return dataclasses.replace(nodes, duration_or_bytes_N=duration_or_bytes_N)
