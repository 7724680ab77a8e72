"""What the graphs of a fit were like, so that a prediction far from them can say so."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import torch

from layerdag.datasets.schema import GraphSchema
from layerdag.graph import DAG

MOST = 0.05
"""Fraction of nodes with codes that no graph of the fit has, above which a graph is unfamiliar."""


@dataclass(frozen=True)
class SeenCodes:
    """Sizes and codes that occur in the graphs of a fit.

    Attributes:
        fewest: Nodes of the smallest graph.
        most: Nodes of the largest graph.
        codes: Codes of each attribute that occur, ascending.
    """

    fewest: int
    most: int
    codes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, dags: Sequence[DAG]) -> "SeenCodes":
        """Return what occurs in these graphs, at least one."""
        sizes = [dag.num_nodes for dag in dags]
        x_NA = torch.cat([dag.x_NA for dag in dags])
        codes = tuple(tuple(column.unique().tolist()) for column in x_NA.T)
        return cls(min(sizes), max(sizes), codes)

    @classmethod
    def from_dict(cls, data: object) -> "SeenCodes | None":
        """Return what ``to_dict`` wrote; None for anything else."""
        if not isinstance(data, Mapping):
            return None
        try:
            codes = tuple(tuple(int(code) for code in column) for column in data["codes"])
            return cls(int(data["fewest"]), int(data["most"]), codes)
        except (KeyError, TypeError, ValueError):
            return None

    def to_dict(self) -> dict[str, object]:
        """Return plain data."""
        return {**asdict(self), "codes": [list(column) for column in self.codes]}

    def outside(self, dag: DAG, schema: GraphSchema) -> str:
        """Return in a phrase what of a graph no graph of the fit was like, "" for nothing."""
        found = []
        if not self.fewest <= dag.num_nodes <= self.most:
            found.append(f"{dag.num_nodes:,} nodes, fitted on {self.fewest:,} to {self.most:,}")
        for attribute, column_N, known in zip(
            schema.attributes, dag.x_NA.T, self.codes, strict=False
        ):
            new_N = ~torch.isin(column_N, torch.tensor(known, dtype=torch.int64))
            if dag.num_nodes and float(new_N.float().mean()) > MOST:
                found.append(
                    f"{float(new_N.float().mean()):.0%} of the nodes have a '{attribute.name}' "
                    "that no graph of the fit has"
                )
        return "; ".join(found)
