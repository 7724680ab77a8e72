"""Find the jobs and labels in a folder."""

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from layerdag.codec.folding import job_graph, rank_classes
from layerdag.codec.vocabulary import OTHER, private_strings, public_name
from layerdag.dag.program_numbers import MEASURED
from layerdag.datasets.alignment import align_schemas
from layerdag.datasets.corpus import run_graph
from layerdag.datasets.private_words import categories_of, is_public, rename_private_words
from layerdag.datasets.sources import JobSource, find_sources
from layerdag.datasets.splits import content_key
from layerdag.errors import DataError, LayerdagError
from layerdag.graph.attributed_graph import (
    LABEL,
    SPLITS,
    STEP_TIMES,
    AttributedGraph,
    Condition,
    Split,
    read_labels,
    read_step_time,
)
from layerdag.graph.formats import program_json
from layerdag.kinds.flow import FLOW
from layerdag.kinds.graph_kind import GraphKind
from layerdag.kinds.job import JOB
from layerdag.kinds.program import EDGE, PROGRAM
from layerdag.kinds.registry import kind_of_graph
from layerdag.runtime.files import entries_below
from layerdag.runtime.json_shape import parse_json
from layerdag.runtime.notes import Note, NoteCollector, NoteKind, merge_notes
from layerdag.runtime.reading import read_parsed
from layerdag.runtime.terminal import track
from layerdag.traces.chakra.corpus import INDEX, read_index, read_runs
from layerdag.traces.trace import Workload

_NAMES = ("name", "run", "uid", "job", "trace")
_TIMES = (LABEL, "step_time_s_min", "step_time_s", "step_time")
_WORDS = ("family", "strategy", "phase")


@dataclass(frozen=True)
class FoundLabels:
    """Conditions by the name of the job, the files they come from, and files that are damaged."""

    conditions: Mapping[str, Mapping[str, Condition]] = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    faulty: tuple[str, ...] = ()
    notes: tuple[Note, ...] = ()


def find_labels(folder: Path, given: Path | None = None) -> FoundLabels:
    """Return the labels of jobs below a folder.

    By default these are ``labels.csv``, ``labels.json``, lists of runs (``.jsonl``) and step times
    measured by ``layerdag collect``; later ones win. Raises DataError if the given file cannot be
    read.
    """
    notes = NoteCollector(str(folder))
    if given is not None:
        below = folder if given.is_relative_to(folder) else None
        rows = _read(given, below, notes)
        return FoundLabels(rows, (given.name,), notes=notes.notes)
    found: dict[str, dict[str, Condition]] = {}
    sources, faulty = [], []
    for path in sorted(entries_below(folder), key=_rank_of_file):
        if _rank_of_file(path)[0] == 9 or not path.is_file():
            continue
        try:
            rows = _read(path, folder, notes)
        except DataError as error:
            faulty.append(str(error))
            continue
        if rows:
            sources.append(path.relative_to(folder).as_posix())
        for name, row in rows.items():
            found.setdefault(name, {}).update(row)
    return FoundLabels(found, tuple(sources), tuple(faulty), notes.notes)


def _rank_of_file(path: Path) -> tuple[int, str]:
    """Return the precedence of a file of labels; 9 for other files."""
    if path.name.endswith(STEP_TIMES):
        return 0, str(path)
    if path.suffix == ".jsonl":
        return 1, str(path)
    return 2 if path.name in ("labels.csv", "labels.json") else 9, str(path)


def _read(path: Path, folder: Path | None, notes: NoteCollector) -> dict[str, dict[str, Condition]]:
    if path.name.endswith(STEP_TIMES):
        rows: Mapping[str, Mapping[str, Condition]] = {
            path.name.removesuffix(STEP_TIMES): {LABEL: read_step_time(path)}
        }
    elif path.suffix == ".jsonl":
        rows = dict(_listed(path, notes))
    else:
        labels = read_labels(path)
        notes.extend(labels.notes)
        rows = labels.conditions
    at = "" if folder is None else path.parent.relative_to(folder).as_posix()
    prefix = "" if at in ("", ".") else f"{at}/"
    return {f"{prefix}{name}": dict(row) for name, row in rows.items() if row}


