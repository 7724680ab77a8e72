"""Which function fits a family, by its name."""

from collections.abc import Sequence

import numpy as np

from layerdag.graph import DAG, GraphSizes
from layerdag.surrogates.families._base import SurrogateModel
from layerdag.surrogates.families._boosting import fit_boosting


def _fit_boosting(
    dags: Sequence[DAG], target_B: np.ndarray, sizes: GraphSizes, seed: int
) -> SurrogateModel:
    return fit_boosting(dags, target_B, sizes, seed=seed)


def _fit_message_passing(
    dags: Sequence[DAG], target_B: np.ndarray, sizes: GraphSizes, seed: int
) -> SurrogateModel:
    # PyTorch Geometric takes seconds to import: only who needs it pays.
    from layerdag.surrogates.families._message_passing import fit_message_passing

    return fit_message_passing(dags, target_B, sizes, seed=seed)


def _fit_dag_transformer(
    dags: Sequence[DAG], target_B: np.ndarray, sizes: GraphSizes, seed: int
) -> SurrogateModel:
    from layerdag.surrogates.families._dag_transformer import fit_dag_transformer

    return fit_dag_transformer(dags, target_B, sizes, seed=seed)


def _fit_stacked(
    dags: Sequence[DAG], target_B: np.ndarray, sizes: GraphSizes, seed: int
) -> SurrogateModel:
    from layerdag.surrogates.families._stacked import fit_stacked

    return fit_stacked(dags, target_B, sizes, SINGLE, seed=seed)


SINGLE = {
    "boosting": _fit_boosting,
    "message_passing": _fit_message_passing,
    "dag_transformer": _fit_dag_transformer,
}
"""The families that are no ensemble of others."""

FAMILIES = SINGLE | {"stacked": _fit_stacked}
"""Fitting function by family name: ``fit(dags, target_B, sizes, seed)``."""
