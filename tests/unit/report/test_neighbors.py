"""Which real graph is most like a sample."""

import pytest
import torch

from layerdag.graph import DAG
from layerdag.report import nearest_real


def chain(*codes: int, family: str = "gpt", time: int = 0) -> DAG:
    steps = torch.arange(len(codes) - 1)
    x_NA = torch.tensor([[code, time] for code in codes])
    dag = DAG.build(x_NA, torch.stack([steps, steps + 1]))
    return dag.with_conditions({"family": family})


def test_a_sample_stands_beside_the_graph_of_its_family_that_is_most_like_it() -> None:
    real = [chain(0, 1, 2), chain(0, 0, 0), chain(3, 3, 3, family="mlp")]
    (found,) = nearest_real(real, [chain(0, 0, 0, 0)])
    assert (found.sample, found.real, found.family, found.compared) == (0, 1, "gpt", 2)
    assert 0 < found.distance < found.usual


def test_times_do_not_count() -> None:
    real = [chain(0, 1, time=1), chain(0, 2, time=2)]
    (found,) = nearest_real(real, [chain(0, 1, time=2)], measured=(1,))
    assert found.real == 0
    assert found.distance == pytest.approx(0, abs=1e-6)


def test_the_most_frequent_families_come_first_and_those_without_real_graphs_never() -> None:
    real = [chain(0, 1), chain(0, 1, family="mlp")]
    samples = [
        chain(0, 1, family="mlp"), chain(0, 1), chain(0, 2), chain(0, 0, family="cnn"),
        chain(0, 0, family="cnn"), chain(0, 0, family="cnn"),
    ]  # fmt: skip
    assert [one.family for one in nearest_real(real, samples)] == ["gpt", "mlp"]
    assert [one.family for one in nearest_real(real, samples, most=1)] == ["gpt"]


def test_what_is_too_large_to_be_drawn_is_left_out() -> None:
    small, large = chain(0, 1), chain(*range(9))
    assert nearest_real([large], [small], largest=5) == ()
    assert nearest_real([small], [large], largest=5) == ()
    (found,) = nearest_real([large, small], [large, small], largest=5)
    assert (found.sample, found.real) == (1, 1)


def test_a_single_real_graph_is_no_scale() -> None:
    (found,) = nearest_real([chain(0, 1)], [chain(0, 1)])
    assert found.usual is None


def test_graphs_without_families_are_all_of_one() -> None:
    bare = [DAG.build(torch.tensor([[0], [code]]), torch.tensor([[0], [1]])) for code in (1, 2)]
    (found,) = nearest_real(bare, bare[:1])
    assert (found.family, found.compared) == ("", 2)
