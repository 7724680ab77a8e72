import json
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from laws import tried

from layerdag.errors import GraphError
from layerdag.graph import DAG, GraphSizes, GraphStatistics, random_dag

SIZES = GraphSizes(attributes=(3, 2), edge_types=2)


def fork() -> DAG:
    """0 -> 1, 0 -> 2; kinds 0, 1, 1."""
    return DAG.build(
        torch.tensor([[0, 1], [1, 0], [1, 1]]),
        torch.tensor([[0, 0], [1, 2]]),
        edge_type_E=torch.tensor([0, 1]),
    )


def test_counts_of_a_fork():
    found = GraphStatistics.measure([fork(), fork()], SIZES)
    assert found.graphs == 2
    assert found.attributes == ((2, 4, 0), (2, 4))
    assert found.edge_types == (2, 2)
    assert found.in_degrees == (((0, 2),), ((1, 4),), ())
    assert found.out_degrees == (((2, 2),), ((0, 4),), ())
    assert found.layer_sizes == ((1, 2), (2, 2))
    assert found.layer_counts == ((2, 2),)
    assert (found.max_in_degree, found.max_out_degree, found.max_layer_size) == (1, 2, 2)
    assert found.mean_in_degree == pytest.approx(2 / 3)


def test_survives_json():
    found = GraphStatistics.measure([fork()], SIZES)
    assert GraphStatistics.from_dict(json.loads(json.dumps(found.to_dict()))) == found


def test_a_code_beyond_the_sizes_is_refused():
    with pytest.raises(GraphError, match="attribute 1"):
        GraphStatistics.measure([fork()], GraphSizes(attributes=(3, 1), edge_types=2))


def test_an_empty_set_is_refused():
    with pytest.raises(GraphError, match="empty"):
        GraphStatistics.measure([], SIZES)


def test_an_edge_type_beyond_the_sizes_is_refused_with_what_was_found():
    with pytest.raises(GraphError, match=r"code of an edge type is 0 to 1, but .* allow 0 to 0"):
        GraphStatistics.measure([fork()], GraphSizes(attributes=(3, 2), edge_types=1))


def test_a_cycle_is_refused():
    cyclic = DAG.build(torch.zeros((2, 1), dtype=torch.int64), torch.tensor([[0, 1], [1, 0]]))
    with pytest.raises(GraphError, match="cycle"):
        GraphStatistics.measure([cyclic], GraphSizes(attributes=(1,)))


def sound() -> dict:
    return json.loads(json.dumps(GraphStatistics.measure([fork()], SIZES).to_dict()))


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"graphs": 1.5}, TypeError, None),
        ({"graphs": True}, TypeError, "whole numbers"),
        ({"graphs": -1}, ValueError, "counts must be from 0"),
        ({"graphs": 2**53 + 1}, ValueError, "counts must be from 0"),
        ({"attributes": [[1, -1, 3], [0, 3]]}, ValueError, "counts must be from 0"),
        ({"attributes": []}, ValueError, "there must be a node and a layer"),
        ({"attributes": [[0, 0, 0], [0, 0]]}, ValueError, "there must be a node and a layer"),
        ({"layer_sizes": []}, ValueError, "there must be a node and a layer"),
        ({"edge_types": ["1"]}, TypeError, None),
        ({"layer_sizes": [[2, 1], [1, 1]]}, ValueError, "must ascend"),
        ({"layer_sizes": [[1, 1], [1, 1]]}, ValueError, "must ascend"),
        ({"layer_counts": [[10**9 + 1, 1]]}, ValueError, "must ascend to at most"),
        ({"in_degrees": [[[0, 1]], [[1, 2]]]}, ValueError, "every kind needs its degrees"),
        ({"out_degrees": [[], [], [], []]}, ValueError, "every kind needs its degrees"),
        ({"in_degrees": [[[0]], [], []]}, ValueError, "not enough values"),
        ({"in_degrees": [[[0, 0.5]], [], []]}, TypeError, None),
    ],
)  # fmt: skip
def test_counts_from_outside_that_are_none_are_refused(changes, error, message):
    with pytest.raises(error, match=message):
        GraphStatistics.from_dict({**sound(), **changes})


@pytest.mark.parametrize("name", ["graphs", "attributes", "in_degrees", "layer_sizes"])
def test_a_missing_entry_is_a_key_error(name):
    data = sound()
    del data[name]
    with pytest.raises(KeyError):
        GraphStatistics.from_dict(data)


@tried(30)
@given(
    st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=4), min_size=1, max_size=3),
    st.integers(0, 2**32 - 1),
)
def test_counts_are_those_of_a_slow_count(shapes, seed):
    rng = np.random.default_rng(seed)
    dags = [random_dag(rng, sizes, [3, 2], extra_edges=0.6, num_edge_types=2) for sizes in shapes]
    found = GraphStatistics.measure(dags, SIZES)
    kinds, parents, children, widths = Counter(), Counter(), Counter(), Counter()
    for dag in dags:
        kind = dag.x_NA[:, 0].tolist()
        sources, targets = dag.edge_index_2E.tolist()
        kinds.update(kind)
        parents.update((k, targets.count(n)) for n, k in enumerate(kind))
        children.update((k, sources.count(n)) for n, k in enumerate(kind))
        widths.update(Counter(dag.layer_N.tolist()).values())
    assert found.attributes[0] == tuple(kinds[k] for k in range(3))
    for table, counts in ((found.in_degrees, parents), (found.out_degrees, children)):
        assert {(k, d): n for k in range(3) for d, n in table[k]} == dict(counts)
    assert dict(found.layer_sizes) == dict(widths)
    assert dict(found.layer_counts) == dict(Counter(len(sizes) for sizes in shapes))
    assert sum(found.edge_types) == sum(dag.num_edges for dag in dags)
    assert GraphStatistics.from_dict(json.loads(json.dumps(found.to_dict()))) == found
