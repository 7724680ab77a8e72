"""Names of implementations in system.json."""

import pytest

from layerdag.errors import ConfigError
from layerdag.simulator.engine import Algorithm
from layerdag.simulator.engine._algorithms import Implementation, parse_implementation


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ring", Implementation(Algorithm.RING)),
        ("direct", Implementation(Algorithm.DIRECT)),
        ("direct12", Implementation(Algorithm.DIRECT, 12)),
        ("halvingDoubling", Implementation(Algorithm.HALVING_DOUBLING)),
        ("doubleBinaryTree", Implementation(Algorithm.DOUBLE_BINARY_TREE)),
        ("inNetwork", Implementation(Algorithm.IN_NETWORK)),
        ("oneRing", Implementation(Algorithm.RING, flat=True)),
        ("oneDirect", Implementation(Algorithm.DIRECT, flat=True)),
        ("oneDirect3", Implementation(Algorithm.DIRECT, 3, flat=True)),
        ("oneHalvingDoubling", Implementation(Algorithm.HALVING_DOUBLING, flat=True)),
    ],
)
def test_every_name_of_the_reference_has_its_meaning(name, expected):
    assert parse_implementation(name) == expected


@pytest.mark.parametrize(
    "name",
    ["Ring", "ring2", "direct0", "direct-1", "direct1234567890", "oneInNetwork", "", "direct 2"],
)
def test_other_names_are_refused_with_those_that_are_known(name):
    with pytest.raises(ConfigError) as caught:
        parse_implementation(name)
    assert f"unknown collective implementation '{name}'" in str(caught.value)
    assert "known are ring, direct, halvingDoubling, doubleBinaryTree, oneRing" in str(caught.value)
