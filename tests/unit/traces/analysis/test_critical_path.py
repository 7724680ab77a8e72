import itertools

import numpy as np

from layerdag.graph import longest_path_layers
from layerdag.traces.analysis._critical_path import critical_path


def test_path_of_a_small_graph() -> None:
    # 0 (2) -> 1 (3) -> 3 (1); 0 -> 2 (9) -> 3; 4 (5) alone.
    edges = np.array([[0, 1, 0, 2], [1, 3, 2, 3]])
    cost_N = np.array([2.0, 3.0, 9.0, 1.0, 5.0])
    path = critical_path(longest_path_layers(5, edges), edges, cost_N)
    assert path.length == 12
    assert path.row_P.tolist() == [0, 2, 3]
    assert path.finish_N.tolist() == [2, 5, 11, 12, 5]


def test_equal_to_enumeration_on_random_graphs(rng: np.random.Generator) -> None:
    for _ in range(20):
        pairs = [pair for pair in itertools.combinations(range(7), 2) if rng.random() < 0.4]
        edges = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        cost_N = rng.integers(0, 9, 7).astype(float)
        path = critical_path(longest_path_layers(7, edges), edges, cost_N)
        best = {n: cost_N[n] for n in range(7)}
        for source, target in sorted(pairs, key=lambda pair: pair[1]):
            best[target] = max(best[target], best[source] + cost_N[target])
        assert path.length == max(best.values())
        assert cost_N[path.row_P].sum() == path.length


def test_nothing_has_no_path() -> None:
    empty = np.zeros(0, np.int64)
    path = critical_path(empty, np.zeros((2, 0), np.int64), np.zeros(0))
    assert path.length == 0
    assert path.row_P.size == 0
