"""``GraphDataset`` and ``GraphSplit``: encoded DAGs with their schema and split."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, final, overload

from layerdag.dag.dag import DAG, DAGBatch, graph_hashes, layers_of
from layerdag.datasets.conversion import GraphLike, attributed_graphs, is_job
from layerdag.datasets.splits import SplitFingerprint, content_hash, split_graphs
from layerdag.errors import DataError, GraphError, UsageError, VocabularyError, WrongNameError
from layerdag.graph.attributed_graph import LABEL, SPLITS, AttributedGraph, Split
from layerdag.graph.formats.rows import to_networkx
from layerdag.kinds.flow import FLOW
from layerdag.kinds.graph_kind import GraphKind
from layerdag.kinds.job import JOB
from layerdag.runtime.notes import Note, merge_notes
from layerdag.runtime.settings import did_you_mean, guess_message
from layerdag.schema.plan_tables import NO_PLANS
from layerdag.schema.schema import GraphSchema

if TYPE_CHECKING:
    import networkx as nx
    import pandas as pd

    from layerdag.datasets.pyg_dataset import PygDataset


MAX_JOBS = 400
"""Jobs of a split that stay at hand as they were read, spread over all of them."""


def evenly_subsample(jobs: Sequence[AttributedGraph]) -> tuple[AttributedGraph, ...]:
    """Return at most ``MAX_JOBS`` jobs, every k-th one."""
    return tuple(jobs[:: max(1, -(-len(jobs) // MAX_JOBS))])


@final
@dataclass(frozen=True, eq=False)
class GraphSplit(Sequence[DAG]):
    """The graphs of one split of a data set ("train", "val" or "test"), as a sequence."""

    schema: GraphSchema
    graphs: Sequence[DAG]
    names: tuple[str, ...]
    split: Split

    def __len__(self) -> int:
        """Return the number of graphs."""
        return len(self.graphs)

    @overload
    def __getitem__(self, index: int) -> DAG: ...

    @overload
    def __getitem__(self, index: slice) -> "GraphSplit": ...

    def __getitem__(self, index: int | slice) -> "DAG | GraphSplit":
        """Return one graph, or those of a slice as a split of their own."""
        if isinstance(index, slice):
            return replace(self, graphs=self.graphs[index], names=self.names[index])
        return self.graphs[index]

    def attributed(self) -> list[AttributedGraph]:
        """Return the graphs in names and numbers."""
        return [
            self.schema.decode(dag, name) for dag, name in zip(self.graphs, self.names, strict=True)
        ]

    def to_pyg(self) -> "PygDataset":
        """Return PyG's ``InMemoryDataset``; see ``GraphDataset.to_pyg``."""
        from layerdag.datasets.pyg_dataset import PygDataset  # PyG takes seconds

        return PygDataset(self.schema, self.graphs, self.names)

    def to_networkx(self) -> "list[nx.DiGraph]":
        """Return a ``networkx.DiGraph`` for each graph, in names and numbers."""
        return [to_networkx(graph) for graph in self.attributed()]

    def to_pandas(self) -> "pd.DataFrame":
        """Return a row for each graph: name, nodes, edges, layers, and its conditions."""
        import pandas as pd

        return pd.DataFrame(
            {
                "name": name,
                "nodes": dag.num_nodes,
                "edges": dag.num_edges,
                "layers": dag.num_layers,
                **{k: v for k, v in dag.conditions.items() if k not in ("num_nodes", "num_layers")},
            }
            for name, dag in zip(self.names, self.graphs, strict=True)
        )

    def __repr__(self) -> str:
        """Return split, kind and number of graphs."""
        return f"GraphSplit({self.split!r}, {self.schema.kind}, {len(self)} graphs)"


Splits = Mapping[str, Sequence[int]] | Sequence[float]
"""Numbers of the graphs of each split, or the fractions of train, val and test."""


@dataclass(frozen=True, eq=False)
class _Contents:
    name: str
    schema: GraphSchema
    graphs: Mapping[Split, Sequence[DAG]]
    names: Mapping[Split, tuple[str, ...]]
    left_out: tuple[str, ...] = ()
    contents: Mapping[Split, tuple[str, ...]] = field(default_factory=dict)
    extra_train: frozenset[str] = frozenset()
    renamed: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()
    jobs: Mapping[Split, tuple[AttributedGraph, ...]] = field(default_factory=dict)


