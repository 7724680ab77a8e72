"""Faults of a set of samples: copies, memorized graphs, missing families, exchanged labels."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from faults._graphs import GraphFault, edited, multiplied
from layerdag.dag.dag import DAG
from layerdag.graph.attributed_graph import LABEL
from layerdag.schema.attributes import NumericAttribute


@dataclass(frozen=True, eq=False)
class Drawn:
    """Real graphs in four parts, none in two of them.

    Attributes:
        train: What a generator would have learned from.
        held_out: What it never saw.
        samples: Real graphs that pose as its samples.
        spare: The others.
    """

    train: tuple[DAG, ...]
    held_out: tuple[DAG, ...]
    samples: tuple[DAG, ...]
    spare: tuple[DAG, ...]

    @classmethod
    def of(cls, pool: Sequence[DAG], size: int, rng: np.random.Generator) -> "Drawn":
        """Cut a pool at random into three parts of ``size`` graphs and the rest."""
        shuffled = [pool[i] for i in rng.permutation(len(pool))]
        parts = [tuple(shuffled[start : start + size]) for start in range(0, 3 * size, size)]
        return cls(parts[0], parts[1], parts[2], tuple(shuffled[3 * size :]))


Fault = Callable[[Drawn, float, np.random.Generator], tuple[DAG, ...]]
"""From real graphs and a strength in [0, 1] to samples; strength 0 returns ``Drawn.samples``."""


def in_each_graph(fault: GraphFault) -> Fault:
    """Spoil the fraction of every sample."""

    def planted(drawn: Drawn, strength: float, rng: np.random.Generator) -> tuple[DAG, ...]:
        return tuple(fault(dag, strength, rng) for dag in drawn.samples)

    return planted


def replaced(make: Callable[[DAG, Sequence[DAG], np.random.Generator], DAG]) -> Fault:
    """Replace the fraction of the samples by what is made of different training graphs."""

    def planted(drawn: Drawn, strength: float, rng: np.random.Generator) -> tuple[DAG, ...]:
        samples = list(drawn.samples)
        places = rng.permutation(len(samples))[: round(strength * len(samples))]
        models = rng.permutation(len(drawn.train))
        for place, model in zip(places, np.resize(models, places.size), strict=True):
            samples[place] = make(drawn.train[model], drawn.train, rng)
        return tuple(samples)

    return planted


def copies() -> Fault:
    """Repeat training graphs exactly."""
    return replaced(lambda dag, others, rng: dag)


def memorizer(edits: float) -> Fault:
    """Repeat training graphs with a fraction of their nodes and edges changed."""
    return replaced(lambda dag, others, rng: edited(dag, edits, rng, others))


def retimed_copies(column: int, attribute: NumericAttribute, spread: float) -> Fault:
    """Repeat training graphs with new durations, as a second measurement has them."""

    def make(dag: DAG, others: Sequence[DAG], rng: np.random.Generator) -> DAG:
        del others
        factor_N = np.exp(spread * rng.standard_normal(dag.num_nodes))
        return multiplied(dag, column, attribute, factor_N)

    return replaced(make)


def families_dropped(drawn: Drawn, strength: float, rng: np.random.Generator) -> tuple[DAG, ...]:
    """Draw other samples instead of those of some families, in random order of the families.

    The family that reaches the fraction is dropped in part.
    """
    count = round(strength * len(drawn.samples))
    names = rng.permutation(sorted({str(dag.conditions["family"]) for dag in drawn.samples}))
    rank = {name: place for place, name in enumerate(names.tolist())}
    order = sorted(
        range(len(drawn.samples)), key=lambda i: rank[str(drawn.samples[i].conditions["family"])]
    )
    dropped = {str(drawn.samples[i].conditions["family"]) for i in order[:count]}
    others = [dag for dag in drawn.spare if str(dag.conditions["family"]) not in dropped]
    kept = [drawn.samples[i] for i in sorted(order[count:])]
    return (*kept, *others[:count])


def labels_swapped(drawn: Drawn, strength: float, rng: np.random.Generator) -> tuple[DAG, ...]:
    """Let a fraction of the samples exchange their labels."""
    samples = list(drawn.samples)
    places = rng.permutation(len(samples))[: round(strength * len(samples))]
    for place, other in zip(places, np.roll(places, 1), strict=True):
        conditions = {
            **drawn.samples[place].conditions,
            LABEL: drawn.samples[other].conditions[LABEL],
        }
        samples[place] = drawn.samples[place].with_conditions(conditions)
    return tuple(samples)
