"""Codes that go together: what is ruled out, and that samples keep to it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st
from laws import tried
from small_models import SIZES as MODEL_SIZES, collated, small_dags

from layerdag.dag.dag import DAG, GraphSizes
from layerdag.dag.shared_statistics import shared_statistics
from layerdag.dag.statistics import GraphStatistics
from layerdag.errors import ConfigError
from layerdag.models.base import SampleRequest
from layerdag.models.bounds import MAX_DEPTH, MAX_STEPS, MAX_WIDTH
from layerdag.models.config import (
    ConditioningConfig,
    ConstraintConfig,
    EncoderConfig,
    FastConfig,
    HeadsConfig,
    NodeConfig,
    PosteriorConfig,
    ReferenceConfig,
)
from layerdag.models.fast.allowed_codes import AllowedCodes
from layerdag.models.fast.model import FastLayerDAG
from layerdag.models.reference.model import ReferenceLayerDAG
from layerdag.models.spec import model_config

SIZES = GraphSizes(attributes=(3, 4, 5))
PAIRS = {0: (1, 1), 1: (3, 0), 2: (0, 4)}


def chains() -> list[DAG]:
    """Six chains in which the kind of a node determines its other two attributes."""
    kinds = [0, 1, 2, 1, 0]
    x_NA = torch.tensor([[kind, *PAIRS[kind]] for kind in kinds])
    edges_2E = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]])
    return [DAG.build(x_NA, edges_2E)] * 6


def sampled_pairs(attributes: str) -> set[tuple[int, int, int]]:
    config = FastConfig(
        width=32,
        depth=1,
        constraints=ConstraintConfig(attributes=attributes, neighbors="unlimited"),
    )
    torch.manual_seed(0)
    model = FastLayerDAG(SIZES, shared_statistics(chains(), SIZES), config).eval()
    none_B0 = torch.zeros(24, 0)
    request = SampleRequest(none_B0, none_B0.long(), tuple(range(24)), max_nodes=8)
    dags = model.sample(request).dags
    return {tuple(row) for dag in dags for row in dag.x_NA.tolist()}


def test_an_untrained_model_samples_only_what_goes_together():
    assert sampled_pairs("observed") <= {(kind, *rest) for kind, rest in PAIRS.items()}
    assert len(sampled_pairs("unlimited")) > len(PAIRS)


def test_later_attributes_restrict_those_after_them():
    allowed = AllowedCodes(SIZES, shared_statistics(chains(), SIZES))
    after_BF = allowed.given(1, torch.tensor([3]))
    (fits_K,) = allowed.limit(torch.zeros(1, 5), after_BF, 2) > -torch.inf
    assert fits_K.tolist() == [True, False, False, False, False]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=4, unique=True))
@tried(20)
def test_where_nothing_would_be_left_nothing_is_ruled_out(impossible):
    allowed = AllowedCodes(SIZES, shared_statistics(chains(), SIZES))
    logits_BK = torch.zeros(1, 4)
    logits_BK[0, impossible] = -torch.inf
    limited_BK = allowed.limit(logits_BK, allowed.given(0, torch.tensor([0])), 1)
    if 1 in impossible:  # the only code that goes with kind 0
        assert torch.equal(limited_BK, logits_BK)
    else:
        assert (limited_BK[0] > -torch.inf).tolist() == [False, True, False, False]


def test_without_statistics_every_code_is_allowed():
    allowed = AllowedCodes(SIZES, None)
    assert allowed.allowed_FF.all()
    logits_BK = torch.randn(2, 4)
    limited_BK = allowed.limit(logits_BK, allowed.given(0, torch.tensor([0, 2])), 1)
    assert torch.equal(limited_BK, logits_BK)


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
def test_every_setting_is_bounded_on_both_sides(group, name, low, high):
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
def test_an_unknown_choice_is_refused_with_the_known_ones(group, name):
    with pytest.raises(ConfigError, match=rf"{group}\.{name}' must be '\w+' or '\w+', found 'al"):
        model_config("fast", {group: {name: "all"}})


@pytest.mark.parametrize("starts", [(0, 1), (2, 1), (3, 3), (1, 2_000_000), (-4,)])
def test_buckets_must_ascend_from_1(starts):
    with pytest.raises(ConfigError, match="must be ascending positions from 1 to 1,000,000, found"):
        ConditioningConfig(position_buckets=starts)


def test_there_are_not_arbitrarily_many_buckets():
    with pytest.raises(ConfigError, match=r"position_buckets' must be at most 256, found 257"):
        ConditioningConfig(position_buckets=tuple(range(1, MAX_DEPTH + 2)))


def test_the_posterior_is_three_quarters_as_wide_unless_told():
    assert FastConfig(width=64).posterior_width == 48
    assert FastConfig(width=64, posterior=PosteriorConfig(width=7)).posterior_width == 7


def test_without_a_data_set_out_degrees_are_predicted():
    statistics = GraphStatistics.measure(small_dags(), MODEL_SIZES)
    for asked, predicted in ((None, True), (True, True), (False, False)):
        config = FastConfig(width=32, depth=1, predict_out_degree=asked)
        model = FastLayerDAG(MODEL_SIZES, statistics, config)
        assert (model.heads.out_degree is not None) is predicted


@pytest.mark.parametrize("config", CHOICES)
def test_every_choice_makes_a_model_with_another_loss(config):
    dags = small_dags(2)
    statistics = GraphStatistics.measure(dags, MODEL_SIZES)

    def total(config: FastConfig) -> float:
        torch.manual_seed(0)
        model = FastLayerDAG(MODEL_SIZES, statistics, replace(config, width=32, depth=1)).eval()
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


def test_nested_plain_data_makes_the_tree_and_leaves_the_rest_alone():
    config = model_config("reference", {"node": {"width": 8, "heads": 2}, "budget": 0})
    assert config.node == NodeConfig(width=8, heads=2)
    assert config.budget == 0
    assert config.edge == ReferenceConfig().edge


@pytest.mark.parametrize(
    ("group", "name", "low", "high"),
    [
        ("layer_size", "width", 1, MAX_WIDTH),
        ("layer_size", "rounds", 0, MAX_DEPTH),
        ("node", "width", 1, MAX_WIDTH),
        ("node", "heads", 1, MAX_WIDTH),
        ("node", "rounds", 0, MAX_DEPTH),
        ("node", "blocks", 0, MAX_DEPTH),
        ("node", "steps", 1, MAX_STEPS),
        ("edge", "width", 1, MAX_WIDTH),
        ("edge", "rounds", 0, MAX_DEPTH),
        ("edge", "steps", 1, MAX_STEPS),
        ("conditioning", "dropout", 0, 1),
    ],
)
def test_every_setting_of_the_reference_is_bounded_on_both_sides(group, name, low, high):
    for value in (low - 1, high + 1):
        with pytest.raises(ConfigError, match=rf"'{group}\.{name}' must be from {low} to {high}"):
            model_config("reference", {group: {name: value}})


def test_a_negative_budget_is_refused():
    with pytest.raises(ConfigError, match="'budget' must be from 0"):
        ReferenceConfig(budget=-1)


@pytest.mark.parametrize("group", ["layer_size", "node", "edge"])
def test_an_odd_width_is_refused(group):
    """Numbers enter as sines and cosines, half of the width each."""
    with pytest.raises(ConfigError, match=rf"'{group}\.width' must be even, found 7"):
        model_config("reference", {group: {"width": 7}})


def test_heads_that_do_not_divide_the_width_are_refused_where_there_is_attention():
    with pytest.raises(
        ConfigError, match=r"'node\.width' must be a multiple of 'node\.heads', found 6 and 4"
    ):
        NodeConfig(width=6, heads=4)
    assert NodeConfig(width=6, heads=4, blocks=0).width == 6


NARROW: list[Mapping[str, Any]] = [
    {"layer_size": {"width": 2, "rounds": 0}},
    {"node": {"width": 2, "heads": 1, "steps": 1}},
    {"node": {"width": 6, "heads": 4, "blocks": 0, "rounds": 0}},
    {"node": {"width": 6, "heads": 6, "blocks": 2}},
    {"edge": {"width": 2, "rounds": 0, "steps": 1}},
    {"conditioning": {"dropout": 1.0}},
    {"budget": 1},
]


@pytest.mark.parametrize("changes", NARROW)
def test_what_is_accepted_works(changes, sizes, make_dag, make_batch):
    tiny: dict[str, Any] = {
        "layer_size": {"width": 4, "rounds": 1},
        "node": {"width": 4, "heads": 2, "steps": 3},
        "edge": {"width": 4, "rounds": 1, "steps": 2},
    }
    dags = [make_dag(2, 3, 1), make_dag(1)]
    config = model_config("reference", {**tiny, **changes})
    model = ReferenceLayerDAG(sizes, GraphStatistics.measure(dags, sizes), config).train()
    terms = model.losses(make_batch(*dags), torch.Generator().manual_seed(0))
    assert all(torch.isfinite(term.total) for term in terms.values())
