import numpy as np
import torch

from layerdag.evaluation.privacy.attacks import Pool
from layerdag.evaluation.privacy.attacks._motifs import RADIUS, UniqueMotifs
from layerdag.graph import DAG


def path(*codes: int) -> DAG:
    size = len(codes)
    edges = torch.stack([torch.arange(size - 1), torch.arange(1, size)])
    return DAG.build(torch.tensor(codes)[:, None], edges)


def test_a_motif_of_two_real_graphs_is_nobodys_and_one_of_a_sample_recurs() -> None:
    pool = Pool([path(0, 1), path(2, 3)], [path(0, 1), path(4, 5)], [path(2, 3)])
    unique_P, recurring_P = UniqueMotifs(pool).counts(pool.roles)
    # Each node of a path of two is a motif at every radius.
    assert unique_P.tolist() == [0, 2 * RADIUS, 0, 2 * RADIUS, 0]
    assert recurring_P.tolist() == [0, 2 * RADIUS, 0, 0, 0]
    assert UniqueMotifs(pool).fractions(pool.roles) == (1.0, 0.0)


def test_surroundings_count_and_not_the_node_alone() -> None:
    pool = Pool([path(0, 1, 2)], [path(5, 5, 5)], [path(0, 1, 3)])
    unique_P, recurring_P = UniqueMotifs(pool).counts(pool.roles)
    assert unique_P[0] == 3 * RADIUS
    # Of the first node alone the nearest surroundings, one edge away, are those of the sample.
    assert recurring_P[0] == 1


def test_copies_inside_a_graph_are_one_motif() -> None:
    twice = torch.tensor([[0, 2], [1, 3]])
    pair = DAG.build(torch.tensor([[0], [1], [0], [1]]), twice)
    pool = Pool([pair], [path(7, 7)], [path(0, 1)])
    unique_P, recurring_P = UniqueMotifs(pool).counts(pool.roles)
    assert (unique_P[0], recurring_P[0]) == (2 * RADIUS, 2 * RADIUS)


def test_one_motif_of_one_is_less_evidence_than_all_of_many() -> None:
    pool = Pool([path(0), path(*range(10, 19))], [path(30, 31)], [path(0), path(*range(10, 19))])
    [(few, many)], _ = UniqueMotifs(pool).folds(pool.roles, 0)[0][:1], None
    assert few < many < 1
    assert np.isfinite([few, many]).all()
