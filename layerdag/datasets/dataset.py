"""``GraphDataset``: encoded DAGs with their schema and split, also as PyG data.

Graphs as PyTorch Geometric ``Data``, so that any PyG model or loader can use a data set.

``Data`` carries ``x`` (attribute codes), ``u`` (positions inside bins), ``layer`` (longest-path
layer), ``edge_index``, ``edge_attr`` (edge types, one column), and of the conditions ``y`` (the
label, (1, 1) float32, NaN if unknown), ``numeric`` (1, C) and ``category`` (1, M) as the schema
encodes them.
"""

import hashlib
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, final

import torch
from torch_geometric.data import InMemoryDataset

from layerdag.dag.dag import DAG, DAGBatch, graph_hashes, layers_of
from layerdag.datasets.splits import SplitFingerprint, content_hash
from layerdag.errors import DataError, GraphError, VocabularyError
from layerdag.graph.attributed_graph import LABEL, SPLITS, AttributedGraph, Condition, Split
from layerdag.graph.rolled_blocks import BLOCK, rolled
from layerdag.schema.costs import NO_COSTS
from layerdag.schema.schema import GraphSchema, NumberForm

if TYPE_CHECKING:
    from torch_geometric.data import Data


class StoredGraphs(Sequence[DAG]):
    """Graphs that lie in files and are read when they are asked for."""

    @abstractmethod
    def batch(self, schema: GraphSchema) -> DAGBatch:
        """Return all graphs as one batch whose columns stay in the files."""

    @abstractmethod
    def conditioned_on(self, names: Sequence[str]) -> "StoredGraphs":
        """Return the graphs with these conditions alone."""


Blocks = Literal["whole", "rolled"]


