"""Scores, and the published jobs that are predicted."""

import numpy as np
import pytest
import torch
from benchmark_prediction import (
    FIGURES,
    LLAMAS,
    RESNETS,
    errors,
    noise,
    over_peak,
    predicted,
    resnet,
    workload,
)


def test_errors_are_relative_to_what_was_measured():
    found = errors([1.0, 3.0, 2.0], [2.0, 2.0, 2.0])
    assert found == {"runs": 3, "median": 0.5, "p90": 0.5, "signed": 0.0}


def test_noise_is_how_badly_one_session_predicts_another():
    least = {"a": [1.0, 2.0, 2.0, 2.0], "b": [1.0, 2.0, 2.0, 2.0]}
    found = noise(least, ["a", "b"])
    assert found["sessions"] == 4
    assert found["first to another"] == 0.5
    # Of six halves three hold the first session, and are half as long as the other half.
    assert found["least of half the sessions to that of the others"] == pytest.approx(0.75)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("resnet18", 11_689_512), ("resnet50", 25_557_032), ("resnet101", 44_549_160)],
)
def test_resnets_have_the_published_number_of_parameters(name, parameters):
    with torch.device("meta"):
        model = resnet(*RESNETS[name])
    assert sum(p.numel() for p in model.parameters()) == parameters


def test_every_figure_has_a_model_and_is_positive():
    assert len(FIGURES) == 4 * 6 + 5
    assert {model for _, model in FIGURES} == {*LLAMAS, *RESNETS}
    assert min(FIGURES.values()) > 0


def test_a_figure_predicts_itself_and_longer_steps_of_slower_devices():
    own = ("h100", "llama3-100m", 0.04)
    assert predicted(*own[:2], like=own) == pytest.approx(0.04, rel=1e-3)
    assert predicted("a100-40", "llama3-100m", like=own) > 0.04
    assert predicted(*own[:2]) < 0.04
    assert over_peak("a100-40", "llama3-100m") > over_peak("h100", "llama3-100m")


def test_llama_operations_follow_the_shape():
    # 6 for each weight and token, without the embedding table; attention twice in the forward
    # pass, which is computed again, and twice as much backwards: 16 x layers x width x sequence^2.
    layers, hidden, heads, inner = LLAMAS["llama3-100m"]
    weights = layers * (4 * hidden * heads * 128 + 3 * hidden * inner) + 128_256 * hidden
    wanted = 6 * weights * 4096 + 16 * layers * heads * 128 * 4096**2
    trace = workload("llama3-100m").traces[0]
    assert np.isclose(trace.integers("num_ops")[0].sum(), wanted, rtol=0.02)
