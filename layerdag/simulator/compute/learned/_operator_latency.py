"""Latency of operators, learned from the measured traces of another workload."""

from collections import Counter
from typing import Any

import numpy as np

from layerdag.errors import ConfigError, LayerdagError
from layerdag.simulator.compute import MeasuredCompute, fit_log_latency
from layerdag.simulator.compute.learned._measured import measured_rows, names_of
from layerdag.traces import Trace, Workload, read_workload

# The regressor takes at most 255 categories; rarer operators share the one of unknown operators.
_MOST_OPERATORS = 250


class OperatorLatency:
    """Predicts how long an operator takes from its name, costs and processor.

    Features are the operator, log2(1 + num_ops), log2(1 + tensor_size) and ``is_cpu_op``; an
    operator that the measured workload does not have is predicted from its costs alone.
    ``PredictedCompute(latency.microseconds)`` makes it a compute model.

    Args:
        operators: Code of each known operator.
        regressor: Of the logarithm of microseconds.
    """

    def __init__(self, operators: dict[str, int], regressor: Any) -> None:
        self._operators = operators
        self._regressor = regressor

    @classmethod
    def from_prefix(cls, prefix: str, seed: int = 0) -> "OperatorLatency":
        """Fit to the workload ``PREFIX.<rank>.et``.

        Raises:
            ConfigError: If it cannot be read, or has too few measured compute nodes.
        """
        try:
            workload = read_workload(prefix)
        except LayerdagError as error:
            raise ConfigError(f"compute model 'learned': {error}") from None
        try:
            return cls.fit(workload, seed)
        except ConfigError as error:
            raise ConfigError(f"compute model 'learned': {prefix} {error}") from None

    @classmethod
    def fit(cls, workload: Workload, seed: int = 0) -> "OperatorLatency":
        """Fit to the durations of all compute nodes; traces that ranks share count once.

        Raises:
            ConfigError: If fewer than 20 compute nodes state a duration.
        """
        traces = list({id(trace): trace for trace in workload.traces}.values())
        rows = [measured_rows(trace) for trace in traces]
        counts = Counter(
            name for t, row in zip(traces, rows, strict=True) for name in names_of(t, row)
        )
        common = counts.most_common(_MOST_OPERATORS)
        operators = {name: code for code, (name, _) in enumerate(common)}
        features, times = [np.zeros((0, 4))], [np.zeros(0)]
        for trace, row in zip(traces, rows, strict=True):
            features.append(_features(trace, row, operators))
            times.append(MeasuredCompute().replayed_ns(trace, row) / 1000)
        regressor = fit_log_latency(
            np.concatenate(features), np.concatenate(times), seed, categorical_features=[0]
        )
        return cls(operators, regressor)

    def microseconds(self, trace: Trace, rows: np.ndarray) -> np.ndarray:
        """Return the predicted latency of each node, shape (M,)."""
        if not len(rows):
            return np.zeros(0)
        return np.exp(self._regressor.predict(_features(trace, rows, self._operators)))


def _features(trace: Trace, rows: np.ndarray, operators: dict[str, int]) -> np.ndarray:
    """Return code, log2 of operations and bytes, and processor, shape (M, 4)."""
    codes = [operators.get(name, np.nan) for name in names_of(trace, rows)]
    costs = [np.maximum(trace.integers(n)[0][rows], 0) for n in ("num_ops", "tensor_size")]
    on_cpu = trace.integers("is_cpu_op")[0][rows]
    return np.column_stack([codes, *(np.log2(1.0 + cost) for cost in costs), on_cpu])
