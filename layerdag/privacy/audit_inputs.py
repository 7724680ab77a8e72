"""What an audit reads: three sets of graphs, and the owner's private words."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from layerdag.codec.folding import (
    CATEGORIES,
    OPEN_VOCABULARIES,
    VOCABULARIES,
    job_graph,
    rank_classes,
)
from layerdag.codec.vocabulary import (
    LEAST_LETTERS,
    LeakedString,
    find_leaked_strings,
    private_strings,
)
from layerdag.dag.dag import DAG
from layerdag.datasets.alignment import align_schemas
from layerdag.datasets.conversion import CodedGraph
from layerdag.datasets.dataset import GraphDataset
from layerdag.datasets.discovery import read_folder
from layerdag.datasets.private_words import rename_private_words
from layerdag.errors import DataError, UsageError
from layerdag.graph.attributed_graph import AttributedGraph, Split
from layerdag.kinds.flow import FLOW
from layerdag.kinds.job import JOB
from layerdag.kinds.program import PROGRAM
from layerdag.runtime.notes import merge_notes
from layerdag.samples.manifest import SampleRun, is_manifest_folder, is_run
from layerdag.samples.reader import iter_samples, part_samples
from layerdag.samples.stored import StoredSample
from layerdag.schema.schema import GraphSchema
from layerdag.traces.trace import Workload

Graphs = str | Path | Sequence[AttributedGraph | Workload | CodedGraph]
"""A folder of traces or flow graphs in any format, or graphs in memory."""


@dataclass(frozen=True, eq=False)
class AuditSets:
    """The graphs of an audit.

    Attributes:
        data: Training and held-out graphs (its test part), with a schema of all three sets, so that
            a word of one set alone does not exclude a graph.
        train: The training graphs in names and numbers.
        left_out: What could not be read, with the reason.
    """

    data: GraphDataset
    made: tuple[DAG, ...]
    train: tuple[AttributedGraph, ...]
    held_out: tuple[AttributedGraph, ...]
    private: frozenset[str]
    left_out: tuple[str, ...]

    def in_codes_of(self, schema: GraphSchema) -> GraphDataset:
        """Return the real graphs in codes of a schema; what it has no words for is left out."""
        parts: dict[Split, tuple[AttributedGraph, ...]] = {
            "train": self.train,
            "test": self.held_out,
        }
        return GraphDataset.with_schema("audit", schema, parts)


def read_sets(train: Graphs, holdout: Graphs, synthetic: Graphs) -> AuditSets:
    """Read the three sets of an audit.

    Of traces that record arguments these are the forward programs, unless another set has traces
    without. Words of flow graphs that are not public are renamed in real graphs as they are for
    training, unless samples hold such a word themselves.

    Raises:
        UsageError: If a set is empty, or traces are compared with flow graphs.
        DataError: If nothing of a folder can be read.
    """
    parts = [_read(graphs) for graphs in (train, holdout, synthetic)]
    if len({_is_trace(graph) for part in parts for graph in part.graphs}) > 1:
        # Samples of traces as graphs are judged beside the graphs of traces.
        parts = [_read(graphs, as_jobs=True) for graphs in (train, holdout, synthetic)]
    for name, part in zip(("training", "held-out", "synthetic"), parts, strict=True):
        if not part.graphs:
            raise UsageError(f"An audit needs {name} graphs, and there is none; check the folders.")
    sizes = [len(part.graphs) for part in parts]
    kinds = {_is_trace(graph) for part in parts for graph in part.graphs}
    if len(kinds) > 1:
        raise UsageError(
            "An audit compares traces with traces or flow graphs with flow graphs, and there are "
            "both; give folders of one kind."
        )
    graphs = _aligned(parts, is_trace=kinds == {True})
    unique = [replace(graph, name=f"{i}") for i, graph in enumerate(graphs)]
    kind = JOB if kinds == {True} else FLOW
    whole = GraphDataset.build("audit", kind, {"train": unique})
    dags = tuple(whole.graphs["train"])
    ends = sizes[0], sizes[0] + sizes[1]
    real: dict[Split, tuple[DAG, ...]] = {
        "train": dags[: ends[0]],
        "val": (),
        "test": dags[ends[0] : ends[1]],
    }
    names: dict[Split, tuple[str, ...]] = {
        part: tuple(f"{part}-{i}" for i in range(len(real[part]))) for part in real
    }
    notes = merge_notes(note for part in parts for graph in part.graphs for note in graph.notes)
    data = whole.replaced(graphs=real, names=names, contents={}, notes=notes)
    return AuditSets(
        data=data,
        made=dags[ends[1] :],
        train=tuple(graphs[: ends[0]]),
        held_out=tuple(graphs[ends[0] : ends[1]]),
        private=parts[0].private | parts[1].private,
        left_out=tuple(reason for part in parts for reason in part.left_out),
    )


@dataclass(frozen=True, eq=False)
class _Part:
    graphs: tuple[AttributedGraph, ...]
    private: frozenset[str] = frozenset()
    left_out: tuple[str, ...] = ()


def _read(graphs: Graphs, *, as_jobs: bool = False) -> _Part:
    if not isinstance(graphs, str | Path):
        return _in_memory(graphs)
    folder = Path(graphs)
    if not folder.is_dir():
        raise UsageError(f"{folder}: there is no such folder; check the path.")
    kind = JOB if as_jobs else PROGRAM
    if is_run(folder) or is_manifest_folder(folder):
        unread = SampleRun.read(folder).unread(folder) if is_run(folder) else ""
        samples = tuple(
            replace(kind.stored_graph(sample), conditions=dict(sample.conditions))
            for sample in iter_samples(folder)
        )
        return _Part(samples, left_out=(unread,) if unread else ())
    found = read_folder(folder, as_they_are=True, as_jobs=as_jobs)
    return _Part(found.graphs, found.private, found.left_out)


def _in_memory(graphs: Sequence[AttributedGraph | Workload | CodedGraph]) -> _Part:
    words: set[str] = set()
    found = []
    for each in graphs:
        if isinstance(each, Workload):
            words |= private_strings(each)
            each = job_graph(each.source, rank_classes(each), each.groups, {})
        found.append(each if isinstance(each, AttributedGraph) else each.graph)
    return _Part(tuple(found), frozenset(words))


def _is_trace(graph: AttributedGraph) -> bool:
    return set(CATEGORIES) <= set(graph.categories)


def _aligned(parts: Sequence[_Part], *, is_trace: bool) -> list[AttributedGraph]:
    graphs = align_schemas([graph for part in parts for graph in part.graphs])
    if is_trace:
        return [
            replace(graph, open_vocabularies=OPEN_VOCABULARIES, vocabularies=VOCABULARIES)
            for graph in graphs
        ]
    count = len(graphs) - len(parts[-1].graphs)
    real, made = graphs[:count], graphs[count:]
    published, renamed = rename_private_words(real)
    private = {word for table in renamed.values() for word in table.values()}
    known = {word for graph in made for word in _words(graph)}
    return [*(real if private & known else published), *made]


def _words(graph: AttributedGraph) -> Iterator[str]:
    for column in graph.categories.values():
        yield from column


PARTS = (".tar", ".parquet")
"""Endings of parts of samples, whose graphs are looked into."""
_PACKED = re.compile(r".*\.(gz|xz|bz2|zst|zip|7z|tgz)")
_TRACE = re.compile(r".*\.et\.(gz|xz)")


@dataclass(frozen=True)
class WordSearch:
    """What was looked for, where, and what was found.

    Attributes:
        found: Each word that a file holds and must not.
        unread: Packed files that nobody looked into, below the folder.
    """

    files: int
    words: int
    found: tuple[LeakedString, ...]
    unread: tuple[str, ...] = ()


def search_words(folder: str | Path, private: Iterable[str] | str | Path) -> WordSearch:
    """Search every file of a folder for private words, or for those of a folder of private graphs.

    Of parts of samples (tar, Parquet) the graphs are searched, too, for what is compressed cannot
    be read as text. Other packed files are listed as not read.

    Raises:
        DataError: If a folder cannot be read.
    """
    folder = Path(folder)
    words = private_words_of(private) if isinstance(private, str | Path) else frozenset(private)
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    found = list(find_leaked_strings(folder, words))
    unread = [
        path
        for path in paths
        if (bool(_PACKED.fullmatch(path.name)) and not _TRACE.fullmatch(path.name))
    ]
    for path in paths:
        if path.suffix in PARTS:
            try:
                name = path.relative_to(folder).as_posix()
                held = {word for sample in part_samples(path) for word in _words_of(sample)}
                leaked = sorted(word for word in held & words if len(word) >= LEAST_LETTERS)
                found += [LeakedString(name, word) for word in leaked]
            except (DataError, UsageError):  # no part, or pyarrow is missing
                unread.append(path)
    names = tuple(path.relative_to(folder).as_posix() for path in unread)
    return WordSearch(len(paths) - len(unread), len(words), tuple(dict.fromkeys(found)), names)


def private_words_of(folder: str | Path) -> frozenset[str]:
    """Return the words that the graphs in a folder hold and that may not be shared.

    Raises:
        DataError: If it holds no traces and no flow graphs, like data sets of other projects.
    """
    return read_folder(Path(folder)).private


def _words_of(sample: StoredSample) -> Iterator[str]:
    yield from _words(sample.graph)
    yield from (value for value in sample.conditions.values() if isinstance(value, str))
