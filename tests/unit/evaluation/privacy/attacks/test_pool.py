import numpy as np
import torch

from layerdag.evaluation.privacy.attacks import Pool
from layerdag.graph import DAG, random_dag


def graphs(rng: np.random.Generator, count: int) -> list[DAG]:
    return [random_dag(rng, [2, 3, 3], [4, 3]) for _ in range(count)]


def test_every_held_out_graph_is_other_once_and_none_poses_and_is_other_at_once(
    rng: np.random.Generator,
) -> None:
    pool = Pool(graphs(rng, 5), graphs(rng, 9), graphs(rng, 7))
    first, second = pool.roles.honest(3)
    assert sorted([*first.other_H, *second.other_H]) == list(range(5, 14))
    for roles in (first, second):
        assert roles.member_T.tolist() == list(range(5))
        assert not set(roles.sample_K) & set(roles.other_H)
        assert set(roles.sample_K) <= set(range(5, 14))


def test_no_more_graphs_pose_than_there_are_samples(rng: np.random.Generator) -> None:
    pool = Pool(graphs(rng, 2), graphs(rng, 12), graphs(rng, 3))
    assert [roles.sample_K.size for roles in pool.roles.honest(0)] == [3, 3]
    assert Pool(graphs(rng, 2), graphs(rng, 1), graphs(rng, 3)).roles.honest(0) == ()


def test_distances_are_those_of_the_graphs_asked_for(rng: np.random.Generator) -> None:
    train, held_out = graphs(rng, 3), graphs(rng, 4)
    pool = Pool(train, held_out, [train[1], held_out[2]])
    found = pool.distances(pool.roles.real_G, pool.roles.sample_K)
    assert found.shape == (7, 2)
    assert found[1, 0] < 1e-6
    assert found[3 + 2, 1] < 1e-6
    assert pool.distances(np.array([1]), np.array([5])).tolist() == [[found[1, 1]]]


def test_what_is_measured_does_not_count_in_programs(rng: np.random.Generator) -> None:
    train = graphs(rng, 3)
    again = [dag.with_columns(dag.x_NA + torch.tensor([0, 50])) for dag in train]
    pool = Pool(train, graphs(rng, 2), again, measured=(1,))
    rows, columns = pool.roles.member_T, pool.roles.sample_K
    assert np.diag(pool.program_distances(rows, columns)).max() < 1e-6
    assert np.diag(pool.distances(rows, columns)).min() > 0.1


def test_a_sample_with_a_cycle_is_looked_at_like_any_other(rng: np.random.Generator) -> None:
    ring = DAG.build(torch.zeros((2, 2), dtype=torch.int64), torch.tensor([[0, 1], [1, 0]]))
    pool = Pool(graphs(rng, 3), graphs(rng, 3), [ring, *graphs(rng, 2)])
    assert pool.graphs.layers_B[6] == 1
    assert pool.components.shape[0] == 9
    assert np.isfinite(pool.components).all()
