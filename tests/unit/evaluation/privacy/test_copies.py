"""Copies, near copies, and numbers that a single run has."""

import numpy as np
import pytest
import torch

from layerdag.errors import UsageError
from layerdag.evaluation.privacy import (
    CopyTest,
    Resemblance,
    _copies,
    count_copies,
    keys_of_one_run,
    program_of,
    tuple_keys,
)
from layerdag.graph import DAG, random_dag


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


def test_a_copy_is_found_whatever_its_measured_column_says() -> None:
    train, held_out = dags(6), dags(6, 100)
    test = CopyTest.of(train, held_out, measured=(1,))
    copy = with_column(train[2], 1, 7)
    order = torch.randperm(copy.num_nodes, generator=torch.Generator().manual_seed(0))
    assert test.resemblances([copy, copy.permuted(order)]) == [Resemblance.COPY] * 2
    assert test.resemblances([held_out[0]]) == [Resemblance.COPY]
    assert CopyTest.of(train, held_out).resemblances([copy]) != [Resemblance.COPY]


def test_a_graph_that_differs_in_one_node_is_near_and_a_strange_one_is_new() -> None:
    train = dags(8)
    test = CopyTest.of(train, dags(30, 100))
    x_NA = train[0].x_NA.clone()
    x_NA[-1, 0] = (x_NA[-1, 0] + 1) % 5
    assert test.resemblances([train[0].with_columns(x_NA)]) == [Resemblance.NEAR]
    news = test.resemblances(dags(40, 500))
    # A twentieth, but for chance: all random graphs are about as far from each other.
    assert news.count(Resemblance.NEW) >= 30


def test_without_held_out_graphs_nothing_is_near() -> None:
    test = CopyTest.of(dags(3), [])
    assert test.threshold == 0
    assert test.resemblances(dags(3, 50)) == [Resemblance.NEW] * 3


def test_repeated_programs_do_not_pull_the_threshold_to_zero() -> None:
    train = dags(5)
    assert CopyTest.of(train, [*train[:3], *dags(5, 100)]).threshold > 0


def test_copies_are_counted_in_a_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_copies, "CHUNK", 3)
    rng = np.random.default_rng(2)
    real = [random_dag(rng, [2, 2], [4]) for _ in range(8)]
    made = [*real[:2], *(random_dag(rng, [3, 1], [4]) for _ in range(5))]
    found = count_copies(real[:5], real[5:], iter(made))
    assert found == count_copies(real[:5], real[5:], made)
    assert found.copied >= 2 / 7
    with pytest.raises(UsageError, match="generated set is empty"):
        count_copies(real[:5], real[5:], iter(()))


def test_the_program_of_a_graph_has_no_measured_column_and_keeps_the_rest() -> None:
    [dag] = dags(1)
    bare = program_of(dag, (1,))
    assert (bare.x_NA[:, 1] == 0).all()
    assert (bare.x_NA[:, 0] == dag.x_NA[:, 0]).all()
    assert (dag.x_NA[:, 1] != 0).any()


def test_keys_tell_operators_and_whole_numbers_apart() -> None:
    words = ["mm", "mm", "mm", "add", "mm"]
    flops = np.array([5.0, 5.2, 6.0, 5.0, np.nan])
    bytes_N = np.array([1.0, 1.0, 1.0, 1.0, 0.0])
    keys = tuple_keys(words, [flops, bytes_N])
    assert keys[0] == keys[1]
    assert len({int(key) for key in keys[[0, 2, 3]]}) == 3
    assert keys[4] == 0  # no number is stated


def test_only_numbers_of_a_single_run_are_unique() -> None:
    a = np.array([1, 2, 2, 0], dtype=np.uint64)
    b = np.array([2, 3], dtype=np.uint64)
    c = np.array([3, 4], dtype=np.uint64)
    assert keys_of_one_run([a, b, c], ["r", "s", "s"]).tolist() == [1, 3, 4]
    assert keys_of_one_run([], []).size == 0
