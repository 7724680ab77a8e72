"""Workloads as ``PREFIX.<rank>.et`` with their groups; equal ranks share one trace.

Ranks of one job mostly differ in a few columns only (group names, peers, durations). Every column
that is equal is held once, so a workload of thousands of ranks takes little more memory than its
differences.
"""

import hashlib
import itertools
import json
import re
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from layerdag.errors import TraceError, UsageError
from layerdag.graph.attributed_graph import STEP_TIMES
from layerdag.runtime.files import entries_in, settle, write_files
from layerdag.runtime.json_shape import parse_json, plain_reason, require_shape
from layerdag.runtime.reading import read_parsed, read_whole, require_parsable
from layerdag.runtime.terminal import track
from layerdag.traces.analysis import WORLD_NAMES
from layerdag.traces.chakra.files import decode_trace, encode_trace, normalize
from layerdag.traces.trace import AttributeTable, LazyTraces, Ragged, Trace, Wire, Workload, listed

Columns = TypeVar("Columns", Trace, AttributeTable, Ragged)


class ColumnInterner:
    """Columns by content."""

    def __init__(self) -> None:
        self._held: dict[Hashable, Any] = {}

    def intern(self, holder: Columns) -> Columns:
        """Return ``holder`` with each column replaced by the equal one that was seen first.

        Arrays become read-only, since a change would show in every rank.
        """
        columns = {field.name: self._one(getattr(holder, field.name)) for field in fields(holder)}
        return type(holder)(**columns)

    def _one(self, value: Any) -> Any:
        if isinstance(value, AttributeTable):
            return self.intern(value)
        if isinstance(value, Ragged):
            return self.intern(value)
        if not isinstance(value, np.ndarray):
            return self._held.setdefault((type(value), value), value)
        digest = hashlib.blake2b(np.ascontiguousarray(value).data, digest_size=16).digest()
        first = self._held.setdefault((value.dtype.str, value.shape, digest), value)
        first.flags.writeable = False
        return first


class RankDecoder:
    """Traces from files, of which most differ from an earlier one in groups and peers only.

    Such a file is as long as the earlier one and has other bytes only where that one names groups
    (``pg_name``) or the ends of messages (``comm_src``, ``comm_dst``). Its trace is the earlier one
    with other names and ranks, found without decoding it.
    """

    def __init__(self) -> None:
        self._pool = ColumnInterner()
        self._forms: dict[int, list[_Form]] = {}

    def decode(self, data: bytes, source: str) -> Trace:
        """Return the trace of a plain file; equal files give one object.

        Raises:
            TraceError: As ``decode_trace``.
        """
        forms = self._forms.setdefault(len(data), [])
        for form in forms:
            trace = form.trace_of(data, source)
            if trace is not None:
                return trace
        trace = self._pool.intern(decode_trace(data, source))
        if len(forms) < _MAX_FORMS:
            forms.append(_Form(data, trace))
        return trace


_MAX_FORMS = 64  # of one length; comparing with each takes time
_GROUP = re.compile(rb"\x0a\x07pg_name\xea\x01([\x01-\x0a])", re.DOTALL)  # string field 29: a text
_ENDS = ("comm_dst", "comm_src")
_END = re.compile(rb"\x0a\x08comm_(?:dst|src)\x38([\x80-\xff]{0,3}[\x00-\x7f])", re.DOTALL)


