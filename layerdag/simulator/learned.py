"""Latencies of operators learned from traces or from a CSV file, by gradient boosting."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays

from layerdag.errors import ConfigError, LayerdagError
from layerdag.runtime.json_shape import parse_json, plain_reason, require_known, require_shape
from layerdag.runtime.reading import read_parsed, read_whole
from layerdag.runtime.rng import numpy_generator
from layerdag.runtime.tables import numbers, read_table
from layerdag.simulator.compute import MeasuredCompute
from layerdag.traces.chakra.workload import read_workload
from layerdag.traces.trace import NodeType, Trace, Workload

MIN_ROWS = 20


def read_numbers(path: str | Path, columns: tuple[str, ...]) -> np.ndarray:
    """Return the named columns of a table of numbers, shape (S, C) float64.

    Raises:
        ConfigError: If it cannot be read, lacks a column, or holds a value that is no number.
    """
    found = read_table(path, columns, error=ConfigError).columns
    return np.stack([numbers(path, name, found[name], ConfigError) for name in columns], axis=1)


def fit_log_latency(
    features_SF: np.ndarray, latency_us_S: np.ndarray, seed: int, **arguments: Any
) -> Any:
    """Return a regressor of the logarithm of the latency, whose features may be NaN.

    The loss is the absolute error of the logarithm, so that short operators count as much as
    long ones.

    Raises:
        ConfigError: If there are fewer than ``MIN_ROWS`` samples, or one is not positive.
    """
    from sklearn.ensemble import HistGradientBoostingRegressor

    if len(latency_us_S) < MIN_ROWS:
        raise ConfigError(f"has {len(latency_us_S)} samples; at least {MIN_ROWS} are needed.")
    if not (np.isfinite(latency_us_S) & (latency_us_S > 0)).all():
        raise ConfigError("latencies must all be positive numbers.")
    regressor = HistGradientBoostingRegressor(
        loss="absolute_error",
        learning_rate=0.06,
        min_samples_leaf=5,
        random_state=seed,
        **arguments,
    )
    return regressor.fit(features_SF, np.log(latency_us_S))


class ElementwiseLatency:
    """Latency of element-wise operators over shapes; make one with ``fit`` or ``from_csv``.

    Features are those published with SCALE-Sim's TPU branch: the first input's shape padded or
    flattened to three dimensions, its size and the logarithm of the size.
    """

    def __init__(self, regressor: Any, num_samples: int) -> None:
        self._regressor = regressor
        self.num_samples = num_samples

    @classmethod
    def from_csv(cls, path: str | Path) -> "ElementwiseLatency":
        """Fit to a CSV with the columns d0, d1, d2 and latency_us.

        Raises:
            ConfigError: If the file is missing, a column lacks, or a value is no number.
        """
        table_S4 = read_numbers(path, ("d0", "d1", "d2", "latency_us"))
        try:
            return cls.fit(table_S4[:, :3], table_S4[:, 3])
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from None

    @classmethod
    def fit(
        cls, shapes_S3: np.ndarray, latency_us_S: np.ndarray, seed: int = 0
    ) -> "ElementwiseLatency":
        """Fit to shapes and latencies.

        Raises:
            ConfigError: If there are fewer than 20 samples, or a value is not a positive number.
        """
        if not (np.isfinite(shapes_S3) & (shapes_S3 > 0)).all():
            raise ConfigError("shapes and latencies must all be positive numbers.")
        regressor = fit_log_latency(cls._features(shapes_S3), latency_us_S, seed)
        return cls(regressor, len(shapes_S3))

    def microseconds(self, shapes_S3: np.ndarray) -> np.ndarray:
        """Return the predicted latency of each shape, shape (S,)."""
        return np.exp(self._regressor.predict(self._features(shapes_S3)))

    @staticmethod
    def _features(shapes_S3: np.ndarray) -> np.ndarray:
        """Return d0, d1, d2, size and log2(size), shape (S, 5)."""
        size_S = shapes_S3.prod(axis=1)
        return np.column_stack([shapes_S3, size_S, np.log2(size_S)])


def three_dimensions(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return a shape as three sizes: ones in front, or all but the last two flattened."""
    if len(shape) > 3:
        shape = (int(np.prod(shape[:-2])), *shape[-2:])
    padded = (1,) * (3 - len(shape)) + tuple(shape)
    return padded[0], padded[1], padded[2]


