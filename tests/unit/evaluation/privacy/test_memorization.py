import numpy as np
import pytest
import torch

from layerdag._runtime import RenamedWarning
from layerdag.errors import UsageError
from layerdag.evaluation import privacy
from layerdag.evaluation.privacy import DistanceToClosestRecord, Verdict, novelty
from layerdag.evaluation.privacy._memorization import kernel_distances, nearness, wilson_interval
from layerdag.graph import DAG, random_dag


def _graphs(rng: np.random.Generator, count: int) -> list[DAG]:
    return [random_dag(rng, [2, 3, 3], [4, 3]) for _ in range(count)]


def test_novelty_counts_copies_repeats_and_invalid_graphs(rng: np.random.Generator) -> None:
    train, held_out, fresh = _graphs(rng, 4), _graphs(rng, 4), _graphs(rng, 2)
    shuffled = train[0].permuted(torch.from_numpy(rng.permutation(train[0].num_nodes)))
    generated = [shuffled, fresh[0], fresh[0], fresh[1]]
    result = novelty(train, held_out, generated, np.array([True, True, True, False]))
    assert (result.valid, result.unique, result.novel) == (0.75, 0.75, 0.75)
    assert result.vun == 0.25  # the copy, the repeat and the invalid graph all drop out
    assert result.copied == 0.25
    assert result.copied_real == 0.0


def test_a_copying_generator_is_nearer_to_training(rng: np.random.Generator) -> None:
    train, held_out = _graphs(rng, 10), _graphs(rng, 10)
    copied = nearness(train, held_out, train)
    assert copied.dcr_share == 1.0
    assert copied.interval.low > 0.5
    assert copied.median_to_train == pytest.approx(0, abs=1e-6)


def test_nearness_of_graphs_in_both_sets_is_a_tie(rng: np.random.Generator) -> None:
    both = _graphs(rng, 6)
    assert nearness(both, both, both).dcr_share == 0.5


def test_nearness_compares_with_equally_many_of_both(rng: np.random.Generator) -> None:
    assert nearness(_graphs(rng, 9), _graphs(rng, 4), _graphs(rng, 3)).compared == 4


def test_nearness_does_not_favor_the_larger_of_two_sets(rng: np.random.Generator) -> None:
    # The nearest of 60 graphs is nearer than the nearest of 6, whoever made them.
    many, few, generated = _graphs(rng, 60), _graphs(rng, 6), _graphs(rng, 80)
    for result in (nearness(many, few, generated), nearness(few, many, generated)):
        assert result.interval.low < 0.5 < result.interval.high


def test_kernel_distance_is_zero_for_isomorphic_graphs_and_sees_direction(
    rng: np.random.Generator,
) -> None:
    dag = _graphs(rng, 1)[0]
    shuffled = dag.permuted(torch.from_numpy(rng.permutation(dag.num_nodes)))
    turned = DAG.build(dag.x_NA, dag.edge_index_2E.flip(0))
    distance = kernel_distances([dag], [shuffled, turned])
    assert distance[0, 0] == pytest.approx(0, abs=1e-6)
    assert 0 < distance[0, 1] <= np.sqrt(2)


def test_wilson_interval_of_a_certain_outcome_is_not_certain() -> None:
    # 10 of 10: the lower end is 1 / (1 + z^2 / n) = 1 / (1 + 0.384)
    interval = wilson_interval(1.0, 10)
    assert interval.low == pytest.approx(0.7225, abs=1e-3)
    assert interval.high == pytest.approx(1.0)


def test_an_empty_set_is_refused(rng: np.random.Generator) -> None:
    with pytest.raises(UsageError, match="the training set is empty"):
        novelty([], _graphs(rng, 1), _graphs(rng, 1))
    with pytest.raises(UsageError, match="the held-out set is empty"):
        nearness(_graphs(rng, 1), [], _graphs(rng, 1))


def test_copies_are_counted_without_held_out_graphs(rng: np.random.Generator) -> None:
    train = _graphs(rng, 2)
    result = novelty(train, [], train)
    assert (result.copied, result.copied_real) == (1.0, None)


def test_many_samples_beside_few_real_graphs_are_too_few_to_tell(rng: np.random.Generator) -> None:
    # 3 real graphs on either side: which of the six is the nearest of most samples is chance,
    # however many samples there are.
    verdicts = set()
    for seed in range(5):
        drawn = np.random.default_rng(seed)
        result = nearness(_graphs(drawn, 3), _graphs(drawn, 3), _graphs(drawn, 200), seed)
        verdicts.add(result.verdict)
        assert result.need is None or result.need.of == "held-out graphs"
    assert Verdict.CHANCE not in verdicts
    assert Verdict.TOO_FEW in verdicts


def test_few_samples_beside_many_real_graphs_are_too_few_to_tell(rng: np.random.Generator) -> None:
    result = nearness(_graphs(rng, 150), _graphs(rng, 150), _graphs(rng, 30))
    assert result.verdict is Verdict.TOO_FEW
    assert result.need is not None
    assert (result.need.of, result.need.found) == ("samples", 30)
    assert 100 < result.need.count < 3000
    assert "30 samples, about" in result.in_words()


def test_old_names_are_read_and_saved_as_ever(rng: np.random.Generator) -> None:
    found = nearness(_graphs(rng, 5), _graphs(rng, 5), _graphs(rng, 4))
    with pytest.warns(RenamedWarning, match=r"'Nearness\.share' is now called 'dcr_share'"):
        assert found.share == found.dcr_share
    with pytest.warns(RenamedWarning, match="'share' is now called 'dcr_share'"):
        assert DistanceToClosestRecord(**found.to_dict()) == found
    with pytest.warns(RenamedWarning, match="is now called 'DistanceToClosestRecord'"):
        assert privacy.Nearness is DistanceToClosestRecord