class _Form:
    """One file with its trace, and where other files of its kind have other bytes."""

    def __init__(self, data: bytes, trace: Trace) -> None:
        self._trace, self._data_B = trace, np.frombuffer(data, dtype=np.uint8)
        row_C = trace.attribute_rows("pg_name")[0]
        row_E = np.sort(np.concatenate([trace.attribute_rows(end)[0] for end in _ENDS]))
        groups = [(found.end(), found[1][0]) for found in _GROUP.finditer(data)]
        ends = [found.span(1) for found in _END.finditer(data)]
        table = trace.attributes
        text_C = table.word_A[row_C].astype(np.int64)
        is_text_A = table.wire_A == Wire.STRING
        is_text_A[row_C] = False
        others = (trace.name_N, trace.io_N6.reshape(-1), table.name_A, table.doc_A)
        other_texts = np.concatenate([*others, table.word_A[is_text_A].astype(np.int64)])
        if not (
            len(groups) == row_C.size
            and len(ends) == row_E.size
            and (table.wire_A[row_C] == Wire.STRING).all()
            and (table.wire_A[row_E] == Wire.INT32).all()
            and not np.isin(text_C, other_texts).any()
        ):
            row_E, text_C, groups, ends = row_E[:0], text_C[:0], [], []  # equal files only
        at_C2 = np.array(groups, dtype=np.int64).reshape(-1, 2)
        self._texts = {
            int(text): _spans(at_C2[text_C == text, 0], int(at_C2[text_C == text, 1][0]))
            for text in set(text_C.tolist())
        }
        span_E2 = np.array(ends, dtype=np.int64).reshape(-1, 2)
        bytes_E = span_E2[:, 1] - span_E2[:, 0]
        self._ends = [
            (row_E[bytes_E == width], _spans(span_E2[bytes_E == width, 0], int(width)))
            for width in sorted(set(bytes_E.tolist()))
        ]
        self._others = {t for i, t in enumerate(trace.strings) if i not in self._texts}
        positions = [
            at.reshape(-1) for at in (*self._texts.values(), *(at for _, at in self._ends))
        ]
        self._positions = np.concatenate([np.zeros(0, dtype=np.int64), *positions])
        self._made = {self._data_B[self._positions].tobytes(): trace}
        same = self._filled(self._data_B)
        words = trace.attributes.word_A.tobytes()
        if (
            same is None
            or same.strings != trace.strings
            or same.attributes.word_A.tobytes() != words
        ):
            self._positions = self._positions[:0]  # these places are something else
            self._texts, self._ends, self._made = {}, [], {b"": trace}

    def trace_of(self, data: bytes, source: str) -> Trace | None:
        """Return the trace of a file of this kind and length, None for another kind."""
        data_B = np.frombuffer(data, dtype=np.uint8)
        differs_B = data_B != self._data_B
        differs_B[self._positions] = False
        if differs_B.any():
            return None
        key = data_B[self._positions].tobytes()
        if key not in self._made:
            made = self._filled(data_B)
            if made is None:
                return None
            self._made[key] = replace(made, source=source)
        return self._made[key]

    def _filled(self, data_B: np.ndarray) -> Trace | None:
        """Return the trace with names and ranks of a file, None where decoding may pool others."""
        strings = list(self._trace.strings)
        for text, at_CB in self._texts.items():
            name_CB = data_B[at_CB]
            name = name_CB[0].tobytes()
            if (name_CB != name_CB[0]).any() or not name.isdigit():
                return None
            strings[text] = name.decode()
        names = [strings[text] for text in self._texts]
        if len(set(names)) < len(names) or not self._others.isdisjoint(names):
            return None
        table = self._trace.attributes
        if self._ends:
            word_A = table.word_A.copy()
            for row_E, at_EB in self._ends:
                new_EB = data_B[at_EB]
                if ((new_EB ^ self._data_B[at_EB]) & 0x80).any():  # a number of other width
                    return None
                shift_B = 7 * np.arange(at_EB.shape[1], dtype=np.uint64)
                word_A[row_E] = ((new_EB & 0x7F).astype(np.uint64) << shift_B).sum(axis=1)
            word_A.flags.writeable = False
            table = replace(table, word_A=word_A)
        return replace(self._trace, strings=tuple(strings), attributes=table)


def _spans(start: np.ndarray, width: int) -> np.ndarray:
    """Return the places of the bytes of spans of one width, int64 (N, width)."""
    return start[:, None] + np.arange(width)


def read_groups(path: str | Path, num_ranks: int) -> dict[str, tuple[int, ...]]:
    """Read communicator groups in ASTRA-sim's form ``{"<group>": [rank, ...]}``.

    Raises:
        TraceError: If the file has another form, or a rank lies outside ``0..num_ranks-1`` or
            occurs twice in its group.
    """
    return decode_groups(read_parsed(path, TraceError), path, num_ranks)