def _listed(path: Path, notes: NoteCollector) -> Iterator[tuple[str, dict[str, Condition]]]:
    lines = read_parsed(path).decode("utf-8", errors="replace").split("\n")
    for number, line in enumerate(lines, start=1):
        try:
            row = parse_json(line) if line.strip() else None
        except (ValueError, RecursionError):
            notes.add(
                NoteKind.ENCODING, path.name, "a line that is no JSON; left out",
                where=f"line {number}",
            )  # fmt: skip
            continue
        if not isinstance(row, dict):
            continue
        name = next((str(row[key]) for key in _NAMES if isinstance(row.get(key), str)), None)
        if name is not None:
            yield name, _conditions(row, notes, f"{path.name}, line {number}")


def _conditions(row: Mapping[str, Any], notes: NoteCollector, where: str) -> dict[str, Condition]:
    for key in _TIMES:
        if row.get(key) is not None and _number(row[key]) is None:
            notes.add(
                NoteKind.LABEL, row[key], "no number above 0; the label is unknown", where=where
            )
    time = next((n for key in _TIMES if (n := _number(row.get(key))) is not None), None)
    conditions: dict[str, Condition] = {
        key: row[key] for key in _WORDS if isinstance(row.get(key), str)
    }
    return conditions if time is None else {**conditions, LABEL: time}


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and value > 0 else None


CONDITIONS = (LABEL, "family", "strategy", "phase", "world_size", "num_nodes", "num_layers")
"""What samples may say of a job; further columns of a label file stay private."""
_OF_JOBS = ("strategy", "phase", "world_size")
SHOWN = 5


@dataclass(frozen=True, eq=False)
class FoundJobs:
    """The contents of a folder of traces.

    ``graphs`` have private words renamed; ``runs`` holds the run of each, shared by copies and
    repetitions. ``formats`` and ``others`` count jobs by format and other files by ending,
    ``left_out`` lists reasons, ``private`` the words that no file of a release may hold. ``parts``
    are the splits stated by a corpus; the shipped checkpoint may know its training graphs.
    """

    graphs: tuple[AttributedGraph, ...]
    runs: tuple[str, ...]
    kind: GraphKind
    formats: Mapping[str, int]
    left_out: tuple[str, ...]
    others: Mapping[str, int]
    private: frozenset[str]
    labels: FoundLabels
    labeled: int
    renamed: int
    parts: Mapping[str, Split] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()

    @property
    def num_runs(self) -> int:
        """Number of distinct runs."""
        return len(set(self.runs))

    @cached_property
    def programs(self) -> Mapping[str, str]:
        """Program of each graph, by name; runs that differ only in sizes and edges share it."""
        return {graph.name: operators_of(graph) for graph in self.graphs}

    @property
    def num_programs(self) -> int:
        """Number of distinct programs."""
        return len(set(self.programs.values()))

    def sentences(self) -> Iterator[str]:
        """Yield sentences on what was found and what was left out."""
        what = self.kind.plural
        formats = ", ".join(f"{count} as {name}" for name, count in self.formats.items())
        nodes = sorted(graph.num_nodes for graph in self.graphs)
        sizes = f" of {nodes[0]:,} to {nodes[-1]:,} nodes" if nodes else ""
        yield f"{len(self.graphs)} {what}{sizes} ({formats})" if nodes else f"no usable {what}"
        num_runs, num_programs = self.num_runs, self.num_programs
        if len(self.graphs) > num_runs:
            yield (
                f"{num_runs} distinct runs: jobs with the same operators, edges and sizes "
                "count as one run and stay together"
            )
        if num_programs < num_runs:
            runs = "1 run" if num_runs == 1 else f"{num_runs} runs"
            programs = "1 program" if num_programs == 1 else f"{num_programs} programs"
            same = "runs with equally many of each operator differ in sizes alone"
            yield f"{runs}, {programs}: {same}"
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
        if self.left_out:
            yield f"{len(self.left_out)} left out:"
            for reason in self.left_out[:SHOWN]:
                yield f"  {reason}"
            if len(self.left_out) > SHOWN:
                yield f"  and {len(self.left_out) - SHOWN} more (in the private folder's read.json)"
        if self.others:
            counts = ", ".join(f"{count} {name}" for name, count in sorted(self.others.items()))
            yield f"not looked at, for they are no traces: {counts}"


