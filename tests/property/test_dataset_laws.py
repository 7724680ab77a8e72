import json

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from random_jobs import random_job

from layerdag.datasets.jobs import job_graph
from layerdag.datasets.numeric import NumericAttribute
from layerdag.datasets.rank_classes import rank_classes
from layerdag.datasets.raw import RawGraph
from layerdag.datasets.schema import GraphSchema
from layerdag.datasets.splits import content_key
from layerdag.datasets.unfold import Unfolded, unfold
from layerdag.datasets.unions import layers_of
from layerdag.graph.random import random_dag
from layerdag.simulator import simulate, small_cluster
from layerdag.traces.matching import match_communication

SEEDS = st.integers(0, 2**32 - 1)
VALUES = st.one_of(
    st.integers(-50, 5000).map(float),
    st.floats(-1e12, 1e12, allow_subnormal=False).map(lambda v: 0.0 if abs(v) < 1e-9 else v),
    st.sampled_from([float("nan"), 4096.0, 65536.0]),
)


def folded(unfolded: Unfolded) -> RawGraph:
    workload = unfolded.workload
    return job_graph("job", rank_classes(workload), workload.groups, {})


@given(values=st.lists(VALUES, min_size=1, max_size=200), num_bins=st.integers(1, 20))
@settings(max_examples=150, deadline=None)
def test_a_training_value_comes_back_from_its_bin(values: list[float], num_bins: int) -> None:
    value_N = np.array(values)
    attribute = NumericAttribute.fit("x", "1", value_N, num_bins)
    again = NumericAttribute.from_dict(
        json.loads(json.dumps({"name": "x", "unit": "1", "bins": attribute.bins}))
    )
    assert again == attribute
    codes, positions = attribute.encode(value_N)
    assert ((codes == 0) == np.isnan(value_N)).all()
    assert ((positions >= 0) & (positions < 1)).all()
    decoded = attribute.decode(codes, positions)
    for code, value, back in zip(codes.tolist(), values, decoded.tolist(), strict=True):
        if code:
            low, high = attribute.bins[code - 1][0], attribute.bins[code - 1][-1]
            width = high - low
            assert low - 1e-9 * abs(low) <= back <= high + 1e-9 * abs(high)
            # Bins are rounded to three digits, positions are single precision.
            assert abs(back - value) <= 0.01 * abs(value) + 1e-4 * width


@given(seed=SEEDS, stages=st.integers(1, 4), ranks=st.integers(1, 2))
@settings(max_examples=30, deadline=None)
def test_an_unfolded_job_matches_runs_to_its_end_and_folds_back(
    seed: int, stages: int, ranks: int
) -> None:
    job = random_job(seed, stages)
    unfolded = unfold(job, stages * ranks)
    assert not match_communication(unfolded.workload).mismatches
    result = simulate(unfolded.workload, *small_cluster(stages * ranks))
    assert (result.finish_ns >= 0).all()
    back = folded(unfolded)
    again = folded(unfold(back, stages * ranks))
    assert content_key(again) == content_key(back)
    for name in ("type", "op", "collective", "dtype"):
        assert sorted(back.categories[name]) == sorted(job.categories[name])
    for name, values in job.numbers.items():
        present = np.sort(values[~np.isnan(values)])
        found = np.sort(back.numbers[name][~np.isnan(back.numbers[name])])
        assert np.array_equal(present, found)


@given(seed=SEEDS, stages=st.integers(1, 3))
@settings(max_examples=30, deadline=None)
def test_a_schema_survives_json_and_encodes_alike(seed: int, stages: int) -> None:
    graphs = [random_job(seed + i, stages) for i in range(3)]
    schema = GraphSchema.fit("trace", graphs)
    again = GraphSchema.from_dict(json.loads(json.dumps(schema.to_dict(), allow_nan=False)))
    for graph in graphs:
        first, second = schema.encode(graph), again.encode(graph)
        assert torch.equal(first.x_NA, second.x_NA)
        assert torch.equal(first.u_NA, second.u_NA)
        decoded = again.decode(second)
        assert content_key(RawGraph(**{**vars(decoded), "numbers": {}})) == content_key(
            RawGraph(**{**vars(graph), "numbers": {}})
        )


@given(shapes=st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=6), max_size=5), seed=SEEDS)
@settings(max_examples=30, deadline=None)
def test_layers_of_many_graphs_are_the_layers_of_each(shapes: list[list[int]], seed: int) -> None:
    rng = np.random.default_rng(seed)
    dags = [random_dag(rng, shape, [2], extra_edges=0.5) for shape in shapes]
    assert all(
        torch.equal(found, dag.layers()) for found, dag in zip(layers_of(dags), dags, strict=True)
    )