@dataclass(frozen=True, eq=False)
class GraphDataset:
    """DAGs in layer order with the schema that was learned from the training part.

    Attributes:
        name: Of the data set.
        schema: What the codes mean.
        graphs: The graphs of each split.
        names: Name of each graph of each split, in the same order.
        left_out: Graphs that could not be used, with the reason.
        contents: ``content_hash`` of each graph of each split.
        further: Names of training graphs that were added to those of the split, from elsewhere.
        renamed: Words that the graphs have instead of private ones: new word -> old word, by the
            attribute or condition. Part of no schema.
    """

    name: str
    schema: GraphSchema
    graphs: Mapping[Split, Sequence[DAG]]
    names: Mapping[Split, tuple[str, ...]]
    left_out: tuple[str, ...] = ()
    contents: Mapping[Split, tuple[str, ...]] = field(default_factory=dict)
    further: frozenset[str] = frozenset()
    renamed: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @classmethod
    def build(
        cls,
        name: str,
        kind: str,
        parts: Mapping[Split, Sequence[AttributedGraph]],
        *,
        num_bins: int = 16,
        blocks: Blocks = "whole",
        numbers: NumberForm = "absolute",
    ) -> "GraphDataset":
        """Learn the schema from ``parts["train"]`` and encode every part.

        A validation or test graph with a word that no training graph has, in a closed vocabulary,
        is left out and listed: a model could not express it, and guessing would hide that. A
        condition that the schema cannot encode is unknown for that graph.

        Args:
            name: Of the data set.
            kind: "trace" or "flow".
            parts: Graphs of each split.
            num_bins: Bins of each numeric attribute.
            blocks: "rolled" holds the repeated blocks of jobs once, see ``layerdag.graph``;
                graphs that are rolled up already stay so.
            numbers: "relative" codes numbers of nodes over what follows from conditions.

        Raises:
            DataError: If there is no training graph, flow graphs are to be rolled up, or numbers
                follow from no condition.
        """
        if not parts.get("train"):
            raise DataError(f"{name}: there is no training graph; check the files and the split.")
        if blocks == "rolled" and kind != "trace":
            raise DataError(
                f"{name}: holds flow graphs, whose nodes have no program order that could repeat; "
                "leave blocks=whole."
            )
        wholes = parts
        if blocks == "rolled":
            train = [g if BLOCK in g.categories else rolled(g) for g in parts["train"]]
            parts = {**parts, "train": train}
        schema = GraphSchema.fit(kind, parts["train"], num_bins=num_bins, numbers=numbers)
        coded = {split: _encoded(schema, parts.get(split, ())) for split in SPLITS}
        _, refused = coded["train"]
        if refused:
            raise refused[0][1]
        return cls._of_coded(name, schema, coded, wholes)

    @classmethod
    def with_schema(
        cls, name: str, schema: GraphSchema, parts: Mapping[Split, Sequence[AttributedGraph]]
    ) -> "GraphDataset":
        """Encode every part by a schema that was learned from other graphs.

        A graph of any part with a word that the schema does not have, in a closed vocabulary, is
        left out and listed. A condition that it cannot encode is unknown for that graph.

        Args:
            name: Of the data set.
            schema: What the codes mean.
            parts: Graphs of each split.
        """
        coded = {split: _encoded(schema, parts.get(split, ())) for split in SPLITS}
        return cls._of_coded(name, schema, coded, parts)

    @classmethod
    def _of_coded(
        cls,
        name: str,
        schema: GraphSchema,
        coded: Mapping[Split, "_Coded"],
        wholes: Mapping[Split, Sequence[AttributedGraph]],
    ) -> "GraphDataset":
        """Return a data set of graphs that are encoded already; ``wholes`` are unrolled."""
        graphs: dict[Split, tuple[DAG, ...]] = {}
        names: dict[Split, tuple[str, ...]] = {}
        contents: dict[Split, tuple[str, ...]] = {}
        left_out: list[str] = []
        for split, (encoded, refused) in coded.items():
            left_out.extend(f"{label}: {error}" for label, error in refused)
            graphs[split] = tuple(dag for _, dag in encoded)
            names[split] = tuple(label for label, _ in encoded)
            kept = set(names[split])
            raws = [raw for raw in wholes.get(split, ()) if raw.name in kept]
            contents[split] = tuple(content_hash(raw) for raw in raws)
        return cls(name, schema, graphs, names, tuple(left_out), contents)

    def conditioned_on(self, names: Sequence[str]) -> "GraphDataset":
        """Return the data set with these conditions alone, in schema and graphs.

        Raises:
            VocabularyError: If there is no condition of such a name.
        """
        schema = self.schema.conditioned_on(names)
        graphs = {split: _conditioned_on(dags, names) for split, dags in self.graphs.items()}
        return replace(self, schema=schema, graphs=graphs)

    def batch(self, split: Split) -> DAGBatch:
        """Return all graphs of a split as one batch, with encoded conditions.

        Raises:
            GraphError: If the split is empty.
        """
        self._require_graphs(split)
        graphs = self.graphs[split]
        if isinstance(graphs, StoredGraphs):
            return graphs.batch(self.schema)
        return encode_batch(self.schema, graphs)

    def to_pyg(self, split: Split = "train") -> "PygDataset":
        """Return the graphs of a split as PyG's ``InMemoryDataset``, with the names of its columns.

        Each ``Data`` has ``x`` (codes), ``u`` (positions inside bins), ``layer``, ``edge_index``,
        ``edge_attr`` (edge types), ``y`` (the label, NaN if unknown), and the other conditions as
        ``numeric`` and ``category``.

        Raises:
            GraphError: If the split is empty.
        """
        self._require_graphs(split)
        return PygDataset(self.schema, self.graphs[split], self.names[split])

    def _require_graphs(self, split: Split) -> None:
        """Raise GraphError if a split is empty."""
        if not self.graphs[split]:
            raise GraphError(
                f"{self.name}: the {split} part is empty; give it graphs or choose another split."
            )

    def __repr__(self) -> str:
        """Return name, kind and the number of graphs of each split."""
        counts = ", ".join(f"{split}={len(self.graphs[split])}" for split in SPLITS)
        return f"GraphDataset({self.name!r}, {self.schema.kind}, {counts})"

    @property
    def held_out(self) -> tuple[DAG, ...]:
        """The graphs that no gradient came from: those of validation and of test."""
        return (*self.graphs["val"], *self.graphs["test"])

    @property
    def members(self) -> Sequence[DAG]:
        """The training graphs of the split: chosen as the held-out ones were, unlike ``further``.

        A membership attack that compares graphs of two origins would tell the origins apart.
        """
        return self.without_further().graphs["train"]

    def without_further(self) -> "GraphDataset":
        """Return the data set without the graphs of ``further``, with the same schema."""
        if not self.further:
            return self
        kept = [i for i, name in enumerate(self.names["train"]) if name not in self.further]
        return replace(
            self,
            graphs={**self.graphs, "train": tuple(self.graphs["train"][i] for i in kept)},
            names={**self.names, "train": tuple(self.names["train"][i] for i in kept)},
            contents={**self.contents, "train": tuple(self.contents["train"][i] for i in kept)},
            further=frozenset(),
        )

    @property
    def split(self) -> SplitFingerprint:
        """Which graphs are for training, validation and test, without ``further`` ones."""
        contents = self.without_further().contents
        return SplitFingerprint.from_contents({split: contents.get(split, ()) for split in SPLITS})

    @property
    def fingerprint(self) -> str:
        """Hash of schema and training graphs with their conditions, to tell data sets apart.

        Costs of operators are left out: they follow from the graphs.
        """
        schema = replace(self.schema, costs=NO_COSTS)
        digest = hashlib.sha256(repr(schema.to_dict()).encode())
        train = self.graphs["train"]
        for dag, word in zip(train, graph_hashes(train), strict=True):
            digest.update(word.encode())
            digest.update(dag.u_NA.numpy().tobytes())
            digest.update(repr(sorted(dag.conditions.items())).encode())
        return digest.hexdigest()[:16]


