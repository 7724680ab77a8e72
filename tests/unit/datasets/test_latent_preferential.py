"""Generated graphs keep their rule."""

import numpy as np
import pytest
import torch

from layerdag.dag.dag import DAG
from layerdag.datasets.latent_preferential import (
    is_valid,
    load_latent_preferential,
)
from layerdag.datasets.settings import LatentPreferentialConfig
from layerdag.errors import UsageError


def star(values: list[int]) -> DAG:
    """Return a node with one predecessor a value."""
    count = len(values)
    edges = torch.tensor([list(range(count)), [count] * count], dtype=torch.int64)
    return DAG.build(torch.tensor([*values, 0])[:, None], edges)


@pytest.mark.parametrize(
    ("values", "rho", "valid"),
    [
        ([0, 1], 0.0, True),
        ([0, 1, 1], 0.0, False),
        ([0, 1, 1], 0.5, False),
        ([0, 1, 1], 1.0, True),
        ([0, 0, 1, 1, 1], 0.5, True),
        ([1], 1.0, False),
        ([], 0.0, True),
    ],
)
def test_the_commoner_value_may_exceed_the_rarer_by_the_share_rho(values, rho, valid):
    assert is_valid(star(values), rho) is valid


@pytest.mark.parametrize("rho", [0.0, 0.5, 1.0])
def test_every_generated_graph_keeps_the_rule_and_its_layers(rho):
    data = load_latent_preferential(
        LatentPreferentialConfig(rho=rho, num_train=40, num_val=5, num_test=5)
    )
    graphs = [dag for split in data.graphs.values() for dag in split]
    assert all(is_valid(dag, rho) for dag in graphs)
    assert all(3 <= int(dag.layers().max()) + 1 <= 8 for dag in graphs)
    assert len(graphs) == 50


def test_a_larger_tolerance_is_used():
    data = load_latent_preferential(
        LatentPreferentialConfig(rho=1.0, num_train=40, num_val=1, num_test=1)
    )
    assert not all(is_valid(dag, 0.0) for dag in data.graphs["train"])


def test_a_graph_depends_on_its_number_not_on_how_many_there_are():
    small = load_latent_preferential(
        LatentPreferentialConfig(num_train=3, num_val=1, num_test=1)
    ).graphs["train"]
    large = load_latent_preferential(
        LatentPreferentialConfig(num_train=9, num_val=2, num_test=2)
    ).graphs["train"]
    for first, second in zip(small, large[:3], strict=True):
        assert torch.equal(first.edge_index_2E, second.edge_index_2E)


def test_hubs_attract_children():
    data = load_latent_preferential(LatentPreferentialConfig(num_train=100, num_val=1, num_test=1))
    degrees = [np.bincount(dag.edge_index_2E[0], minlength=1) for dag in data.graphs["train"]]
    degree = np.concatenate(degrees)
    assert degree.var() > 1.5 * degree.mean()  # a Poisson distribution has equal ones


def test_settings_out_of_bounds_are_refused():
    with pytest.raises(UsageError, match="rho >= 0"):
        load_latent_preferential(LatentPreferentialConfig(rho=-1.0))
