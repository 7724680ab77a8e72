"""What samples reveal of the graphs that were trained on, in memory or read part by part."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from layerdag.dag.dag import DAG
from layerdag.privacy.attacks import (
    Inference,
    all_attacks,
    attack_outcomes,
    identified_traits,
    inferred_properties,
    outcome_of,
    significant_after_correction,
    tally_attacks,
)
from layerdag.privacy.copies import (
    CloserToTrainingTally,
    DistanceToClosestRecord,
    nearness_by_distance,
)
from layerdag.privacy.membership import AttackResult
from layerdag.privacy.membership_attacks import AttackPool, traits_of
from layerdag.runtime.rng import numpy_generator
from layerdag.runtime.terminal import stage
from layerdag.statistics import Verdict

MAX_HELD = 10_000
"""Most samples that are held at once; figures that need many at once use no more."""


@dataclass(frozen=True)
class SampleLeaks:
    """What samples give away. More samples can only reveal more: it holds for this number of them.

    Attributes:
        nearness: Are they nearer to training than to held-out graphs?
        attacks: Can they separate training graphs from held-out ones?
        inferences: What is read of training graphs besides: traits of single jobs ("model:..."),
            and properties of the set.
    """

    samples: int
    nearness: DistanceToClosestRecord
    attacks: tuple[AttackResult, ...]
    inferences: tuple[Inference, ...] = ()

    @property
    def verdicts(self) -> dict[str, Verdict]:
        """The verdict on each figure, by its name."""
        return {
            "nearness": self.nearness.verdict,
            **{attack.name: attack.verdict for attack in self.attacks},
            **{read.name: read.verdict for read in self.inferences},
        }

    @property
    def leaks(self) -> bool:
        """Whether anything succeeds, the attacks that are run beside it considered."""
        found: tuple[AttackResult | Inference, ...] = (*self.attacks, *self.inferences)
        return (
            self.nearness.verdict is Verdict.LEAKS
            or any(significant_after_correction(each) for each in found)
            or any(attack.finds_some for attack in self.attacks)
        )


def sample_leaks(
    train: Sequence[DAG],
    held_out: Sequence[DAG],
    generated: Sequence[DAG],
    measured: Sequence[int] = (),
    numeric: Sequence[int] = (),
    *,
    seed: int = 0,
) -> SampleLeaks | None:
    """Return what samples give away; None without graphs of each set.

    Args:
        train: Graphs that the generator learned from.
        held_out: Real graphs that it never saw. Without any there is nothing to compare with.
        generated: Samples, with the conditions that were asked for.
        seed: Of the figures.
        measured: Columns of ``x_NA`` that hold measurements, such as durations. If there are any,
            one more attack ignores them.
        numeric: Columns that hold other numbers, such as FLOPs: the size of a model is read there.
    """
    if not held_out or not train or not generated:
        return None
    pool = AttackPool(train, held_out, generated, measured=measured, numeric=numeric)
    return _leaks(pool, random_order(len(generated), seed), seed)


def random_order(count: int, seed: int) -> np.ndarray:
    """Return the order in which samples are taken, so that the one they were made in is nothing."""
    return numpy_generator(seed, "leak series").permutation(count)


def _leaks(pool: AttackPool, order_K: np.ndarray, seed: int) -> SampleLeaks:
    count = len(order_K)
    with stage("reading traits of graphs", count):
        attacks, traits = all_attacks(pool), traits_of(pool, seed)
    roles = replace(pool.roles, sample_K=pool.roles.sample_K[order_K])
    with stage(f"attacks by {count:,} samples", count):
        to_train_KT, to_held_KH = (
            pool.distances(rows_G, roles.sample_K).T for rows_G in (roles.member_T, roles.other_H)
        )
        near = nearness_by_distance(to_train_KT, to_held_KH, seed)
        found = identified_traits(pool, traits, roles, seed)
        whole = inferred_properties(pool, traits, roles, seed)
        inferences = found if whole is None else (*found, whole)
        return SampleLeaks(count, near, attack_outcomes(attacks, roles, seed), inferences)


class ReservoirSample:
    """At most so many samples of a stream, drawn at random: the first ones of ``random_order``."""

    def __init__(self, count: int, most: int = MAX_HELD, seed: int = 0) -> None:
        self._order = random_order(count, seed)[:most].tolist()
        self._seen = 0
        self._chosen = frozenset(self._order)
        self._held: dict[int, DAG] = {}

    def add(self, dags: Sequence[DAG]) -> None:
        """Look at the next samples."""
        for number, dag in enumerate(dags, self._seen):
            if number in self._chosen:
                self._held[number] = dag
        self._seen += len(dags)

    @property
    def held(self) -> dict[int, DAG]:
        """The samples by their number in the stream, in the order in which they are taken."""
        return {number: self._held[number] for number in self._order if number in self._held}


class LeakTally:
    """``sample_leaks`` of samples that come some at a time, however many there are.

    Nearness, the attacks by distance and by motifs use every sample. What learns, aligns or
    infers uses those of a ``ReservoirSample``, and says so (``AttackResult.sampled``,
    ``Inference.samples``): trees that know a million graphs by heart fit into no memory.
    """

    def __init__(
        self,
        train: Sequence[DAG],
        held_out: Sequence[DAG],
        count: int,
        measured: Sequence[int] = (),
        numeric: Sequence[int] = (),
    ) -> None:
        self._real = AttackPool(train, held_out, (), measured=measured, numeric=numeric)
        self._count = count
        real = self._real.roles
        self._roles = roles = replace(real, sample_K=np.zeros(count, dtype=np.int64))
        self._near = CloserToTrainingTally(real.member_T.size, real.other_H.size, 0)
        attacks = tally_attacks(self._real)
        self._tallies = [(attack, attack.tally(roles, 0)) for attack in attacks]

    def add(self, dags: Sequence[DAG]) -> None:
        """Look at the next samples, few enough for their distances to all real graphs."""
        part = self._real.further_samples(dags)
        self._near.add(*np.split(part.distance_KG, [self._roles.member_T.size], axis=1))
        for _, tally in self._tallies:
            tally.add(part)

    def result(self, held: Sequence[DAG]) -> SampleLeaks:
        """Return what all samples give away; figures that need many at once use ``held``."""
        train, held_out = (
            [self._real.dags[i] for i in rows.tolist()]
            for rows in (self._roles.member_T, self._roles.other_H)
        )
        pool = AttackPool(
            train, held_out, held, measured=self._real.measured, numeric=self._real.numeric
        )
        part = _leaks(pool, np.arange(len(held)), 0)
        if len(held) == self._count:
            return part
        every = {attack.name: attack for attack in self.outcomes()}
        attacks = (
            every.get(attack.name, replace(attack, sampled=part.samples)) for attack in part.attacks
        )
        return SampleLeaks(self._count, self.nearness, tuple(attacks), part.inferences)

    @property
    def nearness(self) -> DistanceToClosestRecord:
        """Whether all samples are nearer to training than to held-out graphs."""
        return self._near.result()

    def outcomes(self) -> Iterator[AttackResult]:
        """Yield the results of the attacks that use every sample."""
        for attack, tally in self._tallies:
            yield from outcome_of(attack, tally.folds(), self._roles, 0, tally.fractions())
