"""Reading whatever lies in a folder, and saying what was found and what was left out."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from layerdag._runtime import track
from layerdag.api.publication import ReleaseSettings
from layerdag.api.publication.reading._finding import Source, find_sources
from layerdag.api.publication.reading._labels import FoundLabels, find_labels
from layerdag.codec import (
    CATEGORIES,
    OPEN_VOCABULARIES,
    VOCABULARIES,
    AttributedGraph,
    job_graph,
    rank_classes,
)
from layerdag.datasets import SPLITS, Split, content_key
from layerdag.datasets.schema import LABEL, MEASURED
from layerdag.datasets.sources import align_schemas, is_public, publish, run_graph
from layerdag.errors import DataError, LayerdagError
from layerdag.evaluation.privacy import private_words
from layerdag.graph import Condition
from layerdag.traces import INDEX, Workload, read_index, read_runs

DURATION = "duration"
CONDITIONS = (LABEL, "family", "strategy", "phase", "world_size", "num_nodes", "num_layers")
"""What samples may say of a job; further columns of a label file stay with the owner."""
SHOWN = 5


@dataclass(frozen=True, eq=False)
class FoundJobs:
    """What a folder of traces holds.

    Attributes:
        graphs: Jobs or flow graphs that can be used, words renamed that may not be shared.
        runs: The run of each graph: copies and repetitions of one program share it.
        kind: "trace" or "flow".
        formats: Number of jobs by the format of their files.
        left_out: What could not be used, with the reason.
        others: Number of files of other kinds, by ending.
        private: Words that no file of a release may hold.
        labels: Where labels come from.
        labeled: Number of graphs with a label.
        renamed: Number of words that were renamed.
        parts: The part of each graph by its name, where a corpus says; its graphs may be known to
            the shipped checkpoint, which learned from the training part of the embedded one.
    """

    graphs: tuple[AttributedGraph, ...]
    runs: tuple[str, ...]
    kind: str
    formats: Mapping[str, int]
    left_out: tuple[str, ...]
    others: Mapping[str, int]
    private: frozenset[str]
    labels: FoundLabels
    labeled: int
    renamed: int
    parts: Mapping[str, Split] = field(default_factory=dict)

    @property
    def num_runs(self) -> int:
        """Number of distinct runs."""
        return len(set(self.runs))

    def sentences(self) -> Iterator[str]:
        """Yield what was found and what was left out, to be printed."""
        what = "jobs" if self.kind == "trace" else "flow graphs"
        formats = ", ".join(f"{count} as {name}" for name, count in self.formats.items())
        nodes = sorted(graph.num_nodes for graph in self.graphs)
        sizes = f" of {nodes[0]:,} to {nodes[-1]:,} nodes" if nodes else ""
        yield f"{len(self.graphs)} {what}{sizes} ({formats})" if nodes else f"no usable {what}"
        if len(self.graphs) > self.num_runs:
            yield (
                f"{self.num_runs} distinct programs: jobs with the same operators, edges and sizes "
                "count as one run and stay together"
            )
        if self.labeled:
            stated = ", ".join(self.labels.sources[:3]) or "the traces themselves"
            more = len(self.labels.sources) - 3
            stated += f" and {more} more" if more > 0 else ""
            yield f"{self.labeled} of them have a label (step time), from {stated}"
        elif self.graphs:
            yield (
                "no labels: usefulness for predicting step times cannot be tested "
                "(give --labels FILE, or collect with 'layerdag collect')"
            )
        if self.renamed:
            what = "word that is" if self.renamed == 1 else "words that are"
            yield f"{self.renamed} {what} not public, renamed"
        yield from self._left_out_sentences()

    def _left_out_sentences(self) -> Iterator[str]:
        if self.left_out:
            yield f"{len(self.left_out)} left out:"
            for reason in self.left_out[:SHOWN]:
                yield f"  {reason}"
            if len(self.left_out) > SHOWN:
                yield f"  and {len(self.left_out) - SHOWN} more (in the private folder's read.json)"
        if self.others:
            counts = ", ".join(f"{count} {name}" for name, count in sorted(self.others.items()))
            yield f"not looked at, for they are no traces: {counts}"


@dataclass(frozen=True, eq=False)
class _Job:
    """One job that was read: its graph, the format of its files and its private words."""

    graph: AttributedGraph
    format: str
    words: frozenset[str]


def read_jobs(settings: ReleaseSettings) -> FoundJobs:
    """Read everything below the folder of traces of a release; see ``read_folder``."""
    return read_folder(settings.traces, settings.labels, max_nodes=settings.max_nodes)


def read_folder(
    folder: Path,
    labels_at: Path | None = None,
    *,
    max_nodes: int | None = None,
    as_they_are: bool = False,
) -> FoundJobs:
    """Read everything below a folder.

    Args:
        folder: With traces or flow graphs in any format, or a corpus.
        labels_at: Label file; None takes what lies in the folder.
        max_nodes: Larger graphs are left out; None for no limit.
        as_they_are: Keep words that may not be shared, for figures that are not.

    Raises:
        DataError: If nothing at all can be read, or the label file is damaged.
    """
    labels = FoundLabels()
    left_out: list[str] = []
    others: Mapping[str, int] = {}
    parts: Mapping[str, Split] = {}
    if (folder / INDEX).is_file():
        jobs = list(_of_corpus(folder, left_out))
        parts = _parts_of(folder)
    else:
        sources = find_sources(folder)
        left_out += sources.faulty
        others = sources.others
        labels = find_labels(folder, labels_at)
        left_out += labels.faulty
        jobs = list(_of_folder(sources.found, left_out))
    if max_nodes is not None:
        jobs = [job for job in jobs if _fits(job.graph, max_nodes, left_out)]
    jobs = _of_one_kind(jobs, left_out)
    if not jobs:
        first = f"; the first reason: {left_out[0]}" if left_out else ""
        raise DataError(f"{folder}: holds no job or graph that can be used{first}.")
    found = _found(folder, jobs, left_out, others, labels, as_they_are=as_they_are)
    return replace(found, parts=parts)


def _found(
    folder: Path,
    jobs: Sequence[_Job],
    left_out: Sequence[str],
    others: Mapping[str, int],
    labels: FoundLabels,
    *,
    as_they_are: bool,
) -> FoundJobs:
    """Return the jobs with labels, in words that may be shared unless they stay as they are."""
    names = [job.graph.name for job in jobs]
    graphs = [_labeled(job.graph, labels.conditions) for job in jobs]
    graphs = align_schemas(graphs)
    kind = "trace" if set(CATEGORIES) <= set(graphs[0].categories) else "flow"
    plain, renamed = publish(graphs, checked=CATEGORIES if kind == "trace" else ())
    graphs = graphs if as_they_are else plain
    if kind == "trace":
        graphs = [
            replace(graph, open_vocabularies=OPEN_VOCABULARIES, vocabularies=VOCABULARIES)
            for graph in graphs
        ]
    own = {word for job in jobs for word in job.words}
    old = {word for table in renamed.values() for word in table.values()}
    return FoundJobs(
        graphs=tuple(graphs),
        runs=tuple(content_key(_program(graph)) for graph in graphs),
        kind=kind,
        formats=Counter(job.format for job in jobs),
        left_out=tuple(left_out),
        others=others,
        private=frozenset(own | old | set(_name_words(folder, names))),
        labels=labels,
        labeled=sum(_is_labeled(graph) for graph in graphs),
        renamed=len(old),
    )


def _of_corpus(folder: Path, left_out: list[str]) -> Iterator[_Job]:
    """Yield the runs of a corpus folder."""
    records = read_index(folder)
    for run in track(read_runs(folder, records), "reading traces", len(records)):
        try:
            words = frozenset(private_words(run.workload()))
            yield _Job(run_graph(run), "Chakra (corpus)", words)
        except DataError as error:
            left_out.append(f"{run.record.run}: {error}")


def _parts_of(folder: Path) -> dict[str, Split]:
    """Return the part of each run of a corpus."""
    return {
        record.run: split
        for record in read_index(folder)
        for split in SPLITS
        if record.split == split
    }


def _of_folder(sources: Sequence[Source], left_out: list[str]) -> Iterator[_Job]:
    """Yield the jobs that can be read; the reasons of the others go to ``left_out``."""
    for source in track(sources, "reading traces", len(sources)):
        try:
            thing = source.read()
            if isinstance(thing, Workload):
                graph = job_graph(source.name, rank_classes(thing), thing.groups, {})
                words = frozenset(private_words(thing))
            else:
                graph, words = replace(thing, name=source.name), frozenset()
            if graph.num_nodes == 0:
                raise DataError("holds no node.")
            graph.layer_N.max(initial=0)  # refuses cycles
            yield _Job(graph, source.format, words)
        except (LayerdagError, OSError, MemoryError) as error:
            left_out.append(f"{source.name}: {_told(error)}")


def _told(error: BaseException) -> str:
    """Return an error as one line."""
    if isinstance(error, MemoryError):
        return "needs more memory than there is."
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _fits(graph: AttributedGraph, most: int, left_out: list[str]) -> bool:
    """Return whether a graph is small enough, and note it where it is not."""
    if graph.num_nodes <= most:
        return True
    left_out.append(f"{graph.name}: {graph.num_nodes:,} nodes, more than --max-nodes {most:,}")
    return False


def _of_one_kind(jobs: list[_Job], left_out: list[str]) -> list[_Job]:
    """Return traces or flow graphs, whichever are more; a model learns one kind."""
    traces = [job for job in jobs if set(CATEGORIES) <= set(job.graph.categories)]
    if len(traces) in (0, len(jobs)):
        return jobs
    flows = [job for job in jobs if job not in traces]
    kept, dropped = (traces, flows) if len(traces) >= len(flows) else (flows, traces)
    word = "a flow graph among traces" if kept is traces else "a trace among flow graphs"
    left_out.extend(f"{job.graph.name}: {word}; release it from its own folder" for job in dropped)
    return kept


def _labeled(
    graph: AttributedGraph, labels: Mapping[str, Mapping[str, Condition]]
) -> AttributedGraph:
    """Return a graph with what label files say of it, by its name or the last part of it."""
    known = labels.get(graph.name) or labels.get(graph.name.rpartition("/")[2]) or {}
    stated = {**graph.conditions, **known}
    return replace(graph, conditions={name: stated[name] for name in CONDITIONS if name in stated})


def _is_labeled(graph: AttributedGraph) -> bool:
    return isinstance(graph.conditions.get(LABEL), float)


def _program(graph: AttributedGraph) -> AttributedGraph:
    """Return a graph without what was measured."""
    numbers = {name: v for name, v in graph.numbers.items() if name not in MEASURED}
    return replace(graph, numbers=numbers)


def _name_words(folder: Path, names: Iterable[str]) -> Iterator[str]:
    """Yield what a release must not say of where its traces were: names, paths, user, host."""
    import getpass
    import socket

    yield str(folder.resolve())
    yield str(Path.home())
    for name in names:
        parts = [name, *(part for part in name.split("/") if not is_public(part))]
        # Samples of an earlier model are called as those of the release are.
        yield from (part for part in parts if "sample-" not in part)
    try:
        yield from (word for word in (getpass.getuser(), socket.gethostname()) if len(word) > 4)
    except (OSError, KeyError, ImportError):  # no name in the system's tables
        return