def decode_groups(data: bytes, path: str | Path, num_ranks: int) -> dict[str, tuple[int, ...]]:
    """Return the groups in the content of the file ``path``; errors as in ``read_groups``."""
    try:
        loaded = parse_json(data)
        require_shape(loaded, {str: [int]})
    except (ValueError, RecursionError) as error:
        raise TraceError(
            f"{path}: does not describe groups ({plain_reason(error)}); write "
            '{"<group>": [rank, ...]}.'
        ) from None
    for name, ranks in loaded.items():
        outside = [rank for rank in ranks if not 0 <= rank < num_ranks]
        if outside:
            raise TraceError(
                f"{path}: group '{name}' names rank {outside[0]}, but the workload has ranks 0 to "
                f"{num_ranks - 1}; correct the group or add the trace."
            )
        if not ranks:
            raise TraceError(f"{path}: group '{name}' has no rank; list its ranks or leave it out.")
        if len(set(ranks)) != len(ranks):
            raise TraceError(f"{path}: group '{name}' names a rank twice; list each rank once.")
    return {name: tuple(ranks) for name, ranks in loaded.items()}


def groups_in_place(groups: Mapping[str, Sequence[int]], path: Path) -> list[tuple[Path, bytes]]:
    """Return path and content of the file of communicator groups, nothing if none is written.

    ASTRA-sim's form is ``{"<group>": [rank, ...]}``. Group "0" is left out: it means all
    ranks, and ASTRA-sim aborts on an entry of that name. An empty file replaces one that is there,
    which would else be read with the new traces.
    """
    content = encode_groups(groups)
    return [(path, content or b"{}\n")] if content or path.exists() else []


def encode_groups(groups: Mapping[str, Sequence[int]]) -> bytes:
    """Return the content of the file of communicator groups, empty without a group."""
    described = {name: list(ranks) for name, ranks in groups.items() if name not in WORLD_NAMES}
    return (json.dumps(described, indent=1) + "\n").encode() if described else b""


File = TypeVar("File", Path, str)

_RANK_FILE = re.compile(r"(?P<prefix>.*?)\.?(?P<rank>\d{1,9})\.et(?:\.gz|\.xz)?")


@dataclass(frozen=True)
class RankFile:
    """What the file name of one rank's trace says: ``PREFIX.<rank>.et``, packed or not."""

    prefix: str
    rank: int

    @classmethod
    def from_name(cls, name: str) -> "RankFile | None":
        """Return what a file name says, None if it is not of this form."""
        match = _RANK_FILE.fullmatch(name)
        return cls(match["prefix"], int(match["rank"])) if match else None


def rank_file(prefix: str | Path, rank: int) -> Path:
    """Return the path of one rank's trace, plain."""
    return Path(f"{prefix}.{rank}.et")


def read_workload(location: str | Path, groups_file: str | Path | None = None) -> Workload:
    """Read the Chakra traces of all ranks of one job.

    Ranks whose files have the same content share one ``Trace`` object; other ranks share the
    columns that are equal, which makes the arrays read-only.

    Args:
        location: The common prefix of ``PREFIX.<rank>.et``, a folder that holds one such set, or a
            single trace file (a workload of one rank).
        groups_file: JSON ``{"<group>": [rank, ...]}``. By default ``PREFIX.comm_group.json`` or
            ``comm_group.json`` in the same folder, where one of them exists.

    Raises:
        TraceError: If nothing is found, ranks are missing, a folder holds several sets, a trace
            cannot be read, or a group names a rank that does not exist.
    """
    location = Path(location)
    files = rank_files(location)
    decoder = RankDecoder()
    traces = [decoder.decode(read_whole(path, error=TraceError), str(path)) for path in files]
    found = RankFile.from_name(files[0].name)
    usual = ([f"{found.prefix}.comm_group.json"] if found else []) + ["comm_group.json"]
    beside = (path for name in usual if (path := files[0].with_name(name)).is_file())
    groups_path = groups_file or next(beside, None)
    groups = read_groups(groups_path, len(files)) if groups_path else {}
    return Workload(tuple(traces), groups, str(location))


