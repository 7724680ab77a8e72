"""A data set: DAGs with their schema, split by run, ready for training and for any PyG user."""

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from layerdag.codec import AttributedGraph
from layerdag.codec.blocks import BLOCK, rolled
from layerdag.datasets._encoding import StoredGraphs
from layerdag.datasets._split_fingerprint import SplitFingerprint, content_hash
from layerdag.datasets.schema import GraphSchema, NumberForm
from layerdag.datasets.schema.costs import NO_COSTS
from layerdag.errors import DataError, GraphError, VocabularyError
from layerdag.graph import DAG, Condition, DAGBatch, graph_hashes, layers_of

if TYPE_CHECKING:
    from layerdag.datasets._pyg_dataset import PygDataset

Split = Literal["train", "val", "test"]
SPLITS: tuple[Split, ...] = ("train", "val", "test")
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
            blocks: "rolled" holds the repeated blocks of jobs once, see ``layerdag.codec.blocks``;
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
        from layerdag.datasets._pyg_dataset import PygDataset

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
        return SplitFingerprint.of({split: contents.get(split, ()) for split in SPLITS})

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
    return DAGBatch.of(dags, numeric_BC, category_BM)
