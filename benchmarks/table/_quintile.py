"""A data set cut by its labels, and what gives graphs labels: a line, and a schedule.

Shape letters: B graphs, F features, N nodes, R resamples.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from layerdag._runtime import numpy_generator
from layerdag.datasets import GraphDataset, Split
from layerdag.datasets.schema import LABEL, ConditionTable, NumericCondition
from layerdag.datasets.sources import load_latent_preferential
from layerdag.graph import DAG

WORKERS, COSTS = 2, (1.0, 3.0)


@dataclass(frozen=True)
class Quintile:
    """A data set cut by its labels.

    Attributes:
        data: Training and validation graphs, all below the quintile; its scale of labels, too.
        asked: Real graphs of the quintile whose labels are asked for.
        test: The other real graphs of the quintile.
    """

    data: GraphDataset
    asked: tuple[DAG, ...]
    test: tuple[DAG, ...]


def cut(data: GraphDataset, seed: int = 0) -> Quintile:
    """Cut a data set; of the graphs below the quintile a tenth validates."""
    dags = [dag for part in data.graphs.values() for dag in part if LABEL in dag.conditions]
    label_B = labels_of(dags)
    rng = numpy_generator(seed, "quintile")
    order_B = rng.permutation(len(dags))
    is_top_B = label_B > np.quantile(label_B, 0.8)
    below = [dags[i] for i in order_B if not is_top_B[i]]
    top = [dags[i] for i in order_B if is_top_B[i]]
    held_out = max(len(below) // 10, 1)
    parts: dict[Split, tuple[DAG, ...]] = {
        "val": tuple(below[:held_out]),
        "train": tuple(below[held_out:]),
        "test": (),
    }
    numeric = tuple(
        NumericCondition.fit(
            one.name, [float(dag.conditions.get(one.name, np.nan)) for dag in parts["train"]]
        )
        for one in data.schema.numeric_conditions
    )
    schema = replace(data.schema, numeric_conditions=numeric, condition_table=ConditionTable())
    names: dict[Split, tuple[str, ...]] = {
        split: tuple(map(str, range(len(part)))) for split, part in parts.items()
    }
    kept = GraphDataset(data.name, schema, parts, names)
    return Quintile(kept, tuple(top[: len(top) // 2]), tuple(top[len(top) // 2 :]))


def labels_of(dags: Sequence[DAG]) -> np.ndarray:
    """Return the labels, float64 of shape (B,)."""
    return np.array([float(dag.conditions[LABEL]) for dag in dags])


class LinearTeacher:
    """The logarithm of a label from the logarithms of what a graph has: sizes, kinds, degrees.

    Linear in logarithms, as times are in operations, so that it goes on beyond its training graphs.

    Args:
        dags: Graphs with labels.
        kinds: Number of kinds.
        ridge: Penalty on each standardized weight, over the number of graphs.
    """

    def __init__(self, dags: Sequence[DAG], kinds: int, ridge: float = 0.03) -> None:
        self.kinds = kinds
        raw_BF = self._features(dags)
        self.center_F, self.scale_F = raw_BF.mean(0), raw_BF.std(0) + 1e-6
        feature_BF = (raw_BF - self.center_F) / self.scale_F
        log_B = np.log(labels_of(dags))
        self.mean = float(log_B.mean())
        square_FF = feature_BF.T @ feature_BF + ridge * len(dags) * np.eye(feature_BF.shape[1])
        self.weight_F = np.linalg.solve(square_FF, feature_BF.T @ (log_B - self.mean))

    def predict(self, dags: Sequence[DAG]) -> np.ndarray:
        """Return labels, float64 of shape (B,)."""
        feature_BF = (self._features(dags) - self.center_F) / self.scale_F
        found: np.ndarray = np.exp(np.clip(feature_BF @ self.weight_F + self.mean, -50, 50))
        return found

    def _features(self, dags: Sequence[DAG]) -> np.ndarray:
        rows = []
        for dag in dags:
            kinds = np.bincount(dag.x_NA[:, 0].numpy(), minlength=self.kinds)
            widths = np.bincount(dag.layer_N.numpy())
            sizes = [dag.num_nodes, dag.num_edges, dag.num_layers, widths.max()]
            rows.append(np.log1p(np.concatenate([sizes, kinds])))
        return np.stack(rows)


def makespan(dag: DAG) -> float:
    """Return when the last node ends, where each in turn starts on the worker that is free first.

    Nodes are taken layer by layer; a node waits for its predecessors. As benchmarks/surrogates.py.
    """
    free_at = np.zeros(WORKERS)
    end_N = np.zeros(dag.num_nodes)
    source_E, target_E = dag.edge_index_2E.numpy()
    for node in np.argsort(dag.layer_N.numpy(), kind="stable").tolist():
        parents = source_E[target_E == node]
        worker = int(free_at.argmin())
        start = max(free_at[worker], end_N[parents].max(initial=0.0))
        end_N[node] = free_at[worker] = start + COSTS[int(dag.x_NA[node, 0])]
    return float(end_N.max())


def scheduled(train: int) -> GraphDataset:
    """Return latent-preferential graphs labeled with the time that two workers take for them."""
    data = load_latent_preferential(num_train=train, num_val=train // 10, num_test=train // 10)
    labeled = {
        part: tuple(dag.with_conditions({**dag.conditions, LABEL: makespan(dag)}) for dag in dags)
        for part, dags in data.graphs.items()
    }
    label = NumericCondition.fit(LABEL, labels_of(labeled["train"]).tolist())
    known = (*data.schema.numeric_conditions, label)
    schema = replace(data.schema, numeric_conditions=known, condition_table=ConditionTable())
    return replace(data, graphs=labeled, schema=schema)
