"""Graphs as PyTorch Geometric ``Data``, so that any PyG model or loader can use a data set.

``Data`` carries ``x`` (attribute codes), ``u`` (positions inside bins), ``layer`` (longest-path
layer), ``edge_index``, ``edge_attr`` (edge types, one column), and of the conditions ``y`` (the
label, (1, 1) float32, NaN if unknown), ``numeric`` (1, C) and ``category`` (1, M) as the schema
encodes them.
"""

from typing import TYPE_CHECKING

import torch

from layerdag.datasets.schema import LABEL, GraphSchema
from layerdag.errors import GraphError
from layerdag.graph import DAG, Condition

if TYPE_CHECKING:
    from torch_geometric.data import Data


def to_pyg(dag: DAG, schema: GraphSchema) -> "Data":
    """Return a graph as PyG ``Data``; tensors are shared, not copied.

    Raises:
        VocabularyError: If the graph carries a condition that the schema does not know.
        GraphError: If it has a cycle.
    """
    data = columns_to_pyg(dag, _label(dag.conditions.get(LABEL)))
    data.numeric, data.category = schema.encode_conditions([dag.conditions])
    data.layer = dag.layer_N
    return data


def columns_to_pyg(dag: DAG, y: float) -> "Data":
    """Return nodes and edges of a graph with one number to predict, as PyG ``Data``."""
    from torch_geometric.data import Data

    return Data(
        x=dag.x_NA,
        edge_index=dag.edge_index_2E,
        edge_attr=dag.edge_type_E[:, None],
        y=torch.tensor([[y]], dtype=torch.float32),
        u=dag.u_NA,
        num_nodes=dag.num_nodes,
    )


def from_pyg(data: "Data") -> DAG:
    """Return PyG ``Data`` as a DAG: ``x`` holds codes; ``u``, ``edge_attr`` and ``y`` are optional.

    Layers are found from the edges, so that a transform may have changed them.

    Raises:
        GraphError: If codes or edge types are no integers, shapes disagree, or there is a cycle.
    """
    if data.x is None or data.edge_index is None:
        raise GraphError("PyG data without x or edge_index cannot be read as a DAG.")
    x_NA = _integers(data.x, "x")
    x_NA = x_NA[:, None] if x_NA.ndim == 1 else x_NA
    edge_attr, u_NA, y = data.get("edge_attr"), data.get("u"), data.get("y")
    edge_type_E = None if edge_attr is None else _integers(edge_attr, "edge_attr").reshape(-1)
    known = y is not None and y.numel() == 1 and bool(torch.isfinite(y).all())
    conditions: dict[str, Condition] = {LABEL: float(y)} if known else {}
    dag = DAG.build(
        x_NA, data.edge_index, edge_type_E=edge_type_E, u_NA=u_NA, conditions=conditions
    )
    return dag.check()


def _label(value: Condition | None) -> float:
    """Return the label as a number, NaN for none and for a word."""
    return float("nan") if value is None or isinstance(value, str) else float(value)


def _integers(tensor: torch.Tensor, name: str) -> torch.Tensor:
    """Return codes as int64. Raises GraphError if some are not whole numbers."""
    if tensor.is_floating_point() and not torch.equal(tensor, tensor.round()):
        raise GraphError(
            f"PyG '{name}' holds fractions; layerdag reads codes of categories, so encode first."
        )
    return tensor.long()
