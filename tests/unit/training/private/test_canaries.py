import torch
from private_jobs import PrivateJobs

from layerdag.training import load_checkpoint
from layerdag.training.private import Adapters, Canaries, SecretGenerator, canary_graphs


def _drawn(mine: PrivateJobs, count: int) -> Canaries:
    adapters = Adapters(load_checkpoint(mine.base.path).model, 1, seed=0)
    return Canaries.drawn(adapters, count, SecretGenerator(0))


def test_canaries_differ_in_the_rarest_codes(mine: PrivateJobs):
    spec = mine.base.spec
    graphs = canary_graphs(spec.statistics, spec.sizes, 12)
    rows = [tuple(row) for row in graphs.x_NA.tolist()]
    assert graphs.num_graphs == len(set(rows)) == 12
    usual = [counts.index(max(counts)) for counts in map(list, spec.statistics.attributes)]
    assert all(sum(a != b for a, b in zip(row, usual, strict=True)) == 1 for row in rows)
    assert bool(graphs.numeric_BC.isnan().all())
    assert torch.equal(graphs.x_NA, canary_graphs(spec.statistics, spec.sizes, 12).x_NA)


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
