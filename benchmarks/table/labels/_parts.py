"""Parts of a data set that a generator may see, and the labels of graphs.

Shape letters: B graphs.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from layerdag.dag.dag import DAG
from layerdag.datasets.dataset import GraphDataset
from layerdag.graph.attributed_graph import LABEL, Split
from layerdag.schema.conditions import NO_TABLE, NumericCondition


def generators_data(data: GraphDataset, train: Sequence[DAG], val: Sequence[DAG]) -> GraphDataset:
    """Return a data set of these graphs; scales of conditions, labels included, are theirs alone.

    Words and bins of nodes stay those of the whole training part.
    """
    parts: dict[Split, tuple[DAG, ...]] = {"train": tuple(train), "val": tuple(val), "test": ()}
    numeric = tuple(
        NumericCondition.fit(
            one.name, [float(dag.conditions.get(one.name, np.nan)) for dag in train]
        )
        for one in data.schema.numeric_conditions
    )
    schema = replace(data.schema, numeric_conditions=numeric, condition_table=NO_TABLE)
    names: dict[Split, tuple[str, ...]] = {
        split: tuple(map(str, range(len(part)))) for split, part in parts.items()
    }
    return GraphDataset.of_splits(data.name, schema, parts, names)


def labels_of(dags: Sequence[DAG]) -> np.ndarray:
    """Return the labels, float64 of shape (B,)."""
    return np.array([float(dag.conditions[LABEL]) for dag in dags])
