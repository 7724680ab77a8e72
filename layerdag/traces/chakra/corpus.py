"""The embedded corpus: an index with one line per run, and shards of Chakra traces.

A corpus folder holds ``index.jsonl`` (one JSON object a run, the fields of `RunRecord`) and
``shards/<family>.tar.xz`` whose members ``<run>/<class>.et`` are Chakra traces. Ranks that run the
same program are one *class* of ranks and are stored once; the durations of a class are those of
its first rank. Everything is read in memory: no member is ever unpacked to a path of its choosing.
"""

import io
import json
import lzma
import math
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from layerdag.errors import TraceError
from layerdag.runtime.json_shape import from_json, parse_json, plain_reason, require_known
from layerdag.runtime.reading import path_within, read_parsed, read_whole
from layerdag.traces.chakra.files import decode_trace
from layerdag.traces.trace import Trace, Workload

INDEX = "index.jsonl"
MAX_SHARD_BYTES = 256 * 2**20
"""No shard is unpacked beyond this size; a larger one is cut off and refused."""


@dataclass(frozen=True)
class RankClass:
    """Ranks of a run, ascending, that execute the same program: a member of the shard."""

    member: str
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class RunRecord:
    """One line of the index: one measured run.

    Attributes:
        run: Its unique name.
        family: Model family ("mlp", "cnn", "gpt", "bert", "moe", "dlrm", "gnn").
        strategy: "single", "ddp", "fsdp2", "tp", "pp", "ep" or "a2a".
        world_size: Number of ranks.
        phase: "training" or "inference".
        split: "train", "val" or "test"; no graph hash occurs in two splits.
        hyper: Hyper-parameters of the model, batch and optimizer.
        step_times_s: Measured wall time of the repeats, in seconds (slowest rank of each repeat).
        step_time_s_min: Their minimum, the label.
        shard: Path of the shard below the corpus folder.
        classes: The classes of ranks.
        groups: Ranks of each communicator group, by its integer name.
        graph_hash: Weisfeiler-Lehman hash of operators, node types and typed edges of all classes.
        num_nodes: Number of nodes over the classes.
    """

    run: str
    family: str
    strategy: str
    world_size: int
    phase: str
    split: str
    hyper: Mapping[str, bool | int | float | str]
    step_times_s: tuple[float, ...]
    step_time_s_min: float
    shard: str
    classes: tuple[RankClass, ...]
    groups: Mapping[str, tuple[int, ...]]
    graph_hash: str
    num_nodes: int

    def to_json(self) -> str:
        """Return the record as one line of JSON."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, line: str) -> "RunRecord":
        """Parse one line of the index. Raises ValueError if malformed."""
        row = parse_json(line)
        record = from_json(cls, row)
        require_known(row, (field.name for field in fields(cls)))
        if not all(0 < time < math.inf for time in (*record.step_times_s, record.step_time_s_min)):
            raise ValueError("a step time is no positive number of seconds")
        ranks = sorted(rank for rank_class in record.classes for rank in rank_class.ranks)
        if len(ranks) != record.world_size or ranks != list(range(len(ranks))):
            raise ValueError("the classes do not hold every rank once")
        return record


@dataclass(frozen=True, eq=False)
class CollectedRun:
    """A run with its traces, one for each class in the order of ``record.classes``."""

    record: RunRecord
    traces: tuple[Trace, ...]

    def workload(self) -> Workload:
        """Return one trace per rank; ranks of a class share one `Trace` object."""
        of_rank = {
            rank: trace
            for rank_class, trace in zip(self.record.classes, self.traces, strict=True)
            for rank in rank_class.ranks
        }
        return Workload(
            traces=tuple(of_rank[rank] for rank in range(self.record.world_size)),
            groups=self.record.groups,
            source=self.record.run,
        )


def embedded_corpus() -> Path:
    """Return the folder of the embedded corpus: in an installed package, or beside a checkout."""
    package = Path(__file__).resolve().parents[2]
    inside = package / "_corpus"
    return inside if inside.is_dir() else package.parent / "data"


def read_index(folder: str | Path) -> tuple[RunRecord, ...]:
    """Read the index of a corpus folder.

    Raises:
        TraceError: If the index is missing, or a line of it is malformed.
    """
    path = Path(folder) / INDEX
    if not path.is_file():
        raise TraceError(
            f"{path} does not exist; give the folder of a corpus, or collect one with "
            "'python data/make_corpus.py'."
        )
    records = []
    for number, line in enumerate(read_parsed(path, TraceError).splitlines(), start=1):
        try:
            records.append(RunRecord.from_json(line.decode()))
        except (ValueError, RecursionError) as error:
            raise TraceError(
                f"{path}: line {number} is not a run of the corpus ({plain_reason(error)}); "
                "restore the file or collect the corpus again."
            ) from error
    return tuple(records)


def read_run(folder: str | Path, record: RunRecord) -> CollectedRun:
    """Read the traces of one run; use `read_runs` for many, which opens each shard once.

    Raises:
        TraceError: If the shard or one of its members is missing or damaged.
    """
    return next(read_runs(folder, (record,)))


def read_runs(folder: str | Path, records: Iterable[RunRecord]) -> Iterator[CollectedRun]:
    """Yield runs with their traces, shard by shard (the order of ``records`` within a shard).

    Raises:
        TraceError: If a shard or one of its members is missing or damaged.
    """
    by_shard: dict[str, list[RunRecord]] = {}
    for record in records:
        by_shard.setdefault(record.shard, []).append(record)
    for shard, members in by_shard.items():
        wanted = {c.member for record in members for c in record.classes}
        content = _read_members(path_within(folder, shard, TraceError), wanted)
        for record in members:
            yield _decode(record, content, shard)


def _decode(record: RunRecord, content: Mapping[str, bytes], shard: str) -> CollectedRun:
    traces = []
    for rank_class in record.classes:
        if rank_class.member not in content:
            raise TraceError(
                f"{shard}: run {record.run} needs member '{rank_class.member}', which is missing; "
                "the index and the shard do not belong together, restore both."
            )
        traces.append(decode_trace(content[rank_class.member], f"{shard}:{rank_class.member}"))
    return CollectedRun(record, tuple(traces))


def _read_members(path: Path, wanted: set[str]) -> dict[str, bytes]:
    found = {}
    try:
        packed = read_whole(path, MAX_SHARD_BYTES, TraceError)
        with tarfile.open(fileobj=io.BytesIO(packed), mode="r:") as archive:
            for member in archive:
                # A sparse member could claim any size.
                if member.name in wanted and member.isfile() and not member.issparse():
                    handle = archive.extractfile(member)
                    found[member.name] = handle.read() if handle is not None else b""
    except (tarfile.TarError, EOFError, OSError, ValueError, OverflowError) as error:
        raise TraceError(
            f"{path}: the shard cannot be read ({error}); restore it (its checksum stands in "
            "checksums.sha256) or collect the corpus again."
        ) from error
    return found


def write_shard(path: str | Path, members: Sequence[tuple[str, bytes]]) -> None:
    """Write ``members`` (name, payload) to a shard whose bytes depend on nothing else."""
    from layerdag.runtime.files import write_bytes

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, payload in members:
            info = tarfile.TarInfo(name)
            info.size = len(payload)
            archive.addfile(info, io.BytesIO(payload))
    write_bytes(path, lzma.compress(buffer.getvalue(), preset=9 | lzma.PRESET_EXTREME))