def rank_files(location: str | Path) -> list[Path]:
    """Return the trace file of each rank, in order of rank; see ``read_workload``.

    Raises:
        TraceError: If none is found, some are missing, or there are several sets.
    """
    location = Path(location)
    if location.is_file():
        return [location]
    folder, prefix = (location, None) if location.is_dir() else (location.parent, location.name)
    if not folder.is_dir():
        raise TraceError(f"{location}: there is no folder {folder}; check the path.")
    if prefix is not None:
        _settle_names(location)
    elif beside := _trace_beside(location):
        raise TraceError(
            f"{location}: is a folder, and also the prefix of {beside.name} beside it; name "
            f"{location}/PREFIX, or rename one of them."
        )
    sets = _sets(entries_in(folder) if prefix is None else folder.iterdir())
    if prefix is not None:
        named = _named(sets, prefix)
        sets = {} if named is None else {named: sets[named]}
    if not sets:
        if prefix is None:
            raise TraceError(
                f"{location}: this folder holds no file PREFIX.<rank>.et; check the path."
            )
        if location.exists():
            raise TraceError(f"{location}: is neither a file nor a folder; name a trace.")
        raise TraceError(
            f"{location}: there is no such file or folder, and no {prefix}.<rank>.et in {folder}; "
            "check the path."
        )
    if len(sets) > 1:
        names = ", ".join(sorted(sets)[:5])
        raise TraceError(
            f"{location}: holds {len(sets)} workloads ({names}); add the prefix to the path."
        )
    return _in_order(next(iter(sets.values())), location)


def _trace_beside(folder: Path) -> Path | None:
    """Return the trace of rank 0 whose prefix has the name of a folder."""
    ends = ("", ".gz", ".xz") if folder.name else ()
    found = (Path(f"{rank_file(folder, 0)}{end}") for end in ends)
    return next((path for path in found if path.is_file()), None)


def holds_rank_files(location: str | Path) -> bool:
    """Return whether a folder, or a prefix in its folder, has files ``PREFIX.<rank>.et``."""
    location = Path(location)
    if location.is_dir():
        return bool(_sets(entries_in(location)))
    _settle_names(location)
    if not location.parent.is_dir():
        return False
    return _named(_sets(location.parent.iterdir()), location.name) is not None


def _names(name: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(filter(None, (name, name.removesuffix(".et")))))


def _named(sets: Mapping[str, Any], name: str) -> str | None:
    return next((prefix for prefix in _names(name) if prefix in sets), None)


def _settle_names(location: Path) -> None:
    for name in _names(location.name):
        settle(location.with_name(name))


def _sets(paths: Iterable[Path]) -> dict[str, dict[int, Path]]:
    """Sort files into prefix -> rank -> path; a plain file wins over its archive."""
    sets: dict[str, dict[int, Path]] = defaultdict(dict)
    for path in sorted(paths, key=lambda each: each.name):  # of one folder
        found = RankFile.from_name(path.name)
        if found:
            sets[found.prefix].setdefault(found.rank, path)
    return sets


def _in_order(by_rank: Mapping[int, File], location: str | Path) -> list[File]:
    """Return the files of ranks 0 to N-1, or name the missing ones."""
    if len(by_rank) <= max(by_rank):
        absent = (rank for rank in range(max(by_rank)) if rank not in by_rank)
        missing = list(itertools.islice(absent, 11))
        raise TraceError(
            f"{location}: has {len(by_rank)} trace files up to rank {max(by_rank)}, but lacks "
            f"rank {listed(missing, 10)}; add the missing files."
        )
    return [by_rank[rank] for rank in range(len(by_rank))]


def existing_files(prefix: str | Path) -> list[Path]:
    """Return the files of a workload that lie at a prefix already, in order of name.

    Measured step times are among them: beside other traces they would be a wrong label.
    """
    prefix = Path(prefix)
    if not prefix.parent.is_dir():
        return []
    beside = (prefix.with_name(prefix.name + end) for end in (".comm_group.json", STEP_TIMES))
    named = ((path, RankFile.from_name(path.name)) for path in prefix.parent.iterdir())
    ranks = [path for path, found in named if found and found.prefix == prefix.name]
    return sorted([*ranks, *(path for path in beside if path.exists())])


