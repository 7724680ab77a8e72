"""Latency of operators from a folder: boosted trees as plain arrays, fitted once on many traces."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays

from layerdag._runtime import numpy_generator, read_parsed, read_whole
from layerdag.errors import ConfigError
from layerdag.simulator.compute import MeasuredCompute
from layerdag.simulator.compute.learned._measured import measured_rows, names_of
from layerdag.traces import Trace

FAMILY = "operators"
MOST_ROWS = 30_000
FEWEST_ROWS = 20
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
        typical: Typical logarithm of microseconds by operator; "" stands for all others.
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
        """Fit to the measured compute nodes of traces, at most ``MOST_ROWS`` drawn at random.

        Raises:
            ConfigError: If fewer than ``FEWEST_ROWS`` compute nodes state a duration.
        """
        rows = [measured_rows(trace) for trace in traces]
        names = [name for t, row in zip(traces, rows, strict=True) for name in names_of(t, row)]
        if len(names) < FEWEST_ROWS:
            raise ConfigError(
                f"{len(names)} compute nodes state a duration; at least {FEWEST_ROWS} are needed."
            )
        pairs = list(zip(traces, rows, strict=True))
        log_S = np.log(np.concatenate([MeasuredCompute().replayed_ns(*p) for p in pairs]) / 1000)
        costs_SC = np.concatenate([_costs(*pair) for pair in pairs])
        typical = _typical(names, log_S)
        chosen = numpy_generator(seed, "operators").permutation(len(names))[:MOST_ROWS]
        features_SF = _features([names[i] for i in chosen.tolist()], costs_SC[chosen], typical)
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
            facts = json.loads(read_parsed(facts_file, ConfigError))
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
                f"{folder}: the surrogate is damaged ({type(error).__name__}: {error}); fit it "
                "again."
            ) from None

    def microseconds(self, trace: Trace, rows: np.ndarray) -> np.ndarray:
        """Return the predicted latency of each node, float64 (M,)."""
        features_SF = _features(names_of(trace, rows), _costs(trace, rows), self.typical)
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


def _typical(names: Sequence[str], log_S: np.ndarray) -> dict[str, float]:
    """Return the median of each operator, drawn toward that of all by ``_PRIOR`` nodes."""
    kinds, code_S = np.unique(names, return_inverse=True)
    overall = float(np.median(log_S))
    found = {"": overall}
    for code, name in enumerate(kinds.tolist()):
        mine = log_S[code_S == code]
        found[name] = (float(np.median(mine)) * mine.size + overall * _PRIOR) / (mine.size + _PRIOR)
    return found


def _features(
    names: Sequence[str], costs_SC: np.ndarray, typical: Mapping[str, float]
) -> np.ndarray:
    """Return the typical time of each operator beside its costs, float32 as the trees saw them."""
    usual_S = np.array([typical.get(name, typical[""]) for name in names], dtype=float)
    return np.column_stack([usual_S, costs_SC]).astype(np.float32)


def _grown(
    features_SF: np.ndarray, log_S: np.ndarray, seed: int
) -> tuple[float, int, dict[str, np.ndarray]]:
    """Return the start value, the depth and the arrays of fitted trees."""
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
    """Return the trees after checking that every child and column exists."""
    typical = {str(name): float(value) for name, value in config["typical"].items()}
    found = {name: arrays[name] for name in _ARRAYS}
    trees, nodes = found["left"].shape
    if any(array.shape != (trees, nodes) for array in found.values()):
        raise ValueError("arrays differ in shape")
    for name, most in (("left", nodes), ("right", nodes), ("feature", 4)):
        if not ((found[name] >= 0) & (found[name] < most)).all():
            raise ValueError(f"'{name}' is out of bounds")
    depth, start = int(config["depth"]), float(config["start"])
    if not 0 <= depth <= nodes:
        raise ValueError("depth out of bounds")
    numbers = (start, *typical.values(), *found["value"].ravel().tolist())
    if not np.isfinite(numbers).all() or "" not in typical:
        raise ValueError("a number is missing or not finite")
    return OperatorTrees(typical, start, depth, found)
