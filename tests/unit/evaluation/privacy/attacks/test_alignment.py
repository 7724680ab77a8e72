"""Reconstruction by alignment, against the textbook table of common subsequences."""

import numpy as np
import pytest
import torch

from layerdag.evaluation.privacy.attacks import Pool, _alignment
from layerdag.evaluation.privacy.attacks._alignment import Reconstruction, common_length
from layerdag.graph import DAG, random_dag


def by_table(first: list[int], second: list[int]) -> int:
    table = np.zeros((len(first) + 1, len(second) + 1), dtype=int)
    for i, a in enumerate(first):
        for j, b in enumerate(second):
            table[i + 1, j + 1] = (
                table[i, j] + 1 if a == b else max(table[i, j + 1], table[i + 1, j])
            )
    return int(table[-1, -1])


def test_lengths_are_those_of_the_table(rng: np.random.Generator) -> None:
    for _ in range(60):
        words = [rng.integers(0, 4, rng.integers(0, 70)).tolist() for _ in range(2)]
        assert common_length(*words) == by_table(*words)
    assert common_length([], [1]) == common_length([1], []) == 0
    assert common_length([1, 2, 3] * 50, [1, 2, 3] * 50) == 150


def path(*codes: int) -> DAG:
    size = len(codes)
    edges = torch.stack([torch.arange(size - 1), torch.arange(1, size)])
    return DAG.build(torch.tensor(codes)[:, None], edges)


def test_the_fraction_is_of_the_larger_graph() -> None:
    pool = Pool([path(0, 1, 2, 3)], [path(7, 7)], [path(0, 1, 2, 3, 4, 4, 4, 4), path(0, 2)])
    attack = Reconstruction(pool)
    assert attack.best_fractions(np.array([0, 1]), np.array([2])).tolist() == [0.5, 0.0]
    assert attack.best_fractions(np.array([0]), np.array([2, 3])).tolist() == [0.5]
    assert attack.fractions(pool.roles) == (0.5, 0.0)


def test_order_along_the_layers_counts() -> None:
    pool = Pool([path(0, 1, 2)], [path(7, 7)], [path(2, 1, 0)])
    assert Reconstruction(pool).fractions(pool.roles)[0] == pytest.approx(1 / 3)


def test_the_best_sample_is_found_without_aligning_with_every_one(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    dags = [random_dag(rng, [2, 3, 3], [4]) for _ in range(30)]
    pool = Pool(dags[:5], dags[5:10], dags[10:])
    few = Reconstruction(pool).best_fractions(pool.roles.real_G, pool.roles.sample_K)
    monkeypatch.setattr(_alignment, "MOST_ALIGNED", 20)
    monkeypatch.setattr(_alignment, "CHUNK", 3)
    every = Reconstruction(pool)
    assert every.best_fractions(pool.roles.real_G, pool.roles.sample_K) == pytest.approx(
        few, abs=0.13
    )
    slow = [
        max(every._aligned(real, sample) for sample in pool.roles.sample_K.tolist())
        for real in pool.roles.real_G.tolist()
    ]
    assert every.best_fractions(pool.roles.real_G, pool.roles.sample_K).tolist() == slow
