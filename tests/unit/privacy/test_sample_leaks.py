import numpy as np
import torch
from leak_figures import closer_to_training, sample_attacks
from random_graphs import random_dag

from layerdag.dag.dag import DAG
from layerdag.privacy.sample_leaks import LeakTally, ReservoirSample, sample_leaks
from layerdag.statistics import Verdict

BY_DISTANCE = ("nearest_sample", "density_ratio")
LEARNED = ("calibrated_classifier", "unique_motifs", "reconstruction")


def graphs(rng: np.random.Generator, count: int) -> list[DAG]:
    return [random_dag(rng, [2, 3, 3], [4, 3]) for _ in range(count)]


def test_figures_are_those_of_each_part_alone_with_their_verdicts(rng):
    train, held_out, made = graphs(rng, 9), graphs(rng, 8), graphs(rng, 12)
    found = sample_leaks(train, held_out, made)
    assert found.samples == 12
    assert found.attacks[:2] == sample_attacks(train, held_out, made)
    assert found.nearness == closer_to_training(train, held_out, made)
    # No column is measured, so that no attack looks at programs without it.
    assert [attack.name for attack in found.attacks] == [*BY_DISTANCE, *LEARNED]
    assert [read.name for read in found.inferences] == ["model:depth", "model:width", "properties"]
    figures = (found.nearness, *found.attacks, *found.inferences)
    assert [*found.verdicts.values()] == [figure.verdict for figure in figures]


def test_the_seed_is_of_figures_that_draw_and_of_no_other(rng):
    train, held_out, made = graphs(rng, 12), graphs(rng, 12), graphs(rng, 20)
    first, again, other = (sample_leaks(train, held_out, made, seed=seed) for seed in (0, 0, 1))
    assert first == again
    assert first.attacks[0].auc == other.attacks[0].auc
    assert first.attacks[1].auc != other.attacks[1].auc


def test_without_graphs_of_each_set_nothing_can_be_told(rng):
    assert sample_leaks(graphs(rng, 3), [], graphs(rng, 3)) is None
    assert sample_leaks([], graphs(rng, 3), graphs(rng, 3)) is None
    assert sample_leaks(graphs(rng, 3), graphs(rng, 3), []) is None


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
    found = sample_leaks(train, held_out, made, measured=(2,))
    areas = {attack.name: attack.auc for attack in found.attacks}
    assert list(areas) == [*BY_DISTANCE, "nearest_program", *LEARNED]
    assert areas["nearest_program"] == 1.0
    assert areas["nearest_sample"] < 0.75
    assert found.verdicts["nearest_program"] is Verdict.LEAKS


def test_of_more_samples_than_are_held_what_learns_looks_at_a_random_part_and_says_so(rng):
    train, held_out, made = graphs(rng, 9), graphs(rng, 8), graphs(rng, 23)
    tally, part = LeakTally(train, held_out, len(made)), ReservoirSample(len(made), most=12)
    for first in (0, 20):
        tally.add(made[first : first + 20])
        part.add(made[first : first + 20])
    every, known = tally.result([*part.held.values()]), sample_leaks(train, held_out, made)
    some = LeakTally(train, held_out, 12).result([*part.held.values()])

    assert (every.samples, some.samples) == (23, 12)
    assert every.nearness == known.nearness
    for attack, of_all, of_some in zip(every.attacks, known.attacks, some.attacks, strict=True):
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
    assert list(whole.held) == list(one_by_one.held)
    assert all(dag is made[number] for number, dag in one_by_one.held.items())