def operators_of(graph: AttributedGraph) -> str:
    """Return a hash of how often each operator occurs in a graph."""
    kinds = next(iter(graph.categories.values()), [])
    counts = sorted(Counter(graph.categories.get("op", kinds)).items())
    return hashlib.sha256(repr(counts).encode()).hexdigest()


@dataclass(frozen=True, eq=False)
class _Job:
    graph: AttributedGraph
    format: str
    words: frozenset[str]


def read_folder(
    folder: Path,
    labels_at: Path | None = None,
    *,
    max_nodes: int | None = None,
    as_they_are: bool = False,
    as_jobs: bool = False,
) -> FoundJobs:
    """Read everything below a folder; forward programs of traces that record arguments.

    Graphs with more than ``max_nodes`` nodes are left out. ``as_they_are`` keeps private words, for
    figures that are not shared; ``as_jobs`` reads traces as jobs even if they record arguments.
    Raises DataError if nothing can be read, or the label file is damaged.
    """
    labels = FoundLabels()
    left_out: list[str] = []
    others: Mapping[str, int] = {}
    parts: Mapping[str, Split] = {}
    noted: tuple[Note, ...] = ()
    if (folder / INDEX).is_file():
        if labels_at is not None:
            raise DataError(
                f"{folder}: its {INDEX} has the labels; leave the label file {labels_at} out."
            )
        jobs = list(_of_corpus(folder, left_out))
        parts = {r.run: split for r in read_index(folder) for split in SPLITS if r.split == split}
    else:
        sources = find_sources(folder)
        left_out += sources.faulty
        others = sources.others
        labels = find_labels(folder, labels_at)
        left_out += labels.faulty
        learned: Sequence[JobSource] = sources.found
        if not as_jobs:
            from layerdag.datasets.job_programs import learned_sources  # runs programs: slow

            learned, without, noted = learned_sources(folder, learned)
            left_out += without
        jobs = list(_of_folder(learned, left_out))
    if max_nodes is not None:
        left_out += (
            f"{job.graph.name}: {job.graph.num_nodes:,} nodes, more than --max-nodes {max_nodes:,}"
            for job in jobs
            if job.graph.num_nodes > max_nodes
        )
        jobs = [job for job in jobs if job.graph.num_nodes <= max_nodes]
    jobs = _of_one_kind(jobs, left_out)
    if not jobs:
        first = f"; the first reason: {left_out[0]}" if left_out else ""
        raise DataError(f"{folder}: holds no job or graph that can be used{first}.")
    graphs = align_schemas(
        [_labeled(job.graph, labels.conditions, learned=not as_they_are) for job in jobs]
    )
    kind = kind_of_graph(graphs[0])
    plain, renamed = rename_private_words(graphs, checked=kind.known_words)
    if not as_they_are and not kind.has_steps:
        kind.require_public(graphs, str(folder))
    graphs = graphs if as_they_are else plain
    graphs = [kind.with_vocabularies(graph) for graph in graphs]
    unmeasured = [
        replace(graph, numbers={n: v for n, v in graph.numbers.items() if n not in MEASURED})
        for graph in graphs
    ]
    own = {word for job in jobs for word in job.words}
    old = {word for table in renamed.values() for word in table.values()}
    return FoundJobs(
        graphs=tuple(graphs),
        runs=tuple(map(content_key, unmeasured)),
        kind=kind,
        formats=Counter(job.format for job in jobs),
        left_out=tuple(left_out),
        others=others,
        private=frozenset(own | old | set(_name_words(folder, [job.graph.name for job in jobs]))),
        labels=labels,
        labeled=sum(isinstance(graph.conditions.get(LABEL), float) for graph in graphs),
        renamed=len(old),
        parts=parts,
        notes=merge_notes([*noted, *labels.notes, *(n for job in jobs for n in job.graph.notes)]),
    )


