"""The jobs and graphs in a folder, sorted by the names of their files and not read yet."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from layerdag.codec.folding import job_graph, rank_classes
from layerdag.codec.foreign import GRAPHS, foreign_format
from layerdag.codec.formats import (
    CHAKRA,
    DEVICE,
    FORWARD_PROGRAM,
    HOST_TRACE,
    KINETO,
    Content,
    Format,
    ReadOptions,
    format_of_file,
    recognize,
)
from layerdag.codec.recognition import JSON_SUFFIX, stem_of, suffix_of
from layerdag.codec.vocabulary import PublicWords
from layerdag.errors import DataError
from layerdag.graph.attributed_graph import AttributedGraph, size_conditions
from layerdag.runtime.files import entries_below
from layerdag.runtime.reading import read_whole
from layerdag.traces.chakra.workload import RankFile, read_workload
from layerdag.traces.pytorch.ranks import (
    PyTorchFile,
    are_distributed,
    has_rank_in_name,
    import_ranks,
    refuse_missing_ranks,
)
from layerdag.traces.trace import Workload

MAX_FILES = 200_000
_DOTTED = re.compile(r"(?:.+\.)?\d{1,9}\.et(?:\.gz|\.xz)?")
_PYTORCH = re.compile(r"(?P<stem>.+?)((\.(json|pt|trace|et|gz|xz))+)")
_RANK = re.compile(
    r"(?P<job>.*?)[._-]*(?:(?:rank|worker)[._-]?|(?<![a-z])r|[._-])(?P<rank>\d{1,6})", re.IGNORECASE
)
_ROLE = re.compile(
    r"(^|[._-])(host|device|kineto|profile|prof|et|trace|execution|gpu|cpu)$", re.IGNORECASE
)
_COMMUNICATES = b"comm_type"
_LABELS = re.compile(r"(labels\.(csv|json)|.*\.jsonl|.*comm_groups?\.json|.*\.steps\.json)")

_LIKE_A_GRAPH = re.compile(rb'"(nodes|edges|links)"\s*:\s*[\[{]')

_PYTORCH_KINDS: Mapping[Format, PyTorchFile] = {
    KINETO: PyTorchFile.KINETO,
    HOST_TRACE: PyTorchFile.HOST,
}

Read = Callable[[], Workload | AttributedGraph]
_RankedFiles = dict[PyTorchFile, dict[int, Path]]


@dataclass(frozen=True)
class _PyTorchTrace:
    path: Path
    kind: PyTorchFile
    stem: str
    rank: int
    is_numbered: bool


@dataclass(frozen=True)
class JobSource:
    """One job or graph, not read yet.

    ``is_trace`` is false for flow graphs and for the program of a step. ``hosts`` are PyTorch's
    host traces by rank, ``chakra`` is the file or prefix of Chakra traces, ``program`` the forward
    program recorded with a trace. ``traces`` reads the traces behind a job's program.
    """

    name: str
    read: Read
    format: str
    is_trace: bool = True
    hosts: Mapping[int, Path] = field(default_factory=dict)
    chakra: Path | None = None
    program: Path | None = None
    traces: Callable[[], Workload] | None = None

    def graph(self, public_words: PublicWords = ()) -> AttributedGraph:
        """Read it as a graph; job operators that are neither public nor allowed are lost."""
        found = self.read()
        if isinstance(found, AttributedGraph):
            return replace(found, name=self.name)
        return job_of(self.name, found, public_words)


def job_of(name: str, workload: Workload, public_words: PublicWords) -> AttributedGraph:
    """Return the graph of a job."""
    return job_graph(name, rank_classes(workload), workload.groups, {}, public_words=public_words)


@dataclass(frozen=True)
class Sources:
    """The jobs and graphs of a folder, ordered by name.

    ``faulty`` says which traces and graphs cannot be read; ``others`` counts files by ending.
    """

    found: tuple[JobSource, ...]
    faulty: tuple[str, ...] = ()
    others: Mapping[str, int] = field(default_factory=dict)


def find_sources(
    folder: Path, *, labels: Path | None = None, most_files: int | None = MAX_FILES
) -> Sources:
    """Return the jobs and graphs in or below a folder, ignoring the file of labels.

    Raises DataError if there is no such folder, or it holds more than ``most_files`` files.
    """
    if not folder.is_dir():
        raise DataError(f"{folder}: there is no such folder; check the path.")
    search = _Search(folder)
    for count, path in enumerate(entries_below(folder)):
        if most_files is not None and count >= most_files:
            raise DataError(
                f"{folder}: holds more than {most_files:,} files; name the folder of the traces."
            )
        named = labels is not None and path.name == labels.name and path.samefile(labels)
        if path.is_file() and not path.name.startswith(".") and not named:
            search.sort(path)
    return search.sources()


class _Search:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.found: dict[str, JobSource] = {}
        self.faulty: list[str] = []
        self.others: Counter[str] = Counter()
        self.programs: dict[str, Path] = {}
        self.pytorch: dict[Path, list[_PyTorchTrace]] = defaultdict(list)
        self.numbered: dict[Path, list[Path]] = defaultdict(list)

    def sort(self, path: Path) -> None:
        """Enter one file."""
        if _LABELS.fullmatch(path.name):
            return
        try:
            kind = format_of_file(path)
            if kind is None:
                self._unknown(path)
            elif kind in _PYTORCH_KINDS:
                self._pytorch(path, _PYTORCH_KINDS[kind])
            elif kind is CHAKRA:
                self._chakra(path)
            elif kind is FORWARD_PROGRAM:
                name = stem_of(path).removesuffix(".program")
                self.programs[self._name_of(path.parent / name)] = path
            else:
                is_trace = kind.content is not Content.GRAPH
                read = partial(_read_file, path)
                self._add(path.parent / stem_of(path), read, kind.name, is_trace=is_trace)
        except DataError as error:
            self.faulty.append(f"{self._name_of(path)}: {str(error).removeprefix(f'{path}: ')}")

    def sources(self) -> Sources:
        """Return what was found."""
        for job, files in self._jobs():
            hosts, devices = files[PyTorchFile.HOST], files[PyTorchFile.KINETO]
            ranks = sorted({*hosts, *devices})
            what = " and ".join(
                word for word, has in (("PyTorch trace", hosts), ("profile", devices)) if has
            )
            read = _pytorch_reader(job, hosts, devices, ranks)
            name = self._name_of(job)
            if name in self.found and self.found[name].is_trace:  # made of them, or beside them
                self.found[name] = replace(self.found[name], hosts=dict(hosts))
            else:
                self._add(job, read, what, hosts=dict(hosts))
        for prefix, paths in self.numbered.items():
            try:
                communicates = _COMMUNICATES in read_whole(paths[0])
            except DataError:
                communicates = True
            if communicates:
                self._add(prefix, partial(read_workload, prefix), "Chakra", chakra=prefix)
                continue
            for path in paths:
                read = partial(_read_file, path)
                self._add(path.parent / stem_of(path), read, "Chakra", chakra=path)
        for name, path in self.programs.items():
            self._add_program(name, path)
        ordered = tuple(self.found[name] for name in sorted(self.found))
        return Sources(ordered, tuple(self.faulty), dict(self.others))

    def _add_program(self, name: str, path: Path) -> None:
        same = self.found.get(name)
        if same is not None and same.is_trace:
            self.found[name] = replace(same, program=path)
            return
        name = name if same is None else f"{name}.program"
        read = partial(_read_file, path)
        self.found[name] = JobSource(name, read, "forward program", is_trace=False, program=path)

    def _jobs(self) -> Iterator[tuple[Path, _RankedFiles]]:
        """Yield PyTorch's files by job; a number is no rank if each job has a single rank."""
        for job, files in self.pytorch.items():
            files = sorted(files, key=lambda each: each.rank)
            unsure = any(f.is_numbered for f in files) and not any(
                has_rank_in_name(f.stem) for f in files
            )
            if unsure and not are_distributed([f.path for f in files]):
                for stem in dict.fromkeys(f.stem for f in files):
                    alone = [replace(f, rank=0) for f in files if f.stem == stem]
                    yield alone[0].path.parent / stem, self._by_rank(alone)
            else:
                yield job, self._by_rank(files)

    def _by_rank(self, files: Sequence[_PyTorchTrace]) -> _RankedFiles:
        """Return the files of one job by kind and rank; report duplicates of a rank."""
        found: _RankedFiles = {kind: {} for kind in PyTorchFile}
        for file in files:
            first = found[file.kind].setdefault(file.rank, file.path)
            if first != file.path:
                told = f"is a second file of rank {file.rank} ({first.name})."
                self.faulty.append(f"{self._name_of(file.path)}: {told}")
        return found

    def _chakra(self, path: Path) -> None:
        of_rank = RankFile.from_name(path.name)
        if of_rank is None:
            read = partial(_read_file, path)
            self._add(path.parent / stem_of(path), read, "Chakra", chakra=path)
            return
        at = path.parent / of_rank.prefix
        if not _DOTTED.fullmatch(path.name):
            self.numbered[at].append(path)
        elif self._name_of(at) not in self.found:
            self._add(at, partial(read_workload, at), "Chakra", chakra=at)

    def _unknown(self, path: Path) -> None:
        """Count an unknown file, or raise DataError if it looks like a graph."""
        is_json = suffix_of(path) == JSON_SUFFIX
        if is_json and not path.stat().st_size:
            raise DataError(f"{path}: is empty; copy or write it again.")
        start = _start(path)
        if is_json and _LIKE_A_GRAPH.search(start):
            raise DataError(
                f"{path}: has nodes or edges, but is no graph in a form of JSON that is read."
            )
        what = foreign_format(start)
        if GRAPHS in what or "is packed" in what:
            raise DataError(f"{path}: {what}.")
        self.others["".join(path.suffixes[-3 if is_json else -2 :]) or path.name] += 1

    def _pytorch(self, path: Path, kind: PyTorchFile) -> None:
        match = _PYTORCH.fullmatch(path.name)
        stem = _ROLE.sub("", match["stem"] if match else path.stem)
        named = _RANK.fullmatch(stem)
        if named is None and stem.isdigit():
            job, rank = path.parent, int(stem)
        elif named is None:
            job, rank = path.parent / stem, 0
        else:
            job = path.parent / _ROLE.sub("", named["job"]) if named["job"] else path.parent
            rank = int(named["rank"])
        is_numbered = named is not None or stem.isdigit()
        self.pytorch[job].append(_PyTorchTrace(path, kind, stem, rank, is_numbered))

    def _add(self, at: Path, read: Read, what: str, **more: Any) -> None:
        name = self._name_of(at)
        first = self.found.setdefault(name, JobSource(name, read, what, **more))
        if first.read is not read:
            self.faulty.append(
                f"{name}: is there twice, as {first.format} and as {what}; give one another name."
            )

    def _name_of(self, path: Path) -> str:
        name = path.relative_to(self.folder).as_posix()
        return self.folder.resolve().name if name == "." else name


