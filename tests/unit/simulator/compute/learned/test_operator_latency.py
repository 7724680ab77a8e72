"""Latency of operators learned from measured traces."""

import dataclasses

import numpy as np
import pytest
from simulator_traces import comp, workload

from layerdag.errors import ConfigError
from layerdag.simulator.compute import OperatorLatency
from layerdag.simulator.compute._fitting import fit_log_latency
from layerdag.traces import Workload


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


def test_the_operator_and_its_costs_decide():
    known = measured()
    latency = OperatorLatency.fit(known)
    found = latency.microseconds(known.traces[0], np.arange(4))
    np.testing.assert_allclose(found, [1.0, 10.0, 2.0, 20.0], rtol=0.1)
    assert latency.microseconds(known.traces[0], np.arange(0)).shape == (0,)


def test_an_unknown_operator_is_predicted_from_its_costs():
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