class GraphDataset(_Contents):
    """DAGs in layer order with the schema that was learned from the training part.

    ``GraphDataset(graphs)`` takes graphs of any kind and splits them; ``data.train``, ``data.val``
    and ``data.test`` are sequences, as ``data["train"]``, and ``data[0]`` counts through them all.

    Attributes:
        graphs: The graphs of each split, in the order of ``names``.
        left_out: Graphs that could not be used, with the reason.
        contents: ``content_hash`` of each graph of each split.
        extra_train: Names of training graphs that were added from elsewhere.
        renamed: New word -> old, private word, by attribute or condition. Not in the schema.
        notes: What the readers of its files did not understand.
        jobs: At most ``MAX_JOBS`` jobs of each split as they were read, since codes round numbers.
    """

    def __init__(
        self,
        graphs: Sequence[GraphLike],
        *,
        targets: Sequence[float] | None = None,
        name: str = "graphs",
        split: Splits = (0.8, 0.1, 0.1),
        num_bins: int = 16,
        seed: int = 0,
    ) -> None:
        """Split graphs at random, learn the schema from the training part, and encode them all.

        Args:
            graphs: DAGs, PyG ``Data``, networkx graphs, attributed graphs, samples, workloads, or
                paths of these. Codes of DAGs and ``Data`` are taken as they are.
            targets: What surrogates predict, one for each graph: the condition "label".
            name: Of the data set.
            split: Fractions of train, val and test, or the numbers of the graphs of each, such as
                ``{"train": range(80), "val": range(80, 100)}``. Graphs that differ only in their
                conditions stay together.
            num_bins: Bins of each numeric attribute.
            seed: Of the split.

        Raises:
            UsageError: If something is no graph, or targets or split do not fit the graphs.
            DataError: If a graph cannot be read, or they have different attributes.
        """
        if isinstance(graphs, str | Path) or not isinstance(graphs, Sequence):
            raise UsageError(
                f"GraphDataset takes a list of graphs, found {graphs!r:.60}; for a folder call "
                "layerdag.load_dataset."
            )
        if isinstance(graphs, GraphSplit):
            raws = graphs.attributed()
        else:
            raws = attributed_graphs(graphs)
            if len({raw.name for raw in raws}) < len(raws):
                raws = [replace(raw, name=f"{raw.name}-{i:05d}") for i, raw in enumerate(raws)]
        parts = _divided(_with_targets(raws, targets), split, seed)
        kind = JOB if graphs and all(map(is_job, graphs)) else FLOW
        made = self.build(name, kind, parts, num_bins=num_bins)
        notes = merge_notes(note for raw in raws for note in raw.notes)
        super().__init__(**(vars(made) | {"notes": notes}))

    @classmethod
    def of_splits(cls, *values: Any, **further: Any) -> "GraphDataset":
        """Return a data set of graphs that are encoded and split already; see the attributes."""
        made = object.__new__(cls)
        super(GraphDataset, made).__init__(*values, **further)
        return made

    def replaced(self, **changes: Any) -> "GraphDataset":
        """Return the data set with other values of some attributes."""
        return self.of_splits(**(vars(self) | changes))

    @classmethod
    def from_folder(cls, *_: object, **__: object) -> NoReturn:
        """Say what loads a folder."""
        raise WrongNameError(guess_message("GraphDataset.from_folder", "load_dataset(folder)"))

    @classmethod
    def from_pyg(cls, *_: object, **__: object) -> NoReturn:
        """Say that the constructor takes PyG's graphs."""
        raise WrongNameError(guess_message("GraphDataset.from_pyg", "GraphDataset(list_of_data)"))

    @property
    def train(self) -> GraphSplit:
        """The graphs that models learn from."""
        return self._part("train")

    @property
    def val(self) -> GraphSplit:
        """The graphs that decide which weights are kept."""
        return self._part("val")

    @property
    def test(self) -> GraphSplit:
        """The graphs that nothing was learned or chosen from."""
        return self._part("test")

    def _part(self, split: Split) -> GraphSplit:
        return GraphSplit(self.schema, self.graphs[split], self.names[split], split)

    def __len__(self) -> int:
        """Return the number of graphs of all splits."""
        return sum(len(self.graphs[split]) for split in SPLITS)

    def __iter__(self) -> Iterator[DAG]:
        """Yield the graphs of all splits, those of train first."""
        for split in SPLITS:
            yield from self.graphs[split]

    @overload
    def __getitem__(self, key: int) -> DAG: ...

    @overload
    def __getitem__(self, key: str) -> GraphSplit: ...

    def __getitem__(self, key: int | str) -> DAG | GraphSplit:
        """Return a graph by its number through all splits, or a split by its name.

        Raises:
            UsageError: If there is no split of that name.
            IndexError: If there is no graph of that number.
        """
        if isinstance(key, str):
            return self._part(split_named(key))
        at = key + len(self) if key < 0 else key
        for split in SPLITS:
            if 0 <= at < len(self.graphs[split]):
                return self.graphs[split][at]
            at -= len(self.graphs[split])
        raise IndexError(f"{self.name}: there is no graph {key}; it holds {len(self)}.")

    def to_networkx(self, split: Split = "train") -> "list[nx.DiGraph]":
        """Return a ``networkx.DiGraph`` for each graph of a split, in names and numbers."""
        return self[split].to_networkx()

    @classmethod
    def build(
        cls,
        name: str,
        kind: str | GraphKind,
        parts: Mapping[Split, Sequence[AttributedGraph]],
        *,
        num_bins: int = 16,
    ) -> "GraphDataset":
        """Learn the schema from ``parts["train"]`` and encode every part.

        A validation or test graph with a word that no training graph has, in a closed vocabulary,
        is left out and listed: a model could not express it, and guessing would hide that. A
        condition that the schema cannot encode is unknown for that graph.

        Raises:
            DataError: If there is no training graph.
        """
        if not parts.get("train"):
            raise DataError(f"{name}: there is no training graph; check the files and the split.")
        schema = GraphSchema.fit(kind, parts["train"], num_bins=num_bins)
        data, refused = cls._encoded(name, schema, parts)
        if refused["train"]:
            raise refused["train"][0]
        return data

    @classmethod
    def with_schema(
        cls, name: str, schema: GraphSchema, parts: Mapping[Split, Sequence[AttributedGraph]]
    ) -> "GraphDataset":
        """Encode every part by a schema that was learned from other graphs.

        A graph of any part with a word that the schema does not have, in a closed vocabulary, is
        left out and listed. A condition that it cannot encode is unknown for that graph.
        """
        return cls._encoded(name, schema, parts)[0]

    @classmethod
    def _encoded(
        cls, name: str, schema: GraphSchema, parts: Mapping[Split, Sequence[AttributedGraph]]
    ) -> tuple["GraphDataset", Mapping[Split, Sequence[DataError]]]:
        """Return the graphs that the schema can express, and what is wrong with the others."""
        graphs: dict[Split, tuple[DAG, ...]] = {}
        names: dict[Split, tuple[str, ...]] = {}
        contents: dict[Split, tuple[str, ...]] = {}
        errors: dict[Split, list[DataError]] = {}
        jobs: dict[Split, tuple[AttributedGraph, ...]] = {}
        left_out: list[str] = []
        for split in SPLITS:
            encoded, refused = _encoded(schema, parts.get(split, ()))
            left_out.extend(f"{label}: {error}" for label, error in refused)
            errors[split] = [error for _, error in refused]
            graphs[split] = tuple(dag for _, dag in encoded)
            names[split] = tuple(label for label, _ in encoded)
            known = set(names[split])
            raws = [raw for raw in parts.get(split, ()) if raw.name in known]
            contents[split] = tuple(content_hash(raw) for raw in raws)
            jobs[split] = evenly_subsample(schema.kind.kept_as_read(raws))
        kept = jobs if any(jobs.values()) else {}
        data = cls.of_splits(name, schema, graphs, names, tuple(left_out), contents, jobs=kept)
        return data, errors

    def conditioned_on(self, names: Sequence[str]) -> "GraphDataset":
        """Return the data set with these conditions alone, in schema and graphs.

        Raises:
            VocabularyError: If there is no condition of such a name.
        """
        schema = self.schema.conditioned_on(names)
        graphs = {
            split: tuple(
                dag.with_conditions({k: v for k, v in dag.conditions.items() if k in names})
                for dag in dags
            )
            for split, dags in self.graphs.items()
        }
        return self.replaced(schema=schema, graphs=graphs)

    def batch(self, split: Split) -> DAGBatch:
        """Return all graphs of a split as one batch, with encoded conditions.

        Raises:
            GraphError: If the split is empty.
        """
        self._require_graphs(split)
        return encode_batch(self.schema, self.graphs[split])

    def to_pyg(self, split: Split = "train") -> "PygDataset":
        """Return the graphs of a split as PyG's ``InMemoryDataset``, with the names of its columns.

        Each ``Data`` has ``x`` (codes), ``u`` (positions inside bins), ``layer``, ``edge_index``,
        ``edge_attr`` (edge types), ``y`` (the label, NaN if unknown), and the other conditions as
        ``numeric`` and ``category``.

        Raises:
            GraphError: If the split is empty.
        """
        self._require_graphs(split)
        return self[split].to_pyg()

    def _require_graphs(self, split: Split) -> None:
        if not self.graphs[split]:
            others = sum(map(len, self.graphs.values()))
            raise GraphError(
                f"{self.name}: the {split} part is empty (of all {others:,} in the data set); "
                "copies of one program stay together, so give it more distinct graphs, or choose "
                "another split (a column 'split' of the label file)."
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
        """The training graphs of the split: chosen as held-out ones were, unlike ``extra_train``.

        A membership attack that compares graphs of two origins would tell the origins apart.
        """
        return self.without_extra_train().graphs["train"]

    def without_extra_train(self) -> "GraphDataset":
        """Return the data set without the graphs of ``extra_train``, with the same schema."""
        if not self.extra_train:
            return self
        kept = [i for i, name in enumerate(self.names["train"]) if name not in self.extra_train]
        return self.replaced(
            graphs={**self.graphs, "train": tuple(self.graphs["train"][i] for i in kept)},
            names={**self.names, "train": tuple(self.names["train"][i] for i in kept)},
            contents={**self.contents, "train": tuple(self.contents["train"][i] for i in kept)},
            extra_train=frozenset(),
        )

    @property
    def split(self) -> SplitFingerprint:
        """Which graphs are for training, validation and test, without ``extra_train`` ones."""
        contents = self.without_extra_train().contents
        return SplitFingerprint.from_contents({split: contents.get(split, ()) for split in SPLITS})

    @property
    def fingerprint(self) -> str:
        """Hash of schema and training graphs with their conditions, to tell data sets apart.

        Hashes of structures and plans are left out: no model sees them.
        """
        schema = replace(self.schema, structures=frozenset(), plans=NO_PLANS)
        digest = hashlib.sha256(repr(schema.to_dict()).encode())
        train = self.graphs["train"]
        for dag, word in zip(train, graph_hashes(train), strict=True):
            digest.update(word.encode())
            digest.update(dag.u_NA.numpy().tobytes())
            digest.update(repr(sorted(dag.conditions.items())).encode())
        return digest.hexdigest()[:16]


def split_named(name: str) -> Split:
    """Return a split; raise UsageError if there is none of that name."""
    for split in SPLITS:
        if name == split:
            return split
    raise UsageError(
        f"There is no split '{name}'.{did_you_mean(name, SPLITS)} Known are {', '.join(SPLITS)}."
    )


def _with_targets(
    graphs: Sequence[AttributedGraph], targets: Sequence[float] | None
) -> list[AttributedGraph]:
    if targets is None:
        return list(graphs)
    if len(targets) != len(graphs):
        raise UsageError(
            f"There are {len(targets)} targets for {len(graphs)} graphs; give one for each."
        )
    return [
        replace(graph, conditions={**graph.conditions, LABEL: float(target)})
        for graph, target in zip(graphs, targets, strict=True)
    ]


def _divided(
    graphs: Sequence[AttributedGraph], split: Splits, seed: int
) -> dict[Split, list[AttributedGraph]]:
    if isinstance(split, Mapping):
        numbers = {split_named(name): tuple(found) for name, found in split.items()}
        wrong = [i for found in numbers.values() for i in found if not 0 <= i < len(graphs)]
        if wrong:
            raise UsageError(f"The split names graph {wrong[0]}, but there are {len(graphs)}.")
        return {name: [graphs[i] for i in numbers.get(name, ())] for name in SPLITS}
    shares = tuple(split)
    if len(shares) != len(SPLITS) or min(shares) < 0 or abs(sum(shares) - 1) > 1e-6:
        raise UsageError(
            f"split is {split!r:.60}; give the fractions of train, val and test, such as "
            '(0.8, 0.1, 0.1), or {"train": [0, 1], "val": [2], "test": [3]}.'
        )
    return split_graphs(
        graphs, seed, sizes=lambda count: (round(shares[1] * count), round(shares[2] * count))
    )


def _encoded(
    schema: GraphSchema, raws: Sequence[AttributedGraph]
) -> tuple[list[tuple[str, DAG]], list[tuple[str, DataError]]]:
    """Return names and graphs in layer order, and names and errors of the others."""
    encoded: list[tuple[str, DAG]] = []
    refused: list[tuple[str, DataError]] = []
    for raw in raws:
        try:
            dag = schema.codes(raw)
        except DataError as error:
            refused.append((raw.name, error))
            continue
        kept_conditions = {}
        for name, value in dag.conditions.items():
            with suppress(VocabularyError):
                schema.encode_conditions([{name: value}])
                kept_conditions[name] = value
        encoded.append((raw.name, dag.with_conditions(kept_conditions)))
    with suppress(GraphError):  # raised again below, where each graph is named
        layers_of([dag for _, dag in encoded])
    kept = []
    for label, dag in encoded:
        try:
            kept.append((label, dag.in_layer_order()))
        except GraphError as error:
            refused.append((label, error))
    return kept, refused


def encode_batch(schema: GraphSchema, dags: Sequence[DAG]) -> DAGBatch:
    """Return ``dags`` (in layer order) as one batch with those conditions that the schema has.

    Raises GraphError if there is no graph.
    """
    if not dags:
        raise GraphError("There is no graph to lay into a batch; check the split.")
    known = set(schema.condition_names)
    rows = [{k: v for k, v in dag.conditions.items() if k in known} for dag in dags]
    numeric_BC, category_BM = schema.encode_conditions(rows)
    return DAGBatch.from_dags(dags, numeric_BC, category_BM)
