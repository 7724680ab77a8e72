"""Pack a folder of graphs into flat arrays with bounded memory.

What a first pass over graphs must remember to split them and to learn their schema.

Of every graph a name, a hash and a number; of every word the first training graph that has it; and
so many whole graphs as memory is granted for. These are the first ones of the split's own order,
which is random and puts training graphs first, so that they are a fair sample of those.
"""

import heapq
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np

from layerdag.codec.folding import EDGE_TYPES
from layerdag.codec.vocabulary import require_operators
from layerdag.dag.dag import DAG
from layerdag.datasets.dataset import GraphDataset
from layerdag.datasets.folder import (
    MAX_WORDS,
    as_job,
    dataset_of,
    folder_graphs,
    folder_labels,
    kind_of,
    new_words,
    require_public_calls,
    sizes_of_parts,
    unknown_operators,
    unmatched_labels,
    with_attributes,
    with_words,
    words_of,
)
from layerdag.datasets.loading import HEADER, FolderConfig
from layerdag.datasets.packed import (
    NAMES,
    PACKED,
    PackedHeader,
    digest_of,
    plain_settings,
    renamed_by_header,
    renamed_file,
)
from layerdag.datasets.splits import Sizes, content_key, split_keys, split_priority
from layerdag.errors import DataError, UsageError
from layerdag.graph.attributed_graph import SPLITS, AttributedGraph, Condition, Labels, Split
from layerdag.graph.formats.program_json import CALL
from layerdag.graph.rolled_blocks import is_rolled
from layerdag.graph.topology import expand_ranges, pointers
from layerdag.runtime.files import atomic_folder, write_text
from layerdag.runtime.notes import NoteCollector
from layerdag.schema.schema import GraphSchema

_TYPES = {
    "x": np.int32,
    "u": np.float32,
    "layer": np.int32,
    "edges": np.int32,
    "edge_types": np.int16,
}
_ROWS_AT_ONCE = 1 << 20
_PER_NODE = ("x", "u", "layer")


@dataclass
class Spool:
    """Graphs in the order in which they came, as raw files.

    Attributes:
        folder: Where the files are.
        attributes: Number of node attributes.
        nodes: Number of nodes of each graph.
        edges: Number of edges of each graph.
        conditions: Of each graph.
    """

    folder: Path
    attributes: int
    nodes: list[int] = field(default_factory=list)
    edges: list[int] = field(default_factory=list)
    conditions: list[Mapping[str, Condition]] = field(default_factory=list)
    _files: dict[str, IO[bytes]] = field(default_factory=dict)

    @contextmanager
    def writing(self) -> Iterator["Spool"]:
        """Keep the files open inside the block."""
        self._files = {name: (self.folder / f"{name}.raw").open("wb") for name in _TYPES}
        try:
            yield self
        finally:
            for file in self._files.values():
                file.close()

    def add(self, dag: DAG) -> None:
        """Append a graph in layer order."""
        self.nodes.append(dag.num_nodes)
        self.edges.append(dag.num_edges)
        self.conditions.append(dag.conditions)
        columns = {
            "x": dag.x_NA,
            "u": dag.u_NA,
            "layer": dag.layer_N,
            "edges": dag.edge_index_2E.T,
            "edge_types": dag.edge_type_E,
        }
        for name, tensor in columns.items():
            self._files[name].write(np.ascontiguousarray(tensor.numpy(), _TYPES[name]).tobytes())

    def flush_permuted(self, target: Path, order: np.ndarray, splits: Sequence[int]) -> None:
        """Write the arrays of a packed data set.

        Args:
            target: Its folder.
            order: Number of each graph, those of a split together.
            splits: Number of graphs of each split, in order.
        """
        node_ptr, edge_ptr = (
            pointers(np.array(sizes)[order]) for sizes in (self.nodes, self.edges)
        )
        np.save(target / "node_ptr.npy", node_ptr)
        np.save(target / "edge_ptr.npy", edge_ptr)
        for name in _TYPES:
            self._lay(target, name, order)
        first_of_split = node_ptr[pointers(splits)[:-1]]
        first_B = np.repeat(first_of_split, splits)
        self._number_through(target, node_ptr[:-1] - first_B, edge_ptr)

    def _lay(self, target: Path, name: str, order: np.ndarray) -> None:
        sizes = np.array(self.nodes if name in _PER_NODE else self.edges)
        raw = self._raw(name, int(sizes.sum()))
        kind = raw.dtype
        if name == "x" and int(raw.max(initial=0)) <= np.iinfo(np.int16).max:
            kind = np.dtype(np.int16)
        made = np.lib.format.open_memmap(
            target / f"{name}.npy", mode="w+", dtype=kind, shape=raw.shape
        )
        starts, done = pointers(sizes)[:-1][order], 0
        for first, last in _chunks(sizes[order]):
            begin = starts[first:last]
            rows = expand_ranges(begin, begin + sizes[order[first:last]])
            made[done : done + rows.size] = raw[rows]
            done += rows.size
        made.flush()

    def _raw(self, name: str, rows: int) -> np.ndarray:
        width = {"x": (self.attributes,), "u": (self.attributes,), "edges": (2,)}.get(name, ())
        if not rows:
            return np.zeros((0, *width), _TYPES[name])
        path = self.folder / f"{name}.raw"
        return np.memmap(path, dtype=_TYPES[name], mode="r", shape=(rows, *width))

    def _number_through(self, target: Path, shift_B: np.ndarray, edge_ptr: np.ndarray) -> None:
        if not edge_ptr[-1]:
            return
        edges = np.load(target / "edges.npy", mmap_mode="r+")
        for first, last in _chunks(np.diff(edge_ptr)):
            shift_E = np.repeat(shift_B[first:last], np.diff(edge_ptr[first : last + 1]))
            edges[edge_ptr[first] : edge_ptr[last]] += shift_E.astype(np.int32)[:, None]
        edges.flush()

    def remove(self) -> None:
        """Delete the raw files."""
        for name in _TYPES:
            (self.folder / f"{name}.raw").unlink(missing_ok=True)


