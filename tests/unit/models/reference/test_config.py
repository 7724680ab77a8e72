"""The settings of the reference model: what cannot work is refused where it is asked for."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch

from layerdag.dag.statistics import GraphStatistics
from layerdag.errors import ConfigError
from layerdag.models.base import MAX_DEPTH, MAX_STEPS, MAX_WIDTH, model_config
from layerdag.models.reference.config import NodeConfig, ReferenceConfig
from layerdag.models.reference.model import ReferenceLayerDAG


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
def test_every_setting_is_bounded_on_both_sides(group, name, low, high):
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