def _pytorch_reader(
    job: Path, hosts: Mapping[int, Path], devices: Mapping[int, Path], ranks: Sequence[int]
) -> Read:
    def read() -> Workload:
        missing = sorted(set(range(len(ranks))) ^ set(ranks))
        for what, of_rank in (("host traces", hosts), ("profiles", devices)):
            if of_rank and (missing or sorted(of_rank) != list(ranks)):
                absent = missing or sorted(set(ranks) - set(of_rank))
                raise DataError(
                    f"{job}: has {len(of_rank)} {what}, but none of rank {absent[0]}; add it."
                )
        found = import_ranks(_ordered(hosts, ranks), _ordered(devices, ranks))
        refuse_missing_ranks(found)
        return found.workload

    return read


def _ordered(of_rank: Mapping[int, Path], ranks: Sequence[int]) -> tuple[Path, ...]:
    return tuple(of_rank[rank] for rank in ranks) if of_rank else ()


def _read_file(path: Path) -> Workload | AttributedGraph:
    """Read a file as if it were alone; the sizes of a graph become conditions."""
    found, options = recognize(path), ReadOptions(compute=DEVICE)
    if found.content is not Content.GRAPH:
        return found.traces(options)
    graph = found.graph(options)
    return replace(graph, conditions={**graph.conditions, **size_conditions(graph.layer_N)})


def _start(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            return stream.read(1 << 16)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error}).") from None