def _chunks(sizes: np.ndarray) -> Iterator[tuple[int, int]]:
    ptr, first = pointers(sizes), 0
    while first < len(sizes):
        last = int(np.searchsorted(ptr, ptr[first] + _ROWS_AT_ONCE, side="right")) - 1
        last = min(max(last, first + 1), len(sizes))
        yield first, last
        first = last


_NO_TRAINING = 1 << 64


@dataclass(frozen=True)
class GraphDigest:
    """What is remembered of a graph.

    Attributes:
        name: Its name.
        key: ``content_key``.
        priority: Its place in the order of the split.
    """

    name: str
    key: str
    priority: int


@dataclass
class FirstPassStatistics:
    """What was seen so far.

    Attributes:
        seed: Of the split.
        named: Split of each graph by its name, where a label file says it; else empty.
        most_nodes: Nodes of the whole graphs that are kept, together.
        seen: Every graph, in the order of the pass.
        texts: Attributes that are words, in the order of the models' columns.
        numbers: Attributes that are numbers.
        edge_types: Names of edge types.
        rolled: Whether every graph is a job with blocks rolled up.
        words: First priority of a training graph with each word, by what holds it.
        notes: What the readers did not understand.
    """

    seed: int
    named: Mapping[str, Split]
    most_nodes: int
    seen: list[GraphDigest] = field(default_factory=list)
    texts: dict[str, int] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    edge_types: dict[str, None] = field(default_factory=dict)
    rolled: bool = True
    words: dict[str, dict[str, int]] = field(default_factory=dict)
    notes: NoteCollector = field(default_factory=lambda: NoteCollector(""))
    _kept: list[tuple[int, int, AttributedGraph]] = field(default_factory=list)
    _nodes: int = 0

    def add(self, graph: AttributedGraph) -> None:
        """Look at a graph."""
        self.notes.extend(graph.notes)
        key = content_key(graph)
        seen = GraphDigest(graph.name, key, split_priority(key, self.seed))
        self.seen.append(seen)
        for known, names in ((self.texts, graph.categories), (self.numbers, graph.numbers)):
            for name in names:
                known[name] = known.get(name, 0) + 1
        self.edge_types |= dict.fromkeys(graph.edge_type_names)
        self.rolled &= is_rolled(graph, EDGE_TYPES)
        first = seen.priority if self._may_train(graph.name) else _NO_TRAINING
        for holder, words in words_of(graph).items():
            known = self.words.setdefault(holder, {})
            for word in words:
                known[word] = min(first, known.get(word, _NO_TRAINING))
        heapq.heappush(self._kept, (-first, -len(self.seen), graph))
        self._nodes += graph.num_nodes
        while self._nodes > self.most_nodes and len(self._kept) > 1:
            self._nodes -= heapq.heappop(self._kept)[2].num_nodes

    def _may_train(self, name: str) -> bool:
        return not self.named or self.named.get(name, "train") == "train"

    @property
    def is_whole(self) -> bool:
        """Whether every graph was kept."""
        return len(self._kept) == len(self.seen)

    def kept(self) -> list[AttributedGraph]:
        """Return the graphs that were kept, in the order of the pass."""
        return [graph for _, _, graph in sorted(self._kept, key=lambda one: -one[1])]

    def splits(self, sizes: Sizes) -> Iterator[tuple[GraphDigest, Split]]:
        """Yield every graph with its split, in the order of the split."""
        if self.named:
            yield from ((seen, self.named.get(seen.name, "train")) for seen in self.seen)
            return
        split_of = split_keys({seen.key for seen in self.seen}, self.seed, sizes=sizes)
        by_key: dict[str, list[GraphDigest]] = {}
        for seen in self.seen:
            by_key.setdefault(seen.key, []).append(seen)
        for key, split in split_of.items():
            yield from ((seen, split) for seen in by_key[key])

    def kept_texts(self) -> list[str]:
        """Return the attributes that are words, without those that name nodes.

        Raises:
            DataError: If an attribute is text in one graph and a number in another.
        """
        both = sorted(self.texts.keys() & self.numbers.keys())
        if both:
            raise DataError(
                f"Attribute '{both[0]}' is text in some graphs and a number in others, which takes "
                "all graphs in memory; make it one of both, or pack with more --schema-nodes."
            )
        for name, graphs in self.texts.items():
            if graphs < len(self.seen):
                self.words[name].setdefault("", 0)
        return [name for name in self.texts if len(self.words[name]) <= MAX_WORDS]

    def training_words(self, last: int) -> dict[str, tuple[str, ...]]:
        """Return the words of each attribute that training graphs have.

        Args:
            last: Priority of the last training graph.
        """
        return {
            name: tuple(word for word, first in self.words[name].items() if first <= last)
            for name in self.texts
        }


