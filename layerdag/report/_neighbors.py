"""Which real graph is most like a sample, among those of its family."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from layerdag.evaluation.privacy import kernel_distances, program_of
from layerdag.graph import DAG

FAMILY = "family"
MOST_DRAWN = 160
"""Nodes of a graph that can still be read on the page."""


@dataclass(frozen=True)
class NearestReal:
    """A sample and the real graph that is most like it.

    Attributes:
        sample: Row of the sample.
        real: Row of the real graph.
        family: Of both.
        distance: Weisfeiler-Lehman distance between them, times left out.
        usual: Median distance of real graphs of the family to the nearest other one.
        compared: Number of real graphs of the family.
    """

    sample: int
    real: int
    family: str
    distance: float
    usual: float | None
    compared: int


def nearest_real(
    real: Sequence[DAG],
    samples: Sequence[DAG],
    measured: Sequence[int] = (),
    most: int = 3,
    largest: int = MOST_DRAWN,
) -> tuple[NearestReal, ...]:
    """Return a sample of each of the most frequent families beside its nearest real graph.

    Args:
        real: Real graphs, whatever they were used for.
        samples: Samples.
        measured: Columns of measurements, which differ from run to run and do not count.
        most: Number of families.
        largest: Samples and real graphs of more nodes are left out; of the others the one of
            middling size is shown.
    """
    real_of, made_of = _by_family(real, largest), _by_family(samples, largest)
    counts = Counter({name: len(rows) for name, rows in made_of.items() if name in real_of})
    found = []
    for name, _ in counts.most_common(most):
        rows = sorted(made_of[name], key=lambda row: (samples[row].num_nodes, row))
        row = rows[len(rows) // 2]
        programs = [program_of(real[i], measured) for i in real_of[name]]
        to_real_R = kernel_distances([program_of(samples[row], measured)], programs)[0]
        nearest = int(to_real_R.argmin())
        found.append(
            NearestReal(
                row, real_of[name][nearest], name, float(to_real_R[nearest]),
                _usual(programs), len(programs),
            )
        )  # fmt: skip
    return tuple(found)


def _by_family(dags: Sequence[DAG], largest: int) -> dict[str, list[int]]:
    """Return the rows of each family, without the graphs that are too large to be drawn."""
    rows: dict[str, list[int]] = {}
    for row, dag in enumerate(dags):
        if dag.num_nodes <= largest:
            rows.setdefault(str(dag.conditions.get(FAMILY, "")), []).append(row)
    return rows


def _usual(programs: Sequence[DAG], most: int = 200) -> float | None:
    """Return how far graphs are from the nearest other one, in the median."""
    chosen = programs[:most]
    if len(chosen) < 2:
        return None
    distance_KK = kernel_distances(chosen, chosen)
    np.fill_diagonal(distance_KK, np.inf)
    return float(np.median(distance_KK.min(axis=1)))
