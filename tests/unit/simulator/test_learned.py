"""Latency of operators learned from measured traces."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from simulator_traces import comp, workload

from layerdag.errors import ConfigError
from layerdag.simulator.learned import (
    OperatorLatency,
    OperatorTrees,
    fit_log_latency,
    measured_rows,
)
from layerdag.surrogates.files import save_surrogate
from layerdag.traces.trace import Workload


def measured(num: int = 200, **attributes: object) -> Workload:
    """Return nodes whose time depends on the operator (1 or 10 us) and on the operations."""
    nodes = [
        dataclasses.replace(
            comp(
                i,
                9,
                duration_ns=(10_000 if i % 2 else 1000) * (1 + i % 4 // 2),
                num_ops=10 ** (i % 4 // 2 * 3),
                tensor_size=8,
                **attributes,
            ),
            name="aten::mm" if i % 2 else "aten::add",
        )
        for i in range(num)
    ]
    return workload(nodes)


def test_operator_and_costs_decide_and_costs_alone_where_it_is_unknown():
    known = measured()
    latency = OperatorLatency.fit(known)
    found = latency.microseconds(known.traces[0], np.arange(4))
    np.testing.assert_allclose(found, [1.0, 10.0, 2.0, 20.0], rtol=0.1)
    assert latency.microseconds(known.traces[0], np.arange(0)).shape == (0,)
    other = workload([dataclasses.replace(comp(0, 5, num_ops=1), name="aten::sin")]).traces[0]
    (found,) = OperatorLatency.fit(measured()).microseconds(other, np.arange(1))
    assert 0.9 < found < 11


def test_traces_that_ranks_share_count_once_and_nodes_without_durations_not():
    trace = measured(19).traces[0]
    with pytest.raises(ConfigError, match="has 19 samples; at least 20 are needed"):
        OperatorLatency.fit(Workload((trace, trace)))
    with pytest.raises(ConfigError, match="has 0 samples"):
        OperatorLatency.fit(workload([comp(0, 0)]))


def test_the_same_traces_give_the_same_model():
    first, second = (OperatorLatency.fit(measured()) for _ in range(2))
    trace, rows = measured().traces[0], np.arange(50)
    np.testing.assert_array_equal(first.microseconds(trace, rows), second.microseconds(trace, rows))


def test_durations_in_nanoseconds_alone_are_measured_times():
    nodes = [dataclasses.replace(comp(i, 0, duration_ns=500), name="aten::mm") for i in range(20)]
    known = workload(nodes)
    found = OperatorLatency.fit(known).microseconds(known.traces[0], np.arange(3))
    np.testing.assert_allclose(found, 0.5, rtol=0.01)


def test_more_operators_than_the_regressor_has_categories_are_learned_together():
    # Forty common operators and 300 that occur once: the rare ones share the unknown one's code.
    names = [f"common{i % 40}" for i in range(400)] + [f"rare{i}" for i in range(300)]
    nodes = [dataclasses.replace(comp(i, 3, num_ops=8), name=n) for i, n in enumerate(names)]
    known = workload(nodes)
    found = OperatorLatency.fit(known).microseconds(known.traces[0], np.arange(len(nodes)))
    np.testing.assert_allclose(found, 3.0, rtol=0.01)


def test_few_long_outliers_do_not_move_the_prediction():
    rng = np.random.default_rng(0)
    features = rng.uniform(0, 1, (200, 1))
    latency = np.full(200, 10.0)
    latency[::10] = 1e6
    found = np.exp(fit_log_latency(features, latency, seed=0).predict(features[:5]))
    np.testing.assert_allclose(found, 10.0, rtol=0.2)


def test_twenty_samples_are_enough_to_tell_two_kinds_apart():
    features = np.repeat([[0.0], [1.0]], 10, axis=0)
    latency = np.repeat([1.0, 100.0], 10)
    low, high = np.exp(fit_log_latency(features, latency, seed=0).predict([[0.0], [1.0]]))
    assert low < 2
    assert high > 50


@pytest.mark.parametrize("wrong", [0.0, -1.0, np.nan, np.inf])
def test_a_latency_that_is_no_positive_number_is_refused(wrong):
    latency = np.full(20, 1.0)
    latency[3] = wrong
    with pytest.raises(ConfigError, match="latencies must all be positive"):
        fit_log_latency(np.zeros((20, 1)), latency, seed=0)


@pytest.fixture(scope="module")
def trees() -> OperatorTrees:
    return OperatorTrees.fit([measured().traces[0]])


@pytest.fixture
def folder(trees: OperatorTrees, tmp_path: Path) -> Path:
    save_surrogate(trees, tmp_path / "o")
    return tmp_path / "o"


def test_trees_follow_operator_and_costs_and_know_typical_times(trees):
    found = trees.microseconds(measured().traces[0], np.arange(4))
    np.testing.assert_allclose(found, [1.0, 10.0, 2.0, 20.0], rtol=0.1)
    assert trees.microseconds(measured().traces[0], np.arange(0)).shape == (0,)
    other = workload([dataclasses.replace(comp(0, 5, num_ops=1), name="aten::sin")]).traces[0]
    (found,) = trees.microseconds(other, np.arange(1))
    assert 0.9 < found < 21


def test_arrays_predict_what_scikit_learn_predicts(trees):
    from sklearn.ensemble import GradientBoostingRegressor

    from layerdag.simulator import learned as ours

    trace = measured().traces[0]
    rows = measured_rows(trace)
    names = [trace.names()[row] for row in rows.tolist()]
    features_SF = ours._tree_features(names, ours._costs(trace, rows), trees.typical)
    log_S = np.log(trees.microseconds(trace, rows))
    theirs = GradientBoostingRegressor(
        loss="huber", n_estimators=150, max_depth=6, subsample=0.5, random_state=0
    )
    order = np.random.default_rng(0).permutation(len(rows))
    theirs.fit(features_SF[order], log_S[order])
    np.testing.assert_allclose(theirs.predict(features_SF), log_S, atol=0.05)


def test_one_interrupted_operator_does_not_count():
    trace = measured().traces[0]
    late = workload([dataclasses.replace(comp(0, 9, duration_ns=10**9), name="aten::add")])
    found = OperatorTrees.fit([trace, late.traces[0]]).microseconds(trace, np.arange(1))
    assert found[0] < 2


def test_too_few_measured_operators_are_refused():
    with pytest.raises(ConfigError, match="19 compute nodes state a duration; at least 20"):
        OperatorTrees.fit([measured(19).traces[0]])
    untimed = workload([comp(i, 0) for i in range(30)]).traces[0]
    with pytest.raises(ConfigError, match="0 compute nodes"):
        OperatorTrees.fit([untimed])


def test_they_come_back_from_their_folder(trees, folder):
    back = OperatorTrees.load(folder)
    trace, rows = measured().traces[0], np.arange(20)
    np.testing.assert_array_equal(back.microseconds(trace, rows), trees.microseconds(trace, rows))


def changed(array: np.ndarray, value: int) -> np.ndarray:
    array = array.copy()
    array[0, 0] = value
    return array


@pytest.mark.parametrize(
    ("name", "value"), [("left", 10**6), ("right", -1), ("feature", 4), ("feature", -1)]
)
def test_trees_from_outside_lead_nowhere_else(folder, name, value):
    arrays = load_file(folder / "weights.safetensors")
    save_file({**arrays, name: changed(arrays[name], value)}, folder / "weights.safetensors")
    with pytest.raises(ConfigError, match=f"damaged.*'{name}' is out of bounds"):
        OperatorTrees.load(folder)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"config": {}}, "damaged"),
        ({"config": {"typical": {}, "start": 0.0, "depth": 1}}, "missing or not finite"),
        ({"config": {"typical": {"": 1.0}, "start": 0.0, "depth": 10**9}}, "depth"),
        ({"config": {"typical": {"": 1.0}, "start": float("inf"), "depth": 1}}, "not finite"),
        ({"config": {"typical": [], "start": 0.0, "depth": 1}}, "damaged"),
        ({"family": "boosting"}, "a number of a whole graph, not the times of operators"),
    ],
)
def test_a_folder_from_outside_is_checked(folder, changes, words):
    facts = json.loads((folder / "surrogate.json").read_text())
    (folder / "surrogate.json").write_text(json.dumps({**facts, **changes}))
    with pytest.raises(ConfigError, match=words):
        OperatorTrees.load(folder)


def test_files_that_are_missing_or_no_json_are_told(folder, tmp_path):
    with pytest.raises(ConfigError, match="there is no such file; write it with 'layerdag surr"):
        OperatorTrees.load(tmp_path / "none")
    weights = folder / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-20])
    with pytest.raises(ConfigError, match="damaged"):
        OperatorTrees.load(folder)
    (folder / "surrogate.json").write_text("[")
    with pytest.raises(ConfigError, match="damaged"):
        OperatorTrees.load(folder)
    (folder / "surrogate.json").write_text("[1]")
    with pytest.raises(ConfigError, match="damaged"):
        OperatorTrees.load(folder)