SCHEMA_NODES = 2_000_000
"""Nodes of the graphs that the schema is learned from, together, at most."""
_GRAPHS_AT_ONCE = 256

Ready = tuple[Split, int, str, str, DAG]
"""Split of a graph, its place there, name, content hash and codes."""


def pack_folder(
    config: FolderConfig,
    out: str | Path,
    *,
    schema_nodes: int = SCHEMA_NODES,
    overwrite: bool = False,
) -> PackedHeader:
    """Write a folder of traces or graphs as flat arrays, which ``load_folder`` reads.

    The folder is read once if all graphs together have at most ``schema_nodes`` nodes; the result
    is then exactly the data set of ``load_folder``. Else it is read twice, and bins, scales and
    costs are those of ``schema_nodes`` nodes of training graphs drawn with the seed of the split;
    words are those of all training graphs.

    Args:
        config: The folder and how it is read.
        out: Folder to write.
        schema_nodes: Nodes of the graphs that are held in memory to learn the schema from.
        overwrite: Whether an older packed data set may be replaced; nothing else ever is.

    Returns:
        What was written.

    Raises:
        DataError: As ``load_folder``; and if the older file of renamed words is damaged.
        UsageError: If ``out`` may not be replaced, or is the folder itself.
        OSError: If the disk is full.
    """
    if Path(out).resolve() == config.folder.resolve():
        raise UsageError(f"{out}: is the folder that is read; name another one to write.")
    with atomic_folder(out, PACKED, overwrite=overwrite) as draft:
        older = renamed_by_header(out)  # what is none is told before the long reading
        known, left_out = folder_labels(config), list[str]()
        survey = FirstPassStatistics(config.seed, known.splits, schema_nodes)
        for graph in folder_graphs(config, known, left_out):
            survey.add(graph)
        if survey.is_whole:
            data = dataset_of(config, survey.kept(), known)
            ready, learned_from = _of_data(data), len(data.graphs["train"])
        else:
            plan = _Plan.from_survey(config, survey)
            data, learned_from = plan.learned(config, survey)
            ready = plan.ready(config, known, data, left_out)
        left_out.extend(data.left_out)
        survey.notes.extend(known.notes)
        survey.notes.extend(unmatched_labels(config, known, [one.name for one in survey.seen]))
        header = PackedHeader(
            name=config.data_name,
            schema=data.schema.to_dict(),
            splits={},
            settings=plain_settings(config),
            numbers=(),
            words={},
            left_out=(),
            renamed={},
            learned_from=learned_from,
            notes=survey.notes.notes,
        )
        made = _written(draft, ready, data.schema, header, left_out)
        renamed = {name: dict(table) for name, table in data.renamed.items()}
        words = {digest_of(draft / HEADER): renamed} if renamed else {}
        _write_renamed(out, {**older, **words})
    _write_renamed(out, words)
    return made


