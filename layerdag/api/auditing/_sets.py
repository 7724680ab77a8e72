"""Training graphs, held-out graphs and samples from three folders, in codes of one schema."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from layerdag.api.publication.reading import read_folder
from layerdag.codec import (
    CATEGORIES,
    OPEN_VOCABULARIES,
    VOCABULARIES,
    AttributedGraph,
    job_graph,
    rank_classes,
)
from layerdag.datasets import CodedGraph, GraphDataset, Split
from layerdag.datasets.files import read_graph
from layerdag.datasets.samples import StoredSample, is_run, iter_samples
from layerdag.datasets.schema import GraphSchema
from layerdag.datasets.sources import align_schemas, publish
from layerdag.errors import UsageError
from layerdag.evaluation.privacy import private_words
from layerdag.graph import DAG
from layerdag.surrogates import SampleFile, sample_files
from layerdag.traces import Workload

Graphs = str | Path | Sequence[AttributedGraph | Workload | CodedGraph]
"""A folder of traces or flow graphs in any format, or graphs in memory."""

MANIFEST = "manifest.json"


@dataclass(frozen=True, eq=False)
class AuditSets:
    """The graphs of an audit.

    Attributes:
        data: Training and held-out graphs (its test part), with a schema of all three sets, so that
            a word of one set alone is no reason to leave a graph out.
        made: The samples.
        train: The training graphs in names and numbers.
        held_out: The held-out graphs.
        private: Words that samples may not hold.
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

    Words of flow graphs that are not public are renamed in real graphs as they are for training,
    unless samples hold such a word themselves.

    Args:
        train: What the generator learned from.
        holdout: Graphs of the same kind that it never saw.
        synthetic: Its samples: what ``layerdag sample`` wrote, a release, or any other folder.

    Raises:
        UsageError: If a set is empty, or traces are compared with flow graphs.
        DataError: If nothing of a folder can be read.
    """
    parts = [_read(train), _read(holdout), _read(synthetic)]
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
    kind = "trace" if kinds == {True} else "flow"
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
    data = replace(whole, graphs=real, names=names, contents={})
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
    """One set as it was read."""

    graphs: tuple[AttributedGraph, ...]
    private: frozenset[str] = frozenset()
    left_out: tuple[str, ...] = ()


def _read(graphs: Graphs) -> _Part:
    """Return the graphs of a set, with words as they are."""
    if not isinstance(graphs, str | Path):
        return _in_memory(graphs)
    folder = Path(graphs)
    if not folder.is_dir():
        raise UsageError(f"{folder}: there is no such folder; check the path.")
    if is_run(folder):
        return _Part(tuple(_stored(sample) for sample in iter_samples(folder)))
    if (folder / MANIFEST).is_file():
        return _Part(tuple(_sampled(file) for file in sample_files(folder)))
    found = read_folder(folder, as_they_are=True)
    return _Part(found.graphs, found.private, found.left_out)


def _stored(sample: StoredSample) -> AttributedGraph:
    """Return a sample of a part with its conditions."""
    return replace(sample.graph, conditions=dict(sample.conditions))


def _sampled(file: SampleFile) -> AttributedGraph:
    """Return a sample with the conditions in its manifest."""
    return replace(read_graph(file.path), conditions=dict(file.conditions))


def _in_memory(graphs: Sequence[AttributedGraph | Workload | CodedGraph]) -> _Part:
    """Return graphs in names and numbers, and the private words of traces."""
    words: set[str] = set()
    found = []
    for each in graphs:
        if isinstance(each, Workload):
            words |= private_words(each)
            each = job_graph(each.source, rank_classes(each), each.groups, {})
        found.append(each if isinstance(each, AttributedGraph) else each.graph)
    return _Part(tuple(found), frozenset(words))


def _is_trace(graph: AttributedGraph) -> bool:
    return set(CATEGORIES) <= set(graph.categories)


def _aligned(parts: Sequence[_Part], *, is_trace: bool) -> list[AttributedGraph]:
    """Return all graphs with the same attributes, in the words of the samples."""
    graphs = align_schemas([graph for part in parts for graph in part.graphs])
    if is_trace:
        return [
            replace(graph, open_vocabularies=OPEN_VOCABULARIES, vocabularies=VOCABULARIES)
            for graph in graphs
        ]
    count = len(graphs) - len(parts[-1].graphs)
    real, made = graphs[:count], graphs[count:]
    published, renamed = publish(real)
    private = {word for table in renamed.values() for word in table.values()}
    known = {word for graph in made for word in _words(graph)}
    return [*(real if private & known else published), *made]


def _words(graph: AttributedGraph) -> Iterator[str]:
    """Yield the words of a graph's nodes."""
    for column in graph.categories.values():
        yield from column
