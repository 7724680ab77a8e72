"""Graphs with their targets, and with attributes that a surrogate may not see."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from layerdag.dag.dag import DAG
from layerdag.errors import DataError, UsageError
from layerdag.schema.schema import GraphSchema


@dataclass(frozen=True, eq=False)
class Labeled:
    """Graphs with one target each."""

    dags: tuple[DAG, ...]
    target_B: np.ndarray

    def __post_init__(self) -> None:
        if len(self.dags) != self.target_B.size:
            raise UsageError(
                f"There are {len(self.dags)} graphs but {self.target_B.size} targets; "
                "pass one target per graph."
            )

    def taken(self, rows: np.ndarray) -> "Labeled":
        """Return the given rows."""
        return Labeled(tuple(self.dags[i] for i in rows.tolist()), self.target_B[rows])

    def joined(self, other: "Labeled") -> "Labeled":
        """Return the graphs of both."""
        return Labeled(self.dags + other.dags, np.concatenate([self.target_B, other.target_B]))


def labeled(
    dags: Sequence[DAG], schema: GraphSchema, target: str, hidden: Sequence[str]
) -> Labeled:
    """Return graphs with the condition ``target`` as their number, some attributes hidden.

    Raises:
        DataError: If no graph carries the target.
        UsageError: If a hidden attribute is not in the schema.
    """
    target_B = targets(dags, target)
    row_b = np.flatnonzero([isinstance(dag.conditions.get(target), int | float) for dag in dags])
    if not row_b.size:
        raise unlabeled(target)
    shown = mask_attributes([dags[i] for i in row_b.tolist()], schema, hidden)
    return Labeled(tuple(shown), target_B[row_b])


def unlabeled(target: str) -> DataError:
    """Return the error that no graph has a target."""
    return DataError(
        f"No graph has a number '{target}'; name another condition with --target, or a label file "
        "with --labels."
    )


def targets(dags: Sequence[DAG], target: str) -> np.ndarray:
    """Return the condition ``target`` of each graph, float64 (B,); NaN where it is not a number."""
    values = [dag.conditions.get(target) for dag in dags]
    return np.array([y if isinstance(y, int | float) else np.nan for y in values], dtype=float)


def mask_attributes(dags: Sequence[DAG], schema: GraphSchema, hidden: Sequence[str]) -> list[DAG]:
    """Return the graphs with the named attributes set to code 0 everywhere.

    A surrogate of the step time must not see measured durations: their sum nearly is the target.

    Raises:
        UsageError: If an attribute is not in the schema.
    """
    names = [attribute.name for attribute in schema.attributes]
    for name in hidden:
        if name not in names:
            raise UsageError(
                f"There is no attribute '{name}' to exclude; known: {', '.join(names)}."
            )
    columns = [names.index(name) for name in hidden]
    result = []
    for dag in dags:
        x_NA, u_NA = dag.x_NA.clone(), dag.u_NA.clone()
        x_NA[:, columns] = 0
        u_NA[:, columns] = 0.0
        result.append(dag.with_columns(x_NA, u_NA))
    return result
