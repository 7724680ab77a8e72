"""What samples reveal, by their number: more samples can only reveal more.

A figure of 30 samples says nothing of 400 samples of the same generator, so that the number of
samples belongs to every such figure.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from layerdag._runtime import numpy_generator
from layerdag.evaluation.privacy._membership import Attack
from layerdag.evaluation.privacy._memorization import (
    DistanceToClosestRecord,
    nearness_by_distance,
)
from layerdag.evaluation.privacy._verdict import Verdict
from layerdag.evaluation.privacy.attacks import (
    Inference,
    Pool,
    Roles,
    all_attacks,
    attacked,
    identified_traits,
    inferred_properties,
    succeeds_among_all,
    traits_of,
)
from layerdag.graph import DAG

NUMBERS = (30, 100, 400, 1000)


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
            or any(succeeds_among_all(each) for each in found)
            or any(attack.finds_some for attack in self.attacks)
        )


def leak_series(
    train: Sequence[DAG],
    held_out: Sequence[DAG],
    generated: Sequence[DAG],
    *,
    numbers: Sequence[int] = NUMBERS,
    seed: int = 0,
    measured: Sequence[int] = (),
    numeric: Sequence[int] = (),
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
    """
    if not held_out or not train or not generated:
        return ()
    pool = Pool(train, held_out, generated, measured=measured, numeric=numeric)
    attacks, traits = all_attacks(pool), traits_of(pool, seed)
    order_K = numpy_generator(seed, "leak series").permutation(len(generated))
    member_T, other_H = pool.roles.member_T, pool.roles.other_H
    rows = []
    for count in sorted({*(n for n in numbers if n < len(generated)), len(generated)}):
        roles = Roles(member_T, other_H, pool.roles.sample_K[order_K[:count]])
        to_train_KT, to_held_KH = (
            pool.distances(rows_G, roles.sample_K).T for rows_G in (member_T, other_H)
        )
        near = nearness_by_distance(to_train_KT, to_held_KH, seed)
        found = identified_traits(pool, traits, roles, seed)
        whole = inferred_properties(pool, traits, roles, seed)
        inferences = found if whole is None else (*found, whole)
        rows.append(LeakRow(count, near, attacked(attacks, roles, seed), inferences))
    return tuple(rows)