def _write_renamed(out: str | Path, tables: Mapping[str, Any]) -> None:
    """Write the words that were renamed, or take their file away where there are none."""
    if tables:
        write_text(renamed_file(out), json.dumps(tables, indent=1) + "\n")
    else:
        renamed_file(out).unlink(missing_ok=True)


def _of_data(data: GraphDataset) -> Iterator[Ready]:
    for split in SPLITS:
        lines = zip(data.names[split], data.contents[split], data.graphs[split], strict=True)
        for place, (name, content, dag) in enumerate(lines):
            yield split, place, name, content, dag


@dataclass(frozen=True)
class _Plan:
    """How graphs are prepared one by one as all of them together would be.

    Attributes:
        kind: "trace" or "flow".
        texts: Attributes that are words.
        numbers: Attributes that are numbers.
        edge_types: Names of edge types.
        renamed: Old word -> new word by what holds it.
        words: Words of training graphs, by attribute.
        places: Split of each graph and its place there, by name.
    """

    kind: str
    texts: list[str]
    numbers: list[str]
    edge_types: tuple[str, ...]
    renamed: Mapping[str, Mapping[str, str]]
    words: Mapping[str, tuple[str, ...]]
    places: Mapping[str, tuple[Split, int]]

    @classmethod
    def from_survey(cls, config: FolderConfig, survey: FirstPassStatistics) -> "_Plan":
        """Return the plan after a first pass."""
        places: dict[str, tuple[Split, int]] = {}
        last = 0
        for place, (seen, split) in enumerate(survey.splits(sizes_of_parts(config))):
            places[seen.name] = split, place
            last = max(last, seen.priority) if split == "train" else last
        texts = survey.kept_texts()
        edge_types = tuple(survey.edge_types)
        example = with_attributes(survey.kept()[0], texts, list(survey.numbers), edge_types)
        kind, checked = kind_of(example, rolled=survey.rolled)
        if kind == "program":
            require_public_calls(survey.words[CALL], str(config.folder))
        if kind == "trace":
            require_operators(survey.kept(), str(config.folder))
        found = {name: set(words) for name, words in survey.words.items()}
        renamed = new_words(found, config.public_words, checked=checked)
        return cls(
            kind, texts, list(survey.numbers), edge_types, renamed,
            survey.training_words(last), places,
        )  # fmt: skip

    def prepared(self, graph: AttributedGraph) -> AttributedGraph:
        """Return a graph as it is encoded."""
        made = with_words(
            with_attributes(graph, self.texts, self.numbers, self.edge_types), self.renamed
        )
        words = {
            name: tuple(
                dict.fromkeys(self.renamed.get(name, {}).get(w, w) for w in self.words[name])
            )
            for name in self.texts
        }
        if self.kind == "trace":
            made = as_job(made)
        return replace(made, vocabularies={**words, **made.vocabularies})

    def learned(
        self, config: FolderConfig, survey: FirstPassStatistics
    ) -> tuple[GraphDataset, int]:
        """Return a data set with the schema of the kept training graphs, and their number."""
        train = [g for g in survey.kept() if self.places[g.name][0] == "train"]
        train.sort(key=lambda graph: self.places[graph.name][1])
        data = GraphDataset.build(
            config.data_name, self.kind, {"train": [self.prepared(graph) for graph in train]},
            num_bins=config.num_bins, blocks=config.blocks,
        )  # fmt: skip
        renamed = {name: {new: old for old, new in t.items()} for name, t in self.renamed.items()}
        return data.replaced(renamed={n: t for n, t in renamed.items() if t}), len(train)

    def ready(
        self, config: FolderConfig, known: Labels, data: GraphDataset, left_out: list[str]
    ) -> Iterator[Ready]:
        """Yield all graphs of the folder, read once more."""
        stream = folder_graphs(config, known, list[str]())
        while some := [self.prepared(graph) for graph in islice(stream, _GRAPHS_AT_ONCE)]:
            coded = GraphDataset.with_schema("", data.schema, self._parts(some))
            left_out.extend(coded.left_out)
            for split, _, name, content, dag in _of_data(coded):
                yield split, self.places[name][1], name, content, dag

    def _parts(self, graphs: Sequence[AttributedGraph]) -> dict[Split, list[AttributedGraph]]:
        """Return graphs by their split.

        Raises:
            DataError: If a graph was not there in the first pass.
        """
        parts: dict[Split, list[AttributedGraph]] = {split: [] for split in SPLITS}
        for graph in graphs:
            if graph.name not in self.places:
                raise DataError(
                    f"{graph.name}: was not in the folder at first; pack again when nothing "
                    "writes there."
                )
            parts[self.places[graph.name][0]].append(graph)
        return parts