def _of_corpus(folder: Path, left_out: list[str]) -> Iterator[_Job]:
    records = read_index(folder)
    for run in track(read_runs(folder, records), "reading traces", len(records)):
        try:
            words = frozenset(private_strings(run.workload()))
            yield _Job(run_graph(run), "Chakra (corpus)", words)
        except DataError as error:
            left_out.append(f"{run.record.run}: {error}")


def _of_folder(sources: Sequence[JobSource], left_out: list[str]) -> Iterator[_Job]:
    """Yield the jobs that can be read; append why others cannot to ``left_out``."""
    for source in track(sources, "reading traces", len(sources)):
        try:
            thing = source.read()
            if isinstance(thing, Workload):
                graph = job_graph(source.name, rank_classes(thing), thing.groups, {})
                words = frozenset(private_strings(thing))
            else:
                graph = replace(thing, name=source.name)
                is_program = set(graph.categories) == set(program_json.ATTRIBUTES)
                words = frozenset(_private_words(graph, is_program=is_program))
                if source.traces is not None:
                    words |= private_strings(source.traces())
            if graph.num_nodes == 0:
                raise DataError("holds no node.")
            graph.layer_N.max(initial=0)  # refuses cycles
            yield _Job(graph, source.format, words)
        except (LayerdagError, OSError, MemoryError) as error:
            reason = str(error).partition("\n")[0] or type(error).__name__
            if isinstance(error, MemoryError):
                reason = "needs more memory than there is."
            left_out.append(f"{source.name}: {reason}")


def _private_words(graph: AttributedGraph, *, is_program: bool) -> Iterator[str]:
    """Yield the private words of a graph and of its unused conditions.

    In a program these are operators that are not PyTorch's and words among arguments.
    """
    of_programs = (program_json.CALL, program_json.SIZES, EDGE) if is_program else ()
    for name, column in categories_of(graph).items():
        if name not in of_programs:
            yield from (word for word in column if not is_public(word))
    if is_program:
        for call in set(graph.categories[program_json.CALL]):
            operator = call.partition(" ")[0]
            known = public_name("::".join(operator.split(".")[:2])) != OTHER
            if not known and not program_json.is_part_or_leaf(operator):
                yield operator
            yield from program_json.words_of_call(call)


def _of_one_kind(jobs: list[_Job], left_out: list[str]) -> list[_Job]:
    """Keep the graphs of the most frequent kind; a model learns one."""
    kinds = [kind_of_graph(job.graph) for job in jobs]
    kept = max(_WORD_OF_KIND, key=kinds.count)
    left_out.extend(
        f"{job.graph.name}: a {_WORD_OF_KIND[kind]} among {_WORD_OF_KIND[kept]}s; release it from "
        "its own folder"
        for job, kind in zip(jobs, kinds, strict=True)
        if kind is not kept
    )
    return [job for job, kind in zip(jobs, kinds, strict=True) if kind is kept]


_WORD_OF_KIND: Mapping[GraphKind, str] = {JOB: "trace", PROGRAM: "program", FLOW: "flow graph"}
"""How messages call a graph; of two kinds with equally many graphs the first one is kept."""


def _labeled(
    graph: AttributedGraph, labels: Mapping[str, Mapping[str, Condition]], *, learned: bool
) -> AttributedGraph:
    """Return a graph with the conditions that samples may have.

    A program that is learned keeps its table of sizes; how its job ran is no property of it.
    """
    known = labels.get(graph.name) or labels.get(graph.name.rpartition("/")[2]) or {}
    stated = {**graph.conditions, **known}
    names = [name for name in CONDITIONS if name in stated]
    if learned and PROGRAM.describes(graph):
        names = [name for name in names if name not in _OF_JOBS]
        names += [name for name in stated if program_json.is_size(name)]
    return replace(graph, conditions={name: stated[name] for name in names})


def _name_words(folder: Path, names: Iterable[str]) -> Iterator[str]:
    """Yield names, paths, user and host, which a release must not mention."""
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
