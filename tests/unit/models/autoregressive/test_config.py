"""The settings of the fast model: every one is bounded, and every choice is built."""

from dataclasses import replace

import pytest
import torch

from layerdag.errors import ConfigError
from layerdag.graph import GraphStatistics
from layerdag.models import MAX_DEPTH, MAX_WIDTH, model_config
from layerdag.models.autoregressive import (
    ConditioningConfig,
    ConstraintConfig,
    EncoderConfig,
    FastConfig,
    FastLayerDAG,
    HeadsConfig,
    PosteriorConfig,
)
from tests.unit.models.autoregressive.small_models import SIZES, collated, small_dags

CHOICES = [
    FastConfig(encoder=EncoderConfig(attention="none")),
    FastConfig(encoder=EncoderConfig(messages="none")),
    FastConfig(encoder=EncoderConfig(block=1)),
    FastConfig(conditioning=ConditioningConfig(position_buckets=())),
    FastConfig(heads=HeadsConfig(attributes="independent")),
    FastConfig(heads=HeadsConfig(parent_features="none")),
    FastConfig(heads=HeadsConfig(chosen_parents="all")),
    FastConfig(constraints=ConstraintConfig("unlimited")),
    FastConfig(posterior=PosteriorConfig(width=5, rounds=0)),
    FastConfig(predict_out_degree=False),
]


@pytest.mark.parametrize(
    ("group", "name", "low", "high"),
    [
        ("", "width", 1, MAX_WIDTH),
        ("", "depth", 1, MAX_DEPTH),
        ("encoder", "block", 1, MAX_WIDTH),
        ("encoder", "dropout", 0, 1),
        ("encoder", "token_dropout", 0, 1),
        ("conditioning", "dropout", 0, 1),
        ("posterior", "width", 1, MAX_WIDTH),
        ("posterior", "rounds", 0, MAX_DEPTH),
        ("posterior", "dropout", 0, 1),
    ],
)
def test_every_setting_is_bounded_on_both_sides(group: str, name: str, low: int, high: int):
    key = f"{group}.{name}" if group else name
    for value in (low - 1, high + 1):
        if (name, value) == ("width", 0) and group:
            continue  # The posterior's width 0 stands for the default.
        settings = {group: {name: value}} if group else {name: value}
        with pytest.raises(ConfigError, match=rf"'{key}' must be from {low} to {high}"):
            model_config("fast", settings)


@pytest.mark.parametrize(
    ("group", "name"),
    [
        ("encoder", "attention"),
        ("encoder", "messages"),
        ("heads", "attributes"),
        ("heads", "parent_features"),
        ("constraints", "out_degree"),
    ],
)
def test_an_unknown_choice_is_refused_with_the_known_ones(group: str, name: str):
    with pytest.raises(ConfigError, match=rf"{group}\.{name}' must be '\w+' or '\w+', found 'al"):
        model_config("fast", {group: {name: "all"}})


@pytest.mark.parametrize("starts", [(0, 1), (2, 1), (3, 3), (1, 2_000_000), (-4,)])
def test_buckets_must_ascend_from_1(starts: tuple[int, ...]):
    with pytest.raises(ConfigError, match="must be ascending positions from 1 to 1,000,000, found"):
        ConditioningConfig(position_buckets=starts)


def test_there_are_not_arbitrarily_many_buckets():
    with pytest.raises(ConfigError, match=r"number of conditioning\.position_buckets"):
        ConditioningConfig(position_buckets=tuple(range(1, MAX_DEPTH + 2)))


def test_the_posterior_is_three_quarters_as_wide_unless_told():
    assert FastConfig(width=64).posterior_width == 48
    assert FastConfig(width=64, posterior=PosteriorConfig(width=7)).posterior_width == 7


def test_without_a_data_set_out_degrees_are_predicted():
    statistics = GraphStatistics.measure(small_dags(), SIZES)
    for asked, predicted in ((None, True), (True, True), (False, False)):
        config = FastConfig(width=32, depth=1, predict_out_degree=asked)
        model = FastLayerDAG(SIZES, statistics, config)
        assert (model.heads.out_degree is not None) is predicted


@pytest.mark.parametrize("config", CHOICES)
def test_every_choice_makes_a_model_with_another_loss(config: FastConfig):
    dags = small_dags(2)
    statistics = GraphStatistics.measure(dags, SIZES)

    def total(config: FastConfig) -> float:
        torch.manual_seed(0)
        model = FastLayerDAG(SIZES, statistics, replace(config, width=32, depth=1)).eval()
        with torch.no_grad():
            for number, parameter in enumerate(model.parameters()):
                noise = torch.Generator().manual_seed(number)
                parameter.add_(torch.randn(parameter.shape, generator=noise), alpha=0.2)
        terms = model.losses(collated(dags), torch.Generator())
        return sum(term.total.item() for term in terms.values())

    assert torch.isfinite(torch.tensor(total(config)))
    # Limits of out-degrees hold in sampling alone.
    differs = config.constraints == ConstraintConfig()
    assert (total(config) != total(FastConfig())) is differs