def _written(
    draft: Path,
    ready: Iterable[Ready],
    schema: GraphSchema,
    header: PackedHeader,
    left_out: list[str],
) -> PackedHeader:
    """Write all files; ``left_out`` is complete when the graphs are."""
    spool = Spool(draft, len(schema.attributes))
    nodes = unknown = 0
    splits, places, names, contents = list[int](), list[int](), list[str](), list[str]()
    with spool.writing():
        for split, place, name, content, dag in ready:
            splits.append(SPLITS.index(split))
            places.append(place)
            names.append(name)
            contents.append(content)
            spool.add(dag)
            if split == "train":
                nodes += dag.num_nodes
                unknown += unknown_operators(schema, dag)
    order = np.lexsort((places, splits))
    counts = {split: splits.count(number) for number, split in enumerate(SPLITS)}
    if not counts["train"]:
        raise DataError(
            f"{header.name}: there is no training graph; check the files and the split."
        )
    spool.flush_permuted(draft, order, list(counts.values()))
    spool.remove()
    listed = {"names": [names[i] for i in order], "contents": [contents[i] for i in order]}
    write_text(draft / NAMES, json.dumps(listed) + "\n")
    numbers, words = _write_conditions(draft, [spool.conditions[i] for i in order])
    header = replace(
        header,
        splits=counts,
        numbers=numbers,
        words=words,
        left_out=tuple(left_out),
        unknown=unknown,
        nodes=nodes,
    )
    header.write(draft)
    return header


def _write_conditions(
    draft: Path, rows: Sequence[Mapping[str, Condition]]
) -> tuple[tuple[str, ...], dict[str, tuple[str, ...]]]:
    """Write the conditions of all graphs; return the names of numbers, and the other words."""
    words: dict[str, dict[str, int]] = {}
    numbers: dict[str, int] = {}
    for row in rows:
        for name, value in row.items():
            if isinstance(value, str):
                known = words.setdefault(name, {})
                known.setdefault(value, len(known))
            else:
                numbers.setdefault(name, len(numbers))
    numbers_BC = np.full((len(rows), len(numbers)), np.nan)
    words_BM = np.full((len(rows), len(words)), -1, dtype=np.int32)
    column_of = {name: column for column, name in enumerate(words)}
    for number, row in enumerate(rows):
        for name, value in row.items():
            if isinstance(value, str):
                words_BM[number, column_of[name]] = words[name][value]
            else:
                numbers_BC[number, numbers[name]] = value
    np.save(draft / "numbers.npy", numbers_BC)
    np.save(draft / "words.npy", words_BM)
    return tuple(numbers), {name: tuple(known) for name, known in words.items()}