def measured_rows(trace: Trace) -> np.ndarray:
    """Return the positions of compute nodes with a duration, int64 (M,)."""
    stated_N = (trace.duration_us_N > 0) | (trace.integers("duration_ns")[0] > 0)
    return np.flatnonzero((trace.type_N == NodeType.COMP) & stated_N)


def names_of(trace: Trace, rows: np.ndarray) -> list[str]:
    """Return the names of the nodes at these positions."""
    names = trace.names()
    return [names[row] for row in rows.tolist()]


# The regressor takes at most 255 categories; rarer operators share the one of unknown operators.
_MAX_OPERATORS = 250


class OperatorLatency:
    """Predicts how long an operator takes from its name, costs and processor.

    Features are the operator's code, log2(1 + num_ops), log2(1 + tensor_size) and ``is_cpu_op``; an
    operator that the measured workload does not have is predicted from its costs alone.
    """

    def __init__(self, operators: dict[str, int], regressor: Any) -> None:
        self._operators = operators
        self._regressor = regressor

    @classmethod
    def from_prefix(cls, prefix: str) -> "OperatorLatency":
        """Fit to the workload ``PREFIX.<rank>.et``.

        Raises:
            ConfigError: If it cannot be read, or has too few measured compute nodes.
        """
        try:
            workload = read_workload(prefix)
        except LayerdagError as error:
            raise ConfigError(f"compute model 'learned': {error}") from None
        try:
            return cls.fit(workload)
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
        common = counts.most_common(_MAX_OPERATORS)
        operators = {name: code for code, (name, _) in enumerate(common)}
        features, times = [np.zeros((0, 4))], [np.zeros(0)]
        for trace, row in zip(traces, rows, strict=True):
            features.append(_coded(trace, row, operators))
            times.append(MeasuredCompute().replayed_ns(trace, row) / 1000)
        regressor = fit_log_latency(
            np.concatenate(features), np.concatenate(times), seed, categorical_features=[0]
        )
        return cls(operators, regressor)

    def microseconds(self, trace: Trace, rows: np.ndarray) -> np.ndarray:
        """Return the predicted latency of each node, shape (M,)."""
        if not len(rows):
            return np.zeros(0)
        return np.exp(self._regressor.predict(_coded(trace, rows, self._operators)))


def _coded(trace: Trace, rows: np.ndarray, operators: dict[str, int]) -> np.ndarray:
    codes = [operators.get(name, np.nan) for name in names_of(trace, rows)]
    return np.column_stack([codes, _costs(trace, rows)])


FAMILY = "operators"
MAX_ROWS = 30_000
# A rare operator is drawn toward the typical one, as if it had been seen this often more.
_PRIOR = 5
_ARRAYS = ("feature", "threshold", "left", "right", "value")