def require_free_prefix(prefix: str | Path, *, overwrite: bool) -> None:
    """Raise UsageError if a workload lies at a prefix and may not be replaced."""
    settle(prefix)
    standing = existing_files(prefix)
    if standing and not overwrite:
        more = f" and {len(standing) - 1} more" if len(standing) > 1 else ""
        raise UsageError(
            f"{prefix}: a workload lies there already ({standing[0].name}{more}); name another "
            "prefix, or allow that it is replaced (--overwrite; overwrite=True in Python)."
        )


def write_workload(workload: Workload, prefix: str | Path, *, overwrite: bool = False) -> None:
    """Write ``PREFIX.<rank>.et`` of every rank, and ``PREFIX.comm_group.json`` if there are groups.

    The files are plain and meet what both Chakra feeders and ASTRA-sim ask for, see
    ``normalize``. No file is put in its place before all are written, so that a faulty trace
    leaves nothing behind, and whoever is killed on the way leaves the older workload or the new
    one. For readers other than layerdag, rank 0 comes last, and an older one goes first.
    ``overwrite`` replaces a workload of that prefix, ranks that the new one lacks included.

    Raises:
        UsageError: If a workload of that prefix is there and may not be replaced.
        TraceError: If a trace cannot be brought into that form, naming the node, or if a group "0"
            is not that of all ranks.
    """
    prefix = Path(prefix)
    require_free_prefix(prefix, overwrite=overwrite)
    _require_whole_world(workload)
    files = track(_files(workload), "writing ranks", total=workload.num_ranks)
    ranks = ((rank_file(prefix, rank), data) for rank, data in files)
    place = prefix.with_name(f"{prefix.name}.comm_group.json")
    groups = groups_in_place(workload.groups, place) if workload.groups else []
    write_files(prefix, itertools.chain(groups, ranks), existing_files(prefix))


def encode_workload(workload: Workload, name: str) -> list[tuple[str, bytes]]:
    """Return name and content of each file that ``write_workload`` writes for the prefix ``name``.

    Groups come first, then the ranks in their order; ranks with one trace share their bytes.

    Raises:
        TraceError: As ``write_workload``.
    """
    _require_whole_world(workload)
    groups = encode_groups(workload.groups)
    first = [(f"{name}.comm_group.json", groups)] if groups else []
    ranks = sorted(_files(workload), key=lambda file: file[0])
    return [*first, *((rank_file(name, rank).name, data) for rank, data in ranks)]


def decode_workload(files: Mapping[str, bytes], source: str) -> Workload:
    """Return the workload whose files, by their names, have these contents.

    ``files`` are those of one job, as ``encode_workload`` makes them; others are left out.

    Raises:
        TraceError: If ranks are missing, or a file cannot be read.
    """
    found = {file.rank: name for name in files if (file := RankFile.from_name(name))}
    if not found:
        raise TraceError(f"{source}: holds no trace PREFIX.<rank>.et; check the file.")
    decoder = RankDecoder()
    names = _in_order(found, source)
    traces = tuple(decoder.decode(files[name], f"{source}:{name}") for name in names)
    groups = next((name for name in sorted(files) if name.endswith("comm_group.json")), None)
    if groups is None:
        return Workload(traces, {}, source)
    at = f"{source}:{groups}"
    require_parsable(files[groups], at, TraceError)
    return Workload(traces, decode_groups(files[groups], at, len(traces)), source)


def _require_whole_world(workload: Workload) -> None:
    """Raise TraceError if a group that stands for all ranks is described otherwise."""
    world = set(range(workload.num_ranks))
    for name in WORLD_NAMES:
        if set(workload.groups.get(name, world)) != world:
            raise TraceError(
                f"{workload.source}: group '{name}' stands for all ranks, but is described as "
                f"{list(workload.groups[name])[:8]}; give that group a number above 0."
            )


def _files(workload: Workload) -> Iterable[tuple[int, bytes]]:
    if isinstance(workload.traces, LazyTraces):
        return workload.traces.files()
    encoded = workload.for_each_rank(lambda trace: encode_trace(normalize(trace)))
    return [(rank, encoded[rank]) for rank in reversed(range(workload.num_ranks))]
