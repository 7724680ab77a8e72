from dataclasses import replace

import numpy as np
import torch
from private_jobs import PrivateJobs

from layerdag.training import load_checkpoint
from layerdag.training.private import Adapters, Canaries, SecretGenerator, canary_graphs


def _drawn(mine: PrivateJobs, count: int) -> Canaries:
    adapters = Adapters(load_checkpoint(mine.base.path).model, 1, seed=0)
    return Canaries.drawn(adapters, count, SecretGenerator(0))


def test_canaries_are_the_same_strange_graphs_each_time(mine: PrivateJobs):
    spec = mine.base.spec
    graphs = canary_graphs(spec.statistics, spec.sizes, 12)
    rows = {tuple(row) for row in graphs.x_NA.tolist()}
    assert graphs.num_graphs == 12
    assert len(rows) >= 10
    for row in rows:
        assert all(
            spec.statistics.attributes[attribute][code] > 0 for attribute, code in enumerate(row)
        )
    assert bool(graphs.numeric_BC.isnan().all())
    assert torch.equal(graphs.x_NA, canary_graphs(spec.statistics, spec.sizes, 12).x_NA)


def test_codes_of_a_canary_go_together(mine: PrivateJobs):
    """Attribute 1 of a node of kind k may be k alone."""
    statistics = replace(
        mine.base.spec.statistics,
        attributes=((5, 5, 5), (5, 5, 5)),
        allowed_codes=((((0,), (1,), (2,)),), ()),
    )
    sizes = replace(mine.base.spec.sizes, attributes=(3, 3))
    x_NA = canary_graphs(statistics, sizes, 20).x_NA
    assert torch.equal(x_NA[:, 0], x_NA[:, 1])
    assert len(x_NA[:, 0].unique()) == 3


def test_canaries_pull_in_directions_of_their_own(mine: PrivateJobs):
    gradient_MP = _drawn(mine, 12).gradient_MP
    own_MP = gradient_MP - gradient_MP.mean(0)
    strength = np.linalg.svd(own_MP, compute_uv=False)
    assert (strength > 0.02 * strength[0]).sum() >= 10


def test_those_whose_coin_says_so_join_the_units(mine: PrivateJobs):
    canaries = _drawn(mine, 16)
    units = canaries.beside(mine.units, "cpu")
    taken = int(canaries.took_part_M.sum())
    assert 0 < taken < 16
    assert units.count == mine.units.count + taken
    assert units.graphs.num_graphs == mine.units.graphs.num_graphs + taken
    own = units.graphs.x_NA[mine.units.graphs.num_nodes :]
    assert own.shape[0] == 12 * taken
    assert int(units.graphs.edge_index_2E.max()) == units.graphs.num_nodes - 1


def test_without_canaries_the_units_stay(mine: PrivateJobs):
    assert _drawn(mine, 0).beside(mine.units, "cpu").count == mine.units.count