@dataclass(frozen=True, eq=False)
class OperatorTrees:
    """T trees of at most M nodes that predict the logarithm of microseconds.

    Features of an operator are the typical time of those with its name, log2(1 + num_ops),
    log2(1 + tensor_size) and ``is_cpu_op``. Trees and times are fitted with the Huber loss of the
    logarithm, so that a few operators that were interrupted do not count.

    Attributes:
        typical: Typical logarithm of microseconds by operator; "" is for all others.
        start: Prediction before the first tree.
        depth: Steps from a root to the deepest leaf.
        arrays_TM: "feature" (column that a node splits on), "threshold" (at most this goes left),
            "left" and "right" (node numbers; a leaf is its own child) and "value".
    """

    typical: Mapping[str, float]
    start: float
    depth: int
    arrays_TM: Mapping[str, np.ndarray]

    @property
    def family(self) -> str:
        """The name "operators"."""
        return FAMILY

    @classmethod
    def fit(cls, traces: Sequence[Trace], seed: int = 0) -> "OperatorTrees":
        """Fit to the measured compute nodes of traces, at most ``MAX_ROWS`` drawn at random.

        Raises:
            ConfigError: If fewer than ``MIN_ROWS`` compute nodes state a duration.
        """
        rows = [measured_rows(trace) for trace in traces]
        names = [name for t, row in zip(traces, rows, strict=True) for name in names_of(t, row)]
        if len(names) < MIN_ROWS:
            raise ConfigError(
                f"{len(names)} compute nodes state a duration; at least {MIN_ROWS} are needed."
            )
        pairs = list(zip(traces, rows, strict=True))
        log_S = np.log(np.concatenate([MeasuredCompute().replayed_ns(*p) for p in pairs]) / 1000)
        costs_SC = np.concatenate([_costs(*pair) for pair in pairs])
        kinds, code_S = np.unique(names, return_inverse=True)
        overall = float(np.median(log_S))
        typical = {"": overall}
        for code, name in enumerate(kinds.tolist()):
            mine = log_S[code_S == code]
            drawn = float(np.median(mine)) * mine.size + overall * _PRIOR
            typical[name] = drawn / (mine.size + _PRIOR)
        chosen = numpy_generator(seed, "operators").permutation(len(names))[:MAX_ROWS]
        features_SF = _tree_features([names[i] for i in chosen.tolist()], costs_SC[chosen], typical)
        return cls(typical, *_grown(features_SF, log_S[chosen], seed))

    @classmethod
    def load(cls, folder: str | Path) -> "OperatorTrees":
        """Read what ``layerdag surrogate fit --per operator`` wrote; nothing in it is trusted.

        Raises:
            ConfigError: If a file is missing or damaged, or the folder holds another surrogate.
        """
        facts_file = Path(folder) / "surrogate.json"
        if not facts_file.is_file():
            raise ConfigError(
                f"{facts_file}: there is no such file; write it with 'layerdag surrogate fit DATA "
                "--per operator --out FOLDER'."
            )
        try:
            facts = parse_json(read_parsed(facts_file, ConfigError))
            require_shape(facts, {"family": str, "config": dict})
            require_known(facts, ("format", "family", "config", "notes"))
            if facts.get("family") != FAMILY:
                raise ConfigError(
                    f"{folder}: predicts a number of a whole graph, not the times of operators; "
                    "fit one with 'layerdag surrogate fit DATA --per operator'."
                )
            weights = read_whole(facts_file.with_name("weights.safetensors"), error=ConfigError)
            return _rebuilt(facts["config"], load_arrays(weights))
        except (
            *(SafetensorError, KeyError, TypeError, ValueError, IndexError, RecursionError),
            *(AttributeError, OverflowError),
        ) as error:
            raise ConfigError(
                f"{folder}: the surrogate is damaged ({plain_reason(error)}); fit it again."
            ) from None

    def microseconds(self, trace: Trace, rows: np.ndarray) -> np.ndarray:
        """Return the predicted latency of each node, float64 (M,)."""
        features_SF = _tree_features(names_of(trace, rows), _costs(trace, rows), self.typical)
        trees_T1 = np.arange(self.arrays_TM["left"].shape[0])[:, None]
        row_S = np.arange(len(rows))[None, :]
        node_TS = np.zeros((trees_T1.size, len(rows)), dtype=np.int64)
        feature_TM, threshold_TM = self.arrays_TM["feature"], self.arrays_TM["threshold"]
        left_TM, right_TM = self.arrays_TM["left"], self.arrays_TM["right"]
        for _ in range(self.depth):
            value_TS = features_SF[row_S, feature_TM[trees_T1, node_TS]]
            goes_left_TS = value_TS <= threshold_TM[trees_T1, node_TS]
            node_TS = np.where(
                goes_left_TS, left_TM[trees_T1, node_TS], right_TM[trees_T1, node_TS]
            )
        return np.exp(self.start + self.arrays_TM["value"][trees_T1, node_TS].sum(axis=0))

    def config(self) -> Mapping[str, object]:
        """Return all but the arrays, as JSON-serializable data."""
        return {"typical": dict(self.typical), "start": self.start, "depth": self.depth}

    def arrays(self) -> Mapping[str, np.ndarray]:
        """Return the trees."""
        return self.arrays_TM


