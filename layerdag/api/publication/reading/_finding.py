"""Which jobs lie in a folder: one source for each, whatever the format of its files."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from layerdag.codec import AttributedGraph, size_conditions
from layerdag.datasets.files import is_flow_file, read_graphml, read_json
from layerdag.errors import DataError
from layerdag.traces import (
    Format,
    RankFile,
    Workload,
    pytorch_format,
    read_any,
    read_workload,
)
from layerdag.traces.pytorch import import_ranks, refuse_missing_ranks

MOST_FILES = 200_000
_DOTTED = re.compile(r"(?:.+\.)?\d{1,9}\.et(?:\.gz|\.xz)?")
_TRACE = re.compile(r"(?P<stem>.+)\.et(?:\.gz|\.xz)?")
_JSON = re.compile(r"(?P<stem>.+?)((\.(json|pt|trace|et|gz|xz))+)")
_RANK = re.compile(
    r"(?P<job>.*?)[._-]*(?:(?:rank|worker)[._-]?|(?<![a-z])r|[._-])(?P<rank>\d{1,6})", re.IGNORECASE
)
_ROLE = re.compile(r"[._-]?(host|device|kineto|profile|prof|et|trace|execution|gpu|cpu)$", re.I)
_LABELS = re.compile(r"(labels\.(csv|json)|.*\.jsonl|.*comm_groups?\.json|.*\.steps\.json)")

Read = Callable[[], Workload | AttributedGraph]


@dataclass(frozen=True)
class Source:
    """One job or graph, not read yet.

    Attributes:
        name: Path below the folder, without ending and rank.
        read: Reads it.
        format: Of its files, in words.
    """

    name: str
    read: Read
    format: str


@dataclass(frozen=True)
class Sources:
    """What a folder holds.

    Attributes:
        found: Jobs and graphs in order of their names.
        faulty: Files that look like traces and cannot be sorted, with the reason.
        others: Number of other files, by ending.
    """

    found: tuple[Source, ...]
    faulty: tuple[str, ...] = ()
    others: Mapping[str, int] = field(default_factory=dict)


def find_sources(folder: Path) -> Sources:
    """Return the jobs and graphs in or below a folder.

    Raises:
        DataError: If it holds too many files to be a folder of traces.
    """
    search = _Search(folder)
    for count, path in enumerate(sorted(folder.rglob("*"))):
        if count >= MOST_FILES:
            raise DataError(
                f"{folder}: holds more than {MOST_FILES:,} files; name the folder of the traces."
            )
        if path.is_file() and not path.name.startswith("."):
            search.sort(path)
    return search.sources()


class _Search:
    """Sorts files into jobs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.found: dict[str, Source] = {}
        self.faulty: list[str] = []
        self.others: Counter[str] = Counter()
        self.pytorch: dict[Path, dict[Format, dict[int, Path]]] = defaultdict(
            lambda: {Format.PYTORCH_HOST: {}, Format.KINETO: {}}
        )

    def sort(self, path: Path) -> None:
        """Enter one file."""
        try:
            if _LABELS.fullmatch(path.name):
                return
            if _TRACE.fullmatch(path.name):
                self._chakra(path)
            elif path.suffix == ".graphml":
                self._flow(path, read_graphml, "GraphML")
            elif _JSON.fullmatch(path.name):
                self._json(path)
            elif path.suffix == ".txt" and path.stat().st_size < 2**24 and _is_astra(path):
                self._add(path.with_suffix(""), lambda: read_any(path), "ASTRA-sim text")
            else:
                self.others["".join(path.suffixes[-2:]) or path.name] += 1
        except DataError as error:
            self.faulty.append(f"{self._told(path)}: {_without(error, path)}")

    def sources(self) -> Sources:
        """Return what was found."""
        for job, files in self.pytorch.items():
            hosts, devices = files[Format.PYTORCH_HOST], files[Format.KINETO]
            ranks = sorted({*hosts, *devices})
            what = " and ".join(
                word for word, has in (("PyTorch trace", hosts), ("profile", devices)) if has
            )
            self._add(job, _pytorch_reader(job, hosts, devices, ranks), what)
        ordered = tuple(self.found[name] for name in sorted(self.found))
        return Sources(ordered, tuple(self.faulty), dict(self.others))

    def _chakra(self, path: Path) -> None:
        """Enter a Chakra file: ``PREFIX.<rank>.et``, or a job of one rank."""
        of_rank = RankFile.of(path.name)
        if of_rank is not None and _DOTTED.fullmatch(path.name):
            at = path.parent / of_rank.prefix
            self._add(at, lambda: read_workload(at), "Chakra")
        else:
            match = _TRACE.fullmatch(path.name)
            assert match is not None
            self._add(path.parent / match["stem"], lambda: read_any(path), "Chakra")

    def _flow(self, path: Path, reader: Callable[[Path], AttributedGraph], what: str) -> None:
        self._add(path.with_suffix(""), lambda: _sized(reader(path)), what)

    def _json(self, path: Path) -> None:
        """Enter a JSON file: PyTorch's by job and rank, a graph, or a job of ours."""
        kind = pytorch_format(path)
        if kind is not None:
            self._pytorch(path, kind)
        elif path.suffix == ".json" and is_flow_file(path) and b"layerdag-graph" in _start(path):
            self._flow(path, read_json, "graph in JSON")
        elif any(word in _start(path) for word in (b'"workload_graph"', b'"layerdag-trace')):
            self._add(path.with_suffix(""), lambda: read_any(path), "Chakra in JSON")
        else:
            self.others["".join(path.suffixes[-3:])] += 1

    def _pytorch(self, path: Path, kind: Format) -> None:
        """Enter a host trace or a profile under its job and rank, as its name says."""
        match = _JSON.fullmatch(path.name)
        stem = _ROLE.sub("", match["stem"] if match else path.stem)
        named = _RANK.fullmatch(stem)
        if named is None and stem.isdigit():
            job, rank = path.parent, int(stem)
        elif named is None:
            job, rank = path.parent / stem, 0
        else:
            job = path.parent / _ROLE.sub("", named["job"]) if named["job"] else path.parent
            rank = int(named["rank"])
        files = self.pytorch[job][kind]
        if rank in files:
            other = files[rank].name
            self.faulty.append(f"{self._told(path)}: is a second file of rank {rank} ({other}).")
            return
        files[rank] = path

    def _add(self, at: Path, read: Read, what: str) -> None:
        name = self._told(at)
        self.found.setdefault(name, Source(name, read, what))

    def _told(self, path: Path) -> str:
        name = path.relative_to(self.folder).as_posix()
        return self.folder.name if name == "." else name


def _pytorch_reader(
    job: Path, hosts: Mapping[int, Path], devices: Mapping[int, Path], ranks: Sequence[int]
) -> Read:
    """Return what imports the files of one job."""

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


def _sized(graph: AttributedGraph) -> AttributedGraph:
    """Return a flow graph with its sizes as conditions."""
    from dataclasses import replace

    return replace(graph, conditions={**graph.conditions, **size_conditions(graph.layer_N)})


def _is_astra(path: Path) -> bool:
    """Return whether a text begins like a workload of ASTRA-sim."""
    lines = path.read_bytes()[:4096].split(b"\n")
    return len(lines) > 2 and lines[1].strip().isdigit() and b"\x00" not in lines[0]


def _start(path: Path) -> bytes:
    with path.open("rb") as stream:
        return stream.read(4096)


def _without(error: Exception, path: Path) -> str:
    """Return a message without the path that its line begins with anyway."""
    return str(error).removeprefix(f"{path}: ")
