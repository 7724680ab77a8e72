"""Random DAGs for tests: exactly the layers that were asked for, whatever else is drawn."""

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from laws import tried
from random_graphs import random_dag


@tried(40)
@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=6),
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    st.floats(0, 3),
    st.integers(1, 3),
    st.integers(0, 2**32 - 1),
)
def test_sizes_codes_and_types_are_within_what_was_asked_for(sizes, codes, extra, types, seed):
    dag = random_dag(
        np.random.default_rng(seed), sizes, codes, extra_edges=extra, num_edge_types=types
    )
    assert torch.bincount(dag.layer_N).tolist() == sizes
    assert dag.layer_N.tolist() == sorted(dag.layer_N.tolist())  # nodes come in layer order
    assert dag.x_NA.shape == (sum(sizes), len(codes))
    assert bool((dag.x_NA >= 0).all())
    assert bool((dag.x_NA < torch.tensor(codes)).all())
    assert set(dag.edge_type_E.tolist()) <= set(range(types))
    assert dag.check() is dag


@pytest.mark.parametrize("extra", [0.0, 2.0])
def test_extra_parents_come_on_top_of_the_one_that_every_inner_node_has(extra):
    """200 inner nodes over 40 earlier ones: doubles are rare enough to be left out of the count."""
    dag = random_dag(np.random.default_rng(5), [40] * 6, [2], extra_edges=extra)
    per_node = dag.num_edges / 200
    assert per_node == 1 if extra == 0 else 2.6 < per_node <= 3.2