def _costs(trace: Trace, rows: np.ndarray) -> np.ndarray:
    """Return log2 of operations and of bytes, and whether a node runs on the CPU, (M, 3)."""
    costs = [np.maximum(trace.integers(n)[0][rows], 0) for n in ("num_ops", "tensor_size")]
    on_cpu = trace.integers("is_cpu_op")[0][rows]
    return np.column_stack([*(np.log2(1.0 + cost) for cost in costs), on_cpu])


def _tree_features(
    names: Sequence[str], costs_SC: np.ndarray, typical: Mapping[str, float]
) -> np.ndarray:
    """Return typical times and costs of operators, float32 as the trees saw them."""
    usual_S = np.array([typical.get(name, typical[""]) for name in names], dtype=float)
    return np.column_stack([usual_S, costs_SC]).astype(np.float32)


def _grown(
    features_SF: np.ndarray, log_S: np.ndarray, seed: int
) -> tuple[float, int, dict[str, np.ndarray]]:
    from sklearn.ensemble import GradientBoostingRegressor

    rate = 0.1
    model = GradientBoostingRegressor(
        loss="huber",
        n_estimators=150,
        max_depth=6,
        learning_rate=rate,
        subsample=0.5,
        random_state=seed,
    ).fit(features_SF, log_S)
    start = float(model.init_.predict(features_SF[:1])[0])
    trees = [estimator.tree_ for estimator in model.estimators_[:, 0]]
    most = max(tree.node_count for tree in trees)

    def stacked(name: str) -> np.ndarray:
        columns = [np.asarray(getattr(tree, name)).reshape(-1) for tree in trees]
        return np.stack([np.pad(column, (0, most - column.size)) for column in columns])

    left_TM, right_TM = stacked("children_left"), stacked("children_right")
    own_M, leaf_TM = np.arange(most), left_TM < 0
    arrays = {
        "feature": np.where(leaf_TM, 0, stacked("feature")),
        "threshold": stacked("threshold"),
        "left": np.where(leaf_TM, own_M, left_TM),
        "right": np.where(leaf_TM, own_M, right_TM),
        "value": stacked("value") * rate,
    }
    return start, max(tree.max_depth for tree in trees), arrays


def _rebuilt(config: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> OperatorTrees:
    require_shape(config, {"typical": {str: float}, "depth": int, "start": float})
    typical = {name: float(value) for name, value in config["typical"].items()}
    found = {name: arrays[name] for name in _ARRAYS}
    trees, nodes = found["left"].shape
    if any(array.shape != (trees, nodes) for array in found.values()):
        raise ValueError("arrays differ in shape")
    for name, most in (("left", nodes), ("right", nodes), ("feature", 4)):
        if not ((found[name] >= 0) & (found[name] < most)).all():
            raise ValueError(f"'{name}' is out of bounds")
    depth, start = config["depth"], float(config["start"])
    if not 0 <= depth <= nodes:
        raise ValueError("depth out of bounds")
    numbers = (start, *typical.values(), *found["value"].ravel().tolist())
    if not np.isfinite(numbers).all() or "" not in typical:
        raise ValueError("a number is missing or not finite")
    return OperatorTrees(typical, start, depth, found)
