"""Copies, near copies, and numbers that a single run has."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from leak_figures import closer_to_training, count_copies
from random_graphs import random_dag

from layerdag.dag.dag import DAG
from layerdag.errors import UsageError
from layerdag.privacy import copies as _copies
from layerdag.privacy.copies import (
    CopyComparison,
    CopyTest,
    KernelIndex,
    kernel_distances,
    keys_of_one_run,
    nearness_by_distance,
    novelty,
    tuple_keys,
)
from layerdag.statistics import Interval, Verdict


def dags(count: int, start: int = 0) -> list[DAG]:
    made = []
    for seed in range(start, start + count):
        rng = np.random.default_rng(seed)
        made.append(random_dag(rng, [3, 4, 4, 3], [5, 9], extra_edges=0.5, num_edge_types=1))
    return made


def with_column(dag: DAG, column: int, values: int) -> DAG:
    x_NA = dag.x_NA.clone()
    x_NA[:, column] = values
    return dag.with_columns(x_NA)


def test_a_copy_is_found_whatever_its_measured_column_says():
    train, held_out = dags(6), dags(6, 100)
    test = CopyTest(train, held_out, measured=(1,))
    copy = with_column(train[2], 1, 7)
    order = torch.randperm(copy.num_nodes, generator=torch.Generator().manual_seed(0))
    assert test.resemblances([copy, copy.permuted(order)]) == [CopyComparison.COPY] * 2
    assert test.resemblances([held_out[0]]) == [CopyComparison.COPY]
    assert CopyTest(train, held_out).resemblances([copy]) != [CopyComparison.COPY]


def test_a_graph_that_differs_in_one_node_is_near_and_a_strange_one_is_new():
    train = dags(8)
    test = CopyTest(train, dags(30, 100))
    x_NA = train[0].x_NA.clone()
    x_NA[-1, 0] = (x_NA[-1, 0] + 1) % 5
    assert test.resemblances([train[0].with_columns(x_NA)]) == [CopyComparison.NEAR]
    news = test.resemblances(dags(40, 500))
    # A twentieth, but for chance: all random graphs are about as far from each other.
    assert news.count(CopyComparison.NEW) >= 30


def test_without_held_out_graphs_nothing_is_near():
    test = CopyTest(dags(3), [])
    assert test.threshold == 0
    assert test.resemblances(dags(3, 50)) == [CopyComparison.NEW] * 3


def test_repeated_programs_do_not_pull_the_threshold_to_zero():
    train = dags(5)
    assert CopyTest(train, [*train[:3], *dags(5, 100)]).threshold > 0


def test_copies_are_counted_in_a_stream(monkeypatch):
    monkeypatch.setattr(_copies, "CHUNK", 3)
    rng = np.random.default_rng(2)
    real = [random_dag(rng, [2, 2], [4]) for _ in range(8)]
    made = [*real[:2], *(random_dag(rng, [3, 1], [4]) for _ in range(5))]
    found = count_copies(real[:5], real[5:], iter(made))
    assert found == count_copies(real[:5], real[5:], made)
    assert found.copied >= 2 / 7
    with pytest.raises(UsageError, match="generated set is empty"):
        count_copies(real[:5], real[5:], iter(()))


def test_the_program_of_a_graph_has_no_measured_column_and_keeps_the_rest():
    [dag] = dags(1)
    bare = dag.without_columns((1,))
    assert (bare.x_NA[:, 1] == 0).all()
    assert (bare.x_NA[:, 0] == dag.x_NA[:, 0]).all()
    assert (dag.x_NA[:, 1] != 0).any()


def test_keys_tell_operators_and_whole_numbers_apart():
    words = ["mm", "mm", "mm", "add", "mm"]
    flops = np.array([5.0, 5.2, 6.0, 5.0, np.nan])
    bytes_N = np.array([1.0, 1.0, 1.0, 1.0, 0.0])
    keys = tuple_keys(words, [flops, bytes_N])
    assert keys[0] == keys[1]
    assert len({int(key) for key in keys[[0, 2, 3]]}) == 3
    assert keys[4] == 0  # no number is stated


def test_only_numbers_of_a_single_run_are_unique():
    a = np.array([1, 2, 2, 0], dtype=np.uint64)
    b = np.array([2, 3], dtype=np.uint64)
    c = np.array([3, 4], dtype=np.uint64)
    assert keys_of_one_run([a, b, c], ["r", "s", "s"]).tolist() == [1, 3, 4]
    assert keys_of_one_run([], []).size == 0


def _graphs(rng: np.random.Generator, count: int) -> list[DAG]:
    return [random_dag(rng, [2, 3, 3], [4, 3]) for _ in range(count)]


def test_novelty_counts_copies_repeats_and_invalid_graphs(rng):
    train, held_out, fresh = _graphs(rng, 4), _graphs(rng, 4), _graphs(rng, 2)
    shuffled = train[0].permuted(torch.from_numpy(rng.permutation(train[0].num_nodes)))
    generated = [shuffled, fresh[0], fresh[0], fresh[1]]
    result = novelty(train, held_out, generated, np.array([True, True, True, False]))
    assert (result.valid, result.unique, result.novel) == (0.75, 0.75, 0.75)
    assert result.vun == 0.25  # the copy, the repeat and the invalid graph all drop out
    assert (result.vun_interval.low, result.vun_interval.high) == pytest.approx(
        (0.0456, 0.6994), abs=1e-4
    )
    assert result.copied == 0.25
    assert result.copied_real == 0.0


def test_a_copying_generator_is_nearer_to_training(rng):
    train, held_out = _graphs(rng, 10), _graphs(rng, 10)
    copied = closer_to_training(train, held_out, train)
    assert copied.dcr_share == 1.0
    assert copied.interval.low > 0.5
    assert copied.median_to_train == pytest.approx(0, abs=1e-6)


def test_nearness_of_graphs_in_both_sets_is_a_tie(rng):
    both = _graphs(rng, 6)
    assert closer_to_training(both, both, both).dcr_share == 0.5


def test_nearness_does_not_favor_the_larger_of_two_sets(rng):
    # The nearest of 60 graphs is nearer than the nearest of 6, whoever made them.
    many, few, generated = _graphs(rng, 60), _graphs(rng, 6), _graphs(rng, 80)
    for result in (
        closer_to_training(many, few, generated),
        closer_to_training(few, many, generated),
    ):
        assert result.interval.low < 0.5 < result.interval.high


def test_kernel_distance_is_zero_for_isomorphic_graphs_and_sees_direction(rng):
    dag = _graphs(rng, 1)[0]
    shuffled = dag.permuted(torch.from_numpy(rng.permutation(dag.num_nodes)))
    turned = DAG.build(dag.x_NA, dag.edge_index_2E.flip(0))
    distance = kernel_distances([dag], [shuffled, turned])
    assert distance[0, 0] == pytest.approx(0, abs=1e-6)
    assert 0 < distance[0, 1] <= np.sqrt(2)


def test_wilson_interval_of_a_certain_outcome_is_not_certain():
    # 10 of 10: the lower end is 1 / (1 + z^2 / n) = 1 / (1 + 0.384)
    interval = Interval.wilson(1.0, 10)
    assert interval.low == pytest.approx(0.7225, abs=1e-3)
    assert interval.high == pytest.approx(1.0)


def test_an_empty_set_is_refused(rng):
    with pytest.raises(UsageError, match="the training set is empty"):
        novelty([], _graphs(rng, 1), _graphs(rng, 1))


def test_copies_are_counted_without_held_out_graphs(rng):
    train = _graphs(rng, 2)
    result = novelty(train, [], train)
    assert (result.copied, result.copied_real) == (1.0, None)


def test_many_samples_beside_few_real_graphs_are_too_few_to_tell(rng):
    # 3 real graphs on either side: which of the six is the nearest of most samples is chance,
    # however many samples there are.
    verdicts = set()
    for seed in range(5):
        drawn = np.random.default_rng(seed)
        result = closer_to_training(_graphs(drawn, 3), _graphs(drawn, 3), _graphs(drawn, 200), seed)
        verdicts.add(result.verdict)
        assert result.need is None or result.need.of == "held-out graphs"
    assert Verdict.CHANCE not in verdicts
    assert Verdict.TOO_FEW in verdicts


def test_few_samples_beside_many_real_graphs_are_too_few_to_tell(rng):
    result = closer_to_training(_graphs(rng, 150), _graphs(rng, 150), _graphs(rng, 30))
    assert result.verdict is Verdict.TOO_FEW
    assert result.need is not None
    assert (result.need.of, result.need.found) == ("samples", 30)
    assert 100 < result.need.count < 3000
    assert "30 samples, about" in result.in_words()


def test_kernel_distances_do_not_depend_on_the_other_graphs(rng):
    left, right = _graphs(rng, 3), _graphs(rng, 4)
    together = kernel_distances(left, right)
    assert together.shape == (3, 4)
    for i, one in enumerate(left):
        for j, other in enumerate(right):
            alone = kernel_distances([one], [other])[0, 0]
            assert together[i, j] == pytest.approx(alone, abs=1e-9)


def test_graphs_that_share_no_kind_of_node_are_as_far_apart_as_can_be():
    none = torch.zeros(2, 0, dtype=torch.int64)
    one, other = (DAG.build(torch.full((2, 1), code), none) for code in (0, 1))
    assert kernel_distances([one], [other])[0, 0] == pytest.approx(np.sqrt(2))


def test_nearness_counts_the_nearer_side_and_ties_half():
    """Four samples: two nearer to training, one to held-out graphs, one to both."""
    to_train = np.array([[0.1, 0.9], [0.2, 0.8], [0.9, 0.7], [0.4, 0.9]])
    to_held = np.array([[0.5, 0.6], [0.3, 0.4], [0.8, 0.1], [0.4, 0.5]])
    found = nearness_by_distance(to_train, to_held, seed=0)
    assert found.dcr_share == pytest.approx((1 + 1 + 0 + 0.5) / 4)
    assert (found.compared, found.samples) == (2, 4)
    assert found.median_to_train == pytest.approx(0.3)
    assert found.median_to_held_out == pytest.approx(0.35)
    turned = nearness_by_distance(to_held, to_train, seed=0)
    assert turned.dcr_share == pytest.approx(1 - found.dcr_share)


def test_wilson_intervals_miss_the_truth_one_time_in_twenty(rng):
    count, missed = 60, []
    for truth in np.linspace(0.1, 0.9, 17):
        for hits in rng.binomial(count, truth, 200):
            interval = Interval.wilson(hits / count, count)
            missed.append(not interval.low <= truth <= interval.high)
    assert np.mean(missed) == pytest.approx(0.05, abs=0.015)


def test_every_verdict_on_nearness_is_a_clause(rng):
    found = closer_to_training(_graphs(rng, 5), _graphs(rng, 5), _graphs(rng, 4))
    said = {verdict: replace(found, verdict=verdict).in_words() for verdict in Verdict}
    assert said[Verdict.LEAKS] == "nearer to training graphs"
    assert said[Verdict.CHANCE] == "as near to held-out graphs"
    assert said[Verdict.REVERSED] == "nearer to held-out graphs: the two parts are not alike"
    assert said[Verdict.TOO_FEW].startswith("too few graphs to tell (")
    assert len(set(said.values())) == len(Verdict)


def test_a_stream_of_samples_counts_as_a_list_of_them_does(rng):
    train, made = ([random_dag(rng, [2, 2], [3]) for _ in range(9)] for _ in range(2))
    made += train[:3]
    assert novelty(train, train[:2], iter(made)) == novelty(train, train[:2], made)
    with pytest.raises(UsageError, match="generated set is empty"):
        novelty(train, [], iter(()))


def test_distances_to_a_set_do_not_need_its_colors(rng):
    real = [random_dag(rng, [2, 2, 1], [3]) for _ in range(6)]
    odd = [random_dag(rng, [2, 2, 1], [3]).with_columns(torch.full((5, 1), 7)), *real[:2]]
    index = KernelIndex.from_dags(real)
    together = kernel_distances([*odd, *real], [*odd, *real])
    np.testing.assert_allclose(index.distances(odd), together[:3, 3:], atol=1e-7)
    assert index.distances(odd[:1]) == pytest.approx(np.sqrt(2))
