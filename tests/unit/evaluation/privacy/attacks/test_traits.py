"""Which properties of graphs count as traits, and the codes that stand for their values."""

import numpy as np
import pytest
import torch

from layerdag.evaluation.privacy.attacks import Pool, Trait, traits_of
from layerdag.evaluation.privacy.attacks._traits import GRAPHS_PER_VALUE, MOST_VALUES
from layerdag.graph import DAG, random_dag


def job(code: int, **conditions: float | str) -> DAG:
    """Return a path of six nodes, all of one code."""
    edges = torch.stack([torch.arange(5), torch.arange(1, 6)])
    return DAG.build(torch.full((6, 1), code), edges).with_conditions(conditions)


def traits(real: list[DAG], made: list[DAG], seed: int = 0) -> dict[str, Trait]:
    half = len(real) // 2
    pool = Pool(real[:half], real[half:], made)
    return {trait.name: trait for trait in traits_of(pool, seed)}


def test_a_condition_needs_two_values_and_graphs_enough_of_them() -> None:
    two = [job(i % 2, family=f"f{i % 2}", tp=float(i % 2), same="x") for i in range(12)]
    assert list(traits(two, two[:1])) == ["family", "tp", "depth", "width"]
    each_its_own = [job(i % 2, name=f"job{i}") for i in range(12)]
    assert list(traits(each_its_own, two[:1])) == ["depth", "width"]
    three_of_eleven = [job(i % 3, family=f"f{i % 3}") for i in range(11)]
    assert 11 // GRAPHS_PER_VALUE == 2
    assert "family" not in traits(three_of_eleven, two[:1])
    assert "family" in traits([*three_of_eleven, job(2, family="f2")], two[:1])


@pytest.mark.parametrize("label", [0.5, float("nan"), float("inf")])
def test_numbers_that_are_not_whole_are_no_trait(label: float) -> None:
    real = [job(i % 2, label=label if i % 2 else 1.0) for i in range(12)]
    assert "label" not in traits(real, real[:1])


def test_the_size_of_a_graph_is_no_condition_to_be_read() -> None:
    real = [job(i % 2, num_nodes=6.0 + i % 2, num_layers=6.0 + i % 2) for i in range(12)]
    assert list(traits(real, real[:1])) == ["depth", "width"]


def test_one_in_ten_real_graphs_may_be_silent_and_no_more() -> None:
    real = [job(i % 2, family=f"f{i % 2}") for i in range(20)]
    silent = job(0)
    some = traits([*real[:18], silent, silent], [job(0)])
    assert some["family"].code_P[18:20].tolist() == [-1, -1]
    assert "family" not in traits([*real[:17], silent, silent, silent], [job(0)])


def test_silence_is_not_the_word_none() -> None:
    real = [job(i % 2, family="None" if i % 2 else "gpt") for i in range(19)]
    found = traits([*real, job(0)], [job(0), job(1, family="None")])["family"]
    assert found.stated_P[19] == -1
    assert found.stated_P[20] == -1
    assert found.stated_P[21] == found.stated_P[1] >= 0


def test_what_is_read_of_a_sample_is_what_it_shows_and_not_what_it_states() -> None:
    real = [job(i % 2, family=f"f{i % 2}") for i in range(40)]
    liar, foreign = job(1, family="f0"), job(0, family="elsewhere")
    found = traits(real, [liar, foreign])["family"]
    assert found.code_P[40:].tolist() == [1, 0]
    assert found.stated_P[40:].tolist() == [0, -1]
    assert found.code_P[:40].tolist() == found.stated_P[:40].tolist() == [0, 1] * 20


def test_values_beyond_the_limit_are_too_many() -> None:
    many = [job(0, family=f"f{i % (MOST_VALUES + 1)}") for i in range(5 * (MOST_VALUES + 1))]
    assert "family" not in traits(many, [job(0)])


def test_what_is_seen_is_the_same_whatever_the_seed_and_the_order_of_nodes() -> None:
    rng = np.random.default_rng(0)
    dags = [random_dag(rng, rng.integers(1, 5, 4).tolist(), [4, 6]) for _ in range(9)]
    mixed = [dag.permuted(torch.from_numpy(rng.permutation(dag.num_nodes))) for dag in dags]
    for name in ("depth", "width", "size"):
        first, second = (
            {t.name: t for t in traits_of(Pool(d[:3], d[3:6], d[6:], numeric=(1,)), seed)}[name]
            for d, seed in ((dags, 0), (mixed, 1))
        )
        assert first.code_P.tolist() == second.code_P.tolist()
        assert set(first.stated_P.tolist()) == {-1}


def test_size_is_one_code_for_each_combination_of_largest_numbers() -> None:
    edge = torch.tensor([[0], [1]])
    rows = ([[0, 3, 1], [0, 1, 5]], [[0, 3, 5], [0, 0, 0]], [[0, 3, 4], [0, 0, 0]])
    dags = [DAG.build(torch.tensor(row), edge) for row in rows]
    pool = Pool(dags[:1], dags[1:2], dags[2:], numeric=(1, 2))
    size = traits_of(pool, 0)[-1].code_P
    assert size[0] == size[1] != size[2]
