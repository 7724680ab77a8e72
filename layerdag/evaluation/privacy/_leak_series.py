"""What samples reveal, by their number: more samples can only reveal more.

A figure of 30 samples says nothing of 400 samples of the same generator, so that the number of
samples belongs to every such figure.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from layerdag._runtime import numpy_generator
from layerdag.evaluation.privacy._copies import program_of
from layerdag.evaluation.privacy._membership import (
    Attack,
    attacks_by_distance,
    program_attack,
)
from layerdag.evaluation.privacy._memorization import (
    DistanceToClosestRecord,
    kernel_distances,
    nearness_by_distance,
)
from layerdag.evaluation.privacy._verdict import Verdict
from layerdag.graph import DAG

NUMBERS = (30, 100, 400, 1000)


@dataclass(frozen=True)
class LeakRow:
    """What so many samples give away.

    Attributes:
        samples: Number of samples.
        nearness: Are they nearer to training than to held-out graphs?
        attacks: Can training graphs be told from held-out ones by them?
    """

    samples: int
    nearness: DistanceToClosestRecord
    attacks: tuple[Attack, ...]

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """The verdict on each figure."""
        return (self.nearness.verdict, *(attack.verdict for attack in self.attacks))


def leak_series(
    train: Sequence[DAG],
    held_out: Sequence[DAG],
    generated: Sequence[DAG],
    *,
    numbers: Sequence[int] = NUMBERS,
    seed: int = 0,
    measured: Sequence[int] = (),
) -> tuple[LeakRow, ...]:
    """Return what ``numbers`` of the samples and all of them give away, in ascending order.

    The samples of a smaller number are among those of every larger one, drawn at random, so that
    the order in which they were made does not matter.

    Args:
        train: Graphs that the generator learned from.
        held_out: Real graphs that it never saw. Without any there is nothing to compare with.
        generated: Samples.
        numbers: Of samples; those above the number there are count for nothing.
        seed: Of the draw, and of the figures.
        measured: Columns of ``x_NA`` that hold measurements, such as durations. If there are any,
            one more attack looks at the graphs without them.
    """
    if not held_out or not train or not generated:
        return ()
    real = [*train, *held_out]
    order_K = numpy_generator(seed, "leak series").permutation(len(generated))
    distance = kernel_distances(real, [*generated, *held_out])
    to_sample_GK = distance[:, : len(generated)][:, order_K]
    to_held_out_GH = distance[:, len(generated) :]
    to_program_GK = _program_distances(real, generated, measured)[:, order_K]
    rows = []
    for count in sorted({*(n for n in numbers if n < len(generated)), len(generated)}):
        nearest_KG = to_sample_GK[:, :count].T
        near = nearness_by_distance(nearest_KG[:, : len(train)], nearest_KG[:, len(train) :], seed)
        attacks = attacks_by_distance(to_sample_GK[:, :count], to_held_out_GH, seed)
        if measured:
            attacks += (program_attack(to_program_GK[:, :count], len(train), seed),)
        rows.append(LeakRow(count, near, attacks))
    return tuple(rows)


def _program_distances(
    real: Sequence[DAG], generated: Sequence[DAG], measured: Sequence[int]
) -> np.ndarray:
    """Return the distances without measured columns; zeros where there are none to leave out."""
    if not measured:
        return np.zeros((len(real), len(generated)))
    programs = [[program_of(dag, measured) for dag in dags] for dags in (real, generated)]
    return kernel_distances(programs[0], programs[1])
