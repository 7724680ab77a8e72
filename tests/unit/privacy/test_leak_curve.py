import numpy as np
import torch
from random_graphs import random_dag

from layerdag.dag.dag import DAG
from layerdag.privacy.attacks import sample_attacks
from layerdag.privacy.copies import closer_to_training
from layerdag.privacy.leak_curve import LeakTally, ReservoirSample, leak_curve
from layerdag.privacy.membership import Verdict

BY_DISTANCE = ("nearest_sample", "density_ratio")
LEARNED = ("calibrated_classifier", "unique_motifs", "reconstruction")


def graphs(rng: np.random.Generator, count: int) -> list[DAG]:
    return [random_dag(rng, [2, 3, 3], [4, 3]) for _ in range(count)]


def test_numbers_of_samples_are_those_asked_for_and_all_of_them(rng):
    train, held_out, made = graphs(rng, 5), graphs(rng, 5), graphs(rng, 32)
    assert [row.samples for row in leak_curve(train, held_out, made)] == [30, 32]
    assert [row.samples for row in leak_curve(train, held_out, made[:3])] == [3]
    rows = leak_curve(train, held_out, made[:9], numbers=(5, 7, 99))
    assert [row.samples for row in rows] == [5, 7, 9]


def test_a_row_has_what_the_figures_alone_give_and_their_verdicts(rng):
    train, held_out, made = graphs(rng, 9), graphs(rng, 8), graphs(rng, 12)
    (row,) = leak_curve(train, held_out, made)
    assert row.attacks[:2] == sample_attacks(train, held_out, made)
    assert row.nearness == closer_to_training(train, held_out, made)
    # No column is measured, so that no attack looks at programs without it.
    assert [attack.name for attack in row.attacks] == [*BY_DISTANCE, *LEARNED]
    assert [found.name for found in row.inferences] == ["model:depth", "model:width", "properties"]
    figures = (row.nearness, *row.attacks, *row.inferences)
    assert row.verdicts == tuple(figure.verdict for figure in figures)


def test_fewer_samples_are_among_the_more(rng):
    # Each sample more can only bring the nearest one nearer: who is caught stays caught.
    train, held_out = graphs(rng, 12), graphs(rng, 12)
    rows = leak_curve(train, held_out, train, numbers=(4, 8))
    areas = [row.attacks[0].auc for row in rows]
    assert areas == sorted(areas)
    assert areas[-1] == 1.0


def test_a_generator_that_leaks_little_is_found_by_more_samples():
    rng = np.random.default_rng(5)
    train, held_out = graphs(rng, 120), graphs(rng, 120)
    made = [*train[:50], *graphs(rng, 70)]
    few, *_, many = leak_curve(train, held_out, made, numbers=(20,))
    assert few.attacks[0].verdict is not Verdict.LEAKS
    assert many.attacks[0].verdict is Verdict.LEAKS


def test_the_order_of_the_numbers_does_not_matter_and_none_stands_twice(rng):
    train, held_out, made = graphs(rng, 6), graphs(rng, 5), graphs(rng, 12)
    plain = leak_curve(train, held_out, made, numbers=(4, 8, 12))
    assert leak_curve(train, held_out, made, numbers=(12, 8, 4, 8)) == plain
    assert [row.samples for row in plain] == [4, 8, 12]


def test_the_seed_chooses_which_samples_are_few(rng):
    train, held_out, made = graphs(rng, 12), graphs(rng, 12), graphs(rng, 20)
    first, again, other = (
        leak_curve(train, held_out, made, numbers=(5,), seed=seed) for seed in (0, 0, 1)
    )
    assert first == again
    assert first[0].attacks[0].auc != other[0].attacks[0].auc
    # All samples are the same whatever their order.
    assert first[1].attacks[0].auc == other[1].attacks[0].auc


def test_without_graphs_of_each_set_there_is_no_row(rng):
    assert leak_curve(graphs(rng, 3), [], graphs(rng, 3)) == ()
    assert leak_curve([], graphs(rng, 3), graphs(rng, 3)) == ()
    assert leak_curve(graphs(rng, 3), graphs(rng, 3), []) == ()


def with_durations(rng: np.random.Generator, dags: list[DAG]) -> list[DAG]:
    """Return the graphs with a third column that is drawn anew."""
    return [
        DAG.build(
            torch.cat([dag.x_NA, torch.from_numpy(rng.integers(0, 99, (dag.num_nodes, 1)))], dim=1),
            dag.edge_index_2E,
        )
        for dag in dags
    ]


def test_training_graphs_that_were_measured_again_are_found_by_their_programs(rng):
    programs, others = graphs(rng, 30), graphs(rng, 30)
    train, made, held_out = (with_durations(rng, dags) for dags in (programs, programs, others))
    (row,) = leak_curve(train, held_out, made, numbers=(), measured=(2,))
    areas = {attack.name: attack.auc for attack in row.attacks}
    assert list(areas) == [*BY_DISTANCE, "nearest_program", *LEARNED]
    assert areas["nearest_program"] == 1.0
    assert areas["nearest_sample"] < 0.75
    assert row.verdicts[3] is Verdict.LEAKS


def test_fewer_samples_are_the_same_ones_to_the_attack_on_programs(rng):
    train, held_out = (with_durations(rng, graphs(rng, 12)) for _ in range(2))
    rows = leak_curve(train, held_out, train, numbers=(5,), measured=(2,))
    for row in rows:
        plain, _, program, *_ = row.attacks
        assert program.auc >= plain.auc - 1e-12


def test_of_more_samples_than_are_held_what_learns_looks_at_a_random_part_and_says_so(rng):
    train, held_out, made = graphs(rng, 9), graphs(rng, 8), graphs(rng, 23)
    tally, part = LeakTally(train, held_out, len(made)), ReservoirSample(len(made), most=12)
    for first in (0, 20):
        tally.add(made[first : first + 20])
        part.add(made[first : first + 20])
    few, some, every = tally.rows(part.held, numbers=(5, 12, 23))
    known = leak_curve(train, held_out, made, numbers=(5,))

    assert [row.samples for row in (few, some, every)] == [5, 12, 23]
    assert (few.nearness, few.attacks) == (known[0].nearness, known[0].attacks)
    assert every.nearness == known[1].nearness
    for attack, of_all, of_some in zip(every.attacks, known[1].attacks, some.attacks, strict=True):
        if attack.name in ("calibrated_classifier", "reconstruction"):
            assert attack.sampled == 12
            assert attack.to_dict() == of_some.to_dict() | {"sampled": 12}
        else:
            assert attack == of_all
    assert every.inferences == some.inferences


def test_the_random_part_is_the_same_however_the_samples_come(rng):
    made = graphs(rng, 9)
    whole, one_by_one = ReservoirSample(9, most=4, seed=1), ReservoirSample(9, most=4, seed=1)
    whole.add(made)
    for dag in made:
        one_by_one.add([dag])
    assert len(whole.held) == 4
    assert all(a is b for a, b in zip(whole.held, one_by_one.held, strict=True))
    assert set(map(id, whole.held)) <= set(map(id, made))