_Coded = tuple[list[tuple[str, DAG]], list[tuple[str, DataError]]]


def _encoded(schema: GraphSchema, raws: Sequence[AttributedGraph]) -> _Coded:
    """Return the encoded graphs with their names, and the names of the others with the reason."""
    encoded: list[tuple[str, DAG]] = []
    refused: list[tuple[str, DataError]] = []
    for raw in raws:
        try:
            dag = schema.codes(raw)
        except DataError as error:
            refused.append((raw.name, error))
            continue
        encoded.append((raw.name, dag.with_conditions(_expressible(schema, dag.conditions))))
    with suppress(GraphError):  # raised again below, where each graph is named
        layers_of([dag for _, dag in encoded])
    return _in_layer_order(encoded, refused)


def _in_layer_order(encoded: list[tuple[str, DAG]], refused: list[tuple[str, DataError]]) -> _Coded:
    """Bring graphs into layer order; those with a cycle join the refused ones."""
    kept = []
    for label, dag in encoded:
        try:
            kept.append((label, dag.in_layer_order()))
        except GraphError as error:
            refused.append((label, error))
    return kept, refused


def _conditioned_on(dags: Sequence[DAG], names: Sequence[str]) -> Sequence[DAG]:
    """Return graphs with these conditions alone."""
    if isinstance(dags, StoredGraphs):
        return dags.conditioned_on(names)
    return tuple(
        dag.with_conditions({k: v for k, v in dag.conditions.items() if k in names}) for dag in dags
    )


def _expressible(schema: GraphSchema, conditions: Mapping[str, Condition]) -> dict[str, Condition]:
    """Return the conditions that the schema can encode."""
    kept = {}
    for name, value in conditions.items():
        try:
            schema.encode_conditions([{name: value}])
        except VocabularyError:
            continue
        kept[name] = value
    return kept


def encode_batch(schema: GraphSchema, dags: Sequence[DAG]) -> DAGBatch:
    """Return ``dags`` (in layer order) as one batch with those conditions that the schema has.

    Raises:
        GraphError: If there is no graph.
    """
    if not dags:
        raise GraphError("There is no graph to lay into a batch; check the split.")
    known = set(schema.condition_names)
    rows = [{k: v for k, v in dag.conditions.items() if k in known} for dag in dags]
    numeric_BC, category_BM = schema.encode_conditions(rows)
    return DAGBatch.from_dags(dags, numeric_BC, category_BM)


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


@final
class PygDataset(InMemoryDataset):
    """The graphs of one split, for any PyG model, loader or transform; no file is written.

    Attributes:
        node_columns: Name of each column of ``x``.
        codes: Number of codes of each column of ``x``, for embedding tables.
        edge_types: Name of each code in ``edge_attr``.
        numeric_columns: Name of each column of ``numeric``.
        category_columns: Name of each column of ``category``.
        names: Name of each graph.
    """

    def __init__(self, schema: GraphSchema, dags: Sequence[DAG], names: Sequence[str]) -> None:
        super().__init__(None)
        self.node_columns = tuple(attribute.name for attribute in schema.attributes)
        self.codes = schema.sizes().attributes
        self.edge_types = schema.edge_types
        self.numeric_columns = tuple(c.name for c in schema.numeric_conditions)
        self.category_columns = tuple(c.name for c in schema.category_conditions)
        self.names = tuple(names)
        self.data, self.slices = self.collate([to_pyg(dag, schema) for dag in dags])
