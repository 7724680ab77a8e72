"""What samples reveal, by their number: more samples can only reveal more.

A figure of 30 samples says nothing of 400 samples of the same generator, so that the number of
samples belongs to every such figure.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from layerdag.dag.dag import DAG
from layerdag.dag.graph_set import GraphSet
from layerdag.privacy.attacks import (
    Inference,
    SampleAttack,
    all_attacks,
    attack_outcomes,
    identified_traits,
    inferred_properties,
    outcome_of,
    significant_after_correction,
)
from layerdag.privacy.copies import (
    CloserToTrainingTally,
    DistanceToClosestRecord,
    KernelIndex,
    nearness_by_distance,
    program_of,
)
from layerdag.privacy.membership import Attack, Verdict
from layerdag.privacy.membership_attacks import (
    AttackPool,
    DensityRatio,
    DensityTally,
    MotifTally,
    NearestProgram,
    NearestSample,
    NearestTally,
    Roles,
    Trait,
    UniqueMotifs,
    traits_of,
)
from layerdag.runtime.rng import numpy_generator
from layerdag.runtime.terminal import stage

NUMBERS = (30, 100, 400, 1000)
MOST_HELD = 10_000
"""Samples that are held together; of more, figures that need many at once look at so many."""


@dataclass(frozen=True)
class LeakRow:
    """What so many samples give away.

    Attributes:
        samples: Number of samples.
        nearness: Are they nearer to training than to held-out graphs?
        attacks: Can training graphs be told from held-out ones by them?
        inferences: What is read of training graphs besides: traits of single jobs ("model:..."),
            and properties of the set.
    """

    samples: int
    nearness: DistanceToClosestRecord
    attacks: tuple[Attack, ...]
    inferences: tuple[Inference, ...] = ()

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """The verdict on each figure."""
        of_attacks = tuple(attack.verdict for attack in self.attacks)
        return (self.nearness.verdict, *of_attacks, *(read.verdict for read in self.inferences))

    @property
    def leaks(self) -> bool:
        """Whether anything succeeds, the attacks that are run beside it considered."""
        found: tuple[Attack | Inference, ...] = (*self.attacks, *self.inferences)
        return (
            self.nearness.verdict is Verdict.LEAKS
            or any(significant_after_correction(each) for each in found)
            or any(attack.finds_some for attack in self.attacks)
        )


def leak_curve(
    train: Sequence[DAG],
    held_out: Sequence[DAG],
    generated: Sequence[DAG],
    *,
    numbers: Sequence[int] = NUMBERS,
    seed: int = 0,
    measured: Sequence[int] = (),
    numeric: Sequence[int] = (),
    is_enough: Callable[[], bool] = lambda: False,
) -> tuple[LeakRow, ...]:
    """Return what ``numbers`` of the samples and all of them give away, in ascending order.

    The samples of a smaller number are among those of every larger one, drawn at random, so that
    the order in which they were made does not matter.

    Args:
        train: Graphs that the generator learned from.
        held_out: Real graphs that it never saw. Without any there is nothing to compare with.
        generated: Samples, with the conditions that were asked for.
        numbers: Of samples; those above the number there are count for nothing.
        seed: Of the draw, and of the figures.
        measured: Columns of ``x_NA`` that hold measurements, such as durations. If there are any,
            one more attack looks at the graphs without them.
        numeric: Columns that hold other numbers, such as FLOPs: the size of a model is read there.
        is_enough: Asked before each smaller number, from large to small; the rest is left out.
    """
    if not held_out or not train or not generated:
        return ()
    pool = AttackPool(train, held_out, generated, measured=measured, numeric=numeric)
    order_K = random_order(len(generated), seed)
    counts = {*(n for n in numbers if n < len(generated)), len(generated)}
    rows = list(_rows(pool, order_K, sorted(counts, reverse=True), seed, is_enough))
    return tuple(reversed(rows))


def random_order(count: int, seed: int) -> np.ndarray:
    """Return the order in which samples are taken: the first ones are those of small numbers."""
    return numpy_generator(seed, "leak series").permutation(count)


def _rows(
    pool: AttackPool,
    order_K: np.ndarray,
    counts: Sequence[int],
    seed: int,
    is_enough: Callable[[], bool] = lambda: False,
) -> Iterator[LeakRow]:
    with stage("reading traits of graphs", len(order_K)):
        attacks, traits = all_attacks(pool), traits_of(pool, seed)
    for count in counts:
        if count < counts[0] and is_enough():
            return
        roles = replace(pool.roles, sample_K=pool.roles.sample_K[order_K[:count]])
        with stage(f"attacks by {count:,} samples", count):
            yield _row(pool, attacks, traits, roles, seed)


def _row(
    pool: AttackPool,
    attacks: Sequence[SampleAttack],
    traits: Sequence[Trait],
    roles: Roles,
    seed: int,
) -> LeakRow:
    to_train_KT, to_held_KH = (
        pool.distances(rows_G, roles.sample_K).T for rows_G in (roles.member_T, roles.other_H)
    )
    near = nearness_by_distance(to_train_KT, to_held_KH, seed)
    found = identified_traits(pool, traits, roles, seed)
    whole = inferred_properties(pool, traits, roles, seed)
    inferences = found if whole is None else (*found, whole)
    return LeakRow(roles.sample_K.size, near, attack_outcomes(attacks, roles, seed), inferences)


class ReservoirSample:
    """At most so many samples of a stream, drawn at random: the first ones of ``random_order``.

    Args:
        count: Number of samples that will come.
        most: Most that are held.
        seed: Of the draw.
    """

    def __init__(self, count: int, most: int = MOST_HELD, seed: int = 0) -> None:
        order_K = random_order(count, seed)
        self._rank_K = np.empty(count, dtype=np.int64)
        self._rank_K[order_K] = np.arange(count)
        self._most, self._seen = most, 0
        self._held: dict[int, DAG] = {}

    def add(self, dags: Sequence[DAG]) -> None:
        """Look at the next samples."""
        for rank, dag in zip(self._rank_K[self._seen :].tolist(), dags, strict=False):
            if rank < self._most:
                self._held[rank] = dag
        self._seen += len(dags)

    @property
    def held(self) -> tuple[DAG, ...]:
        """The samples, in the order in which they are taken."""
        return tuple(self._held[rank] for rank in sorted(self._held))


class LeakTally:
    """``leak_series`` of samples that come some at a time, however many there are.

    Nearness, the attacks by distance and by motifs look at every sample. What learns, aligns or
    infers looks at those of a ``RandomPart``, and says so (``Attack.sampled``,
    ``Inference.samples``): trees that know a million graphs by heart fit into no memory.

    Args:
        train: Graphs that the generator learned from, at least one.
        held_out: Real graphs that it never saw, at least one.
        count: Number of samples that will come.
        seed: Of the draw, and of the figures.
        measured: Columns that hold measurements.
        numeric: Columns that hold other numbers.
    """

    def __init__(
        self,
        train: Sequence[DAG],
        held_out: Sequence[DAG],
        count: int,
        *,
        seed: int = 0,
        measured: Sequence[int] = (),
        numeric: Sequence[int] = (),
    ) -> None:
        self._real = AttackPool(train, held_out, (), measured=measured, numeric=numeric)
        self._count, self._seed = count, seed
        real = self._real.roles
        self._roles = roles = replace(real, sample_K=np.zeros(count, dtype=np.int64))
        self._near = CloserToTrainingTally(real.member_T.size, real.other_H.size, seed)
        self._index = KernelIndex.from_dags(self._real.dags)
        self._nearest = NearestTally(NearestSample(self._real), roles)
        self._density = DensityTally(DensityRatio(self._real), roles, seed)
        self._motifs = MotifTally(UniqueMotifs(self._real), roles)
        self._program: NearestTally | None = None
        if measured:
            self._program = NearestTally(NearestProgram(self._real), roles)
            self._program_index = KernelIndex.from_dags(self._real.programs)

    def add(self, dags: Sequence[DAG]) -> None:
        """Look at the next samples, few enough for their distances to all real graphs."""
        distance_KG = self._index.distances(dags)
        self._near.add(*np.split(distance_KG, [self._roles.member_T.size], axis=1))
        self._nearest.add(distance_KG)
        self._density.add(distance_KG)
        programs = [program_of(dag, self._real.measured) for dag in dags]
        self._motifs.add(GraphSet.from_dags(programs))
        if self._program is not None:
            self._program.add(self._program_index.distances(programs))

    def rows(self, held: Sequence[DAG], numbers: Sequence[int] = NUMBERS) -> tuple[LeakRow, ...]:
        """Return what some of the samples and all of them give away, in ascending order.

        Args:
            held: Those of a ``RandomPart`` of the same seed.
            numbers: Of samples; those above the number held count for nothing.
        """
        train, held_out = (
            [self._real.dags[i] for i in rows.tolist()]
            for rows in (self._roles.member_T, self._roles.other_H)
        )
        pool = AttackPool(
            train, held_out, held, measured=self._real.measured, numeric=self._real.numeric
        )
        counts = {*(n for n in numbers if n < len(held)), len(held)}
        rows = tuple(_rows(pool, np.arange(len(held)), sorted(counts), self._seed))
        if len(held) == self._count:
            return rows
        return (*rows, self._of_all(rows[-1]))

    def _of_all(self, part: LeakRow) -> LeakRow:
        """Return what all samples give away; what looks at some only is that of the part."""
        every = {attack.name: attack for attack in self.outcomes()}
        attacks = (
            every.get(attack.name, replace(attack, sampled=part.samples)) for attack in part.attacks
        )
        return LeakRow(self._count, self.nearness, tuple(attacks), part.inferences)

    @property
    def nearness(self) -> DistanceToClosestRecord:
        """Whether all samples are nearer to training than to held-out graphs."""
        return self._near.result()

    def outcomes(self) -> Iterator[Attack]:
        """Yield what the attacks found that looked at every sample."""
        distances = (self._nearest, self._density, self._program)
        for tally in (each for each in distances if each is not None):
            attack = tally.attack
            found = tally.folds()
            yield from outcome_of(attack, found, self._roles, self._seed, attack.fractions)
        motifs = self._motifs
        yield from outcome_of(
            motifs.attack, motifs.folds(), self._roles, self._seed, lambda _: motifs.fractions()
        )
