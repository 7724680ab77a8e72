"""What a surrogate learns from samples, beside what it learns from real graphs."""

from collections.abc import Sequence

import numpy as np

from layerdag.datasets import GraphDataset
from layerdag.graph import DAG
from layerdag.sampling import GeneratedGraph
from layerdag.surrogates import (
    FAMILIES,
    REAL,
    SHUFFLED,
    SYNTHETIC,
    Labeled,
    TransferReport,
    transfer,
)

# What the surrogate must not see: the sum of the durations is the target, nearly.
HIDDEN_FROM_SURROGATE = "duration"


def transferred(
    data: GraphDataset,
    samples: Sequence[GeneratedGraph],
    *,
    families: Sequence[str] = ("boosting",),
    seeds: Sequence[int] = (0,),
) -> TransferReport:
    """Train surrogates of the label on real and on synthetic graphs, test on real ones.

    Args:
        data: Graphs that all have a label.
        samples: Graphs that all have a label.
        families: Of surrogates.
        seeds: Of the fits.
    """
    names = [a.name for a in data.schema.attributes]
    column = names.index(HIDDEN_FROM_SURROGATE) if HIDDEN_FROM_SURROGATE in names else None

    def labeled(dags: Sequence[DAG]) -> Labeled:
        target_B = np.array([float(dag.conditions["label"]) for dag in dags])
        return Labeled(tuple(_without(dag, column) for dag in dags), target_B)

    return transfer(
        labeled(data.graphs["train"]),
        labeled([sample.dag for sample in samples]),
        labeled(data.graphs["test"]),
        data.schema.sizes(),
        {name: FAMILIES[name] for name in families},
        seeds=tuple(seeds),
        conditions=(REAL, SYNTHETIC, SHUFFLED),
    )


def _without(dag: DAG, column: int | None) -> DAG:
    """Return the DAG with one attribute set to "absent" everywhere."""
    if column is None:
        return dag
    x_NA = dag.x_NA.clone()
    x_NA[:, column] = 0
    return dag.with_columns(x_NA)
