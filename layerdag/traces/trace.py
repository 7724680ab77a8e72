"""Execution traces as columns: one ``Trace`` a rank, one ``Workload`` a job.

The format facts are those of MLCommons Chakra's ``et_def.proto`` (schema 0.0.4 = 1.0.0).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import numpy as np

from layerdag.errors import GraphError, TraceError, WrongNameError
from layerdag.graph.topology import longest_path_layers, pointers
from layerdag.runtime.notes import Note, merge_notes
from layerdag.runtime.settings import guess_message, shorten

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")


class NodeType(IntEnum):
    """Chakra ``NodeType``.

    The last three are of mlcommons/chakra#216. A STORAGE node is one operation on storage
    (``traces.chakra.storage``). BATCH and CHECKPOINT nodes span what belongs to a batch or a
    checkpoint, and state no more than their duration.
    """

    INVALID = 0
    METADATA = 1
    MEM_LOAD = 2
    MEM_STORE = 3
    COMP = 4
    COMM_SEND = 5
    COMM_RECV = 6
    COMM_COLL = 7
    STORAGE = 8
    BATCH = 9
    CHECKPOINT = 10


OPERATOR = "op_type"
"""Attribute of a node that states the kind of its operator, as STAGE writes it."""
STORAGE = "Node.storage"
"""Name of the attribute (bytes) that holds a node's message ``storage``, field 11 of ``Node``."""


MAX_MICROSECONDS = 10**12
"""The longest duration of a node, 11 days; more cannot be simulated."""

MAX_NUMBER = 2**63 - 1
"""The largest size or count of a node."""


MESSAGES = (NodeType.COMM_SEND, NodeType.COMM_RECV)
"""Types of the two ends of a message."""


def communicates(type_N: np.ndarray) -> np.ndarray:
    """Return which types are sends, receives and collectives."""
    return (type_N >= NodeType.COMM_SEND) & (type_N <= NodeType.COMM_COLL)


class Wire(IntEnum):
    """Field number of each alternative of ``AttributeProto.value``; its list is that plus one."""

    UNSET = 0
    DOUBLE = 3
    FLOAT = 5
    INT32 = 7
    INT64 = 9
    UINT32 = 11
    UINT64 = 13
    SINT32 = 15
    SINT64 = 17
    FIXED32 = 19
    FIXED64 = 21
    SFIXED32 = 23
    SFIXED64 = 25
    BOOL = 27
    STRING = 29
    BYTES = 31


_WIRES = np.arange(256)  # tables, because np.isin takes longer than all else of a short trace
IS_INTEGER = (_WIRES >= Wire.INT32) & (_WIRES <= Wire.BOOL) & (_WIRES % 2 == 1)
"""Whether each type of attribute is one integer or truth value."""
IS_UNSIGNED = (_WIRES == Wire.UINT64) | (_WIRES == Wire.FIXED64)
"""Whether it is one of 64 bits without a sign."""


def wire_name(wire: int) -> str:
    """Return the field's name in ``et_def.proto``, such as ``int64_val`` or ``bool_list``."""
    if wire == Wire.UNSET:
        return "unset"
    listed = wire % 2 == 0
    return f"{Wire(wire - listed).name.lower()}_{'list' if listed else 'val'}"


@dataclass(frozen=True, eq=False)
class Ragged:
    """A list of integers for each node: those of node i are ``values[ptr_N1[i]:ptr_N1[i+1]]``."""

    ptr_N1: np.ndarray
    values: np.ndarray

    @property
    def node_V(self) -> np.ndarray:
        """The row of the node of each value."""
        return np.repeat(np.arange(self.ptr_N1.size - 1), np.diff(self.ptr_N1))

    def of(self, row: int) -> np.ndarray:
        """Return the list of node ``row``."""
        return self.values[self.ptr_N1[row] : self.ptr_N1[row + 1]]


@dataclass(frozen=True, eq=False)
class AttributeTable:
    """The attributes of all nodes in one flat table, in file order, without loss.

    Attributes:
        ptr_N1: int64; attributes of node i are rows ``ptr_N1[i]:ptr_N1[i+1]``.
        name_A: int32 index into the trace's ``strings``.
        wire_A: uint8, a ``Wire`` value, plus one for the list form.
        word_A: uint64. For numbers and bools the value's bits (two's complement for signed kinds,
            IEEE bits for floats, in the low bits for 32-bit kinds); for strings an index into
            ``strings``; for bytes and for every list an index into ``blobs``.
        blobs: Payload bytes; for a list the serialized list message.
        doc_A: int32 index into ``strings`` of each attribute's doc string, -1 for none.
    """

    ptr_N1: np.ndarray
    name_A: np.ndarray
    wire_A: np.ndarray
    word_A: np.ndarray
    doc_A: np.ndarray
    blobs: tuple[bytes, ...]

    @property
    def node_A(self) -> np.ndarray:
        """The row of the node of each attribute."""
        return np.repeat(np.arange(self.ptr_N1.size - 1), np.diff(self.ptr_N1))

    def select(self, row_K: np.ndarray, count_N: np.ndarray) -> "AttributeTable":
        """Return the table of some rows, of which each node has the next so many."""
        return AttributeTable(
            ptr_N1=pointers(count_N),
            name_A=self.name_A[row_K],
            wire_A=self.wire_A[row_K],
            word_A=self.word_A[row_K],
            doc_A=self.doc_A[row_K],
            blobs=self.blobs,
        )


@dataclass(frozen=True)
class Attribute:
    """One attribute outside the flat table (file metadata), or one to be written.

    ``wire`` is a ``Wire`` value, plus one for the list form; ``value`` an int, float, bool, str,
    bytes, a tuple of these for a list, or None for ``UNSET``.
    """

    name: str
    wire: int
    value: object
    doc: str = ""


@dataclass(frozen=True, eq=False)
class Trace:
    """The execution trace of one rank.

    Row order is file order. Strings are pooled: a column of int32 indexes points into ``strings``,
    -1 for an absent field.

    Attributes:
        id_N: uint64 node ids, unique.
        name_N: int32 index into ``strings``.
        data_deps: Ids (uint64) that must finish before the node starts.
        ctrl_deps: Ids (uint64) of the control dependencies.
        io_N6: int32 (N, 6) indexes of inputs.values/shapes/types, outputs.values/shapes/types.
        version: ``GlobalMetadata.version``, "" if unset.
        metadata: ``GlobalMetadata.attr``.
    """

    id_N: np.ndarray
    name_N: np.ndarray
    type_N: np.ndarray
    start_us_N: np.ndarray
    duration_us_N: np.ndarray
    data_deps: Ragged
    ctrl_deps: Ragged
    io_N6: np.ndarray
    attributes: AttributeTable
    strings: tuple[str, ...]
    version: str = ""
    metadata: tuple[Attribute, ...] = ()
    source: str = "<memory>"
    notes: tuple[Note, ...] = ()

    @property
    def num_nodes(self) -> int:
        """Number of nodes (N)."""
        return len(self.id_N)

    def to_pandas(self) -> "pd.DataFrame":
        """Return a row for each node: id, name, type, start and duration, operations and bytes.

        What a node does not state is missing (NaN).
        """
        import pandas as pd

        table = pd.DataFrame(
            {
                "id": self.id_N,
                "name": self.names(),
                "type": [NodeType(kind).name for kind in self.type_N.tolist()],
                "start_us": self.start_us_N,
                "duration_us": self.duration_us_N,
            }
        )
        for name in ("num_ops", "tensor_size", "comm_size"):
            value_N, present_N = self.integers(name)
            table[name] = np.where(present_N, value_N.astype(float), np.nan)
        return table

    def __repr__(self) -> str:
        """Return file and number of nodes, not the columns."""
        return f"Trace({shorten(self.source, 80)!r}, {self.num_nodes:,} nodes)"

    def names(self) -> list[str]:
        """Return the name of each node."""
        return ["" if index < 0 else self.strings[index] for index in self.name_N.tolist()]

    def attribute_rows(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Return where an attribute stands in the table of attributes, and the rows of its nodes.

        Both are int64 (K,), in file order.
        """
        if name not in self.strings:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        row_K = np.flatnonzero(self.attributes.name_A == self.strings.index(name))
        return row_K, np.searchsorted(self.attributes.ptr_N1, row_K, side="right") - 1

    def with_columns(self, **columns: Any) -> "Trace":
        """Return the trace with other columns of its table of attributes."""
        return replace(self, attributes=replace(self.attributes, **columns))

    def integers(self, name: str, default: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Return (value_N int64, present_N bool) of an integer or bool attribute of any wire type.

        Raises:
            TraceError: If some node carries the attribute as a float, string or list, beyond 2**63
                - 1, or twice with different values: readers of Chakra traces do not agree on which
                counts.
        """
        value_N = np.full(self.num_nodes, default, dtype=np.int64)
        present_N = np.zeros(self.num_nodes, dtype=bool)
        row_A, node_A = self._integer_rows(name)
        wire_A = self.attributes.wire_A[row_A]
        unsigned_A = IS_UNSIGNED[wire_A]
        large_A = unsigned_A & (self.attributes.word_A[row_A] > MAX_NUMBER)
        if large_A.any():
            first = int(np.argmax(large_A))
            raise TraceError(
                f"{self.source}: node {int(self.id_N[node_A[first]])} carries attribute '{name}' = "
                f"{int(self.attributes.word_A[row_A[first]])}; at most {MAX_NUMBER} can be "
                "added up, so correct it."
            )
        value_N[node_A] = self.attributes.word_A[row_A].view(np.int64)
        present_N[node_A] = True
        return value_N, present_N

    def require_integers(self, name: str) -> None:
        """Raise TraceError unless an attribute is an integer of any size, as in `integers`."""
        self._integer_rows(name)

    def _integer_rows(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        row_A, node_A = self.attribute_rows(name)
        wire_A = self.attributes.wire_A[row_A]
        wrong_A = ~IS_INTEGER[wire_A]
        if wrong_A.any():
            bad = int(self.id_N[node_A[np.argmax(wrong_A)]])
            raise TraceError(
                f"{self.source}: node {bad} carries attribute '{name}' as "
                f"{wire_name(int(wire_A[np.argmax(wrong_A)]))}; an integer type such as int64_val "
                "is needed."
            )
        self._refuse_contradictions(name, row_A, node_A)
        return row_A, node_A

    def texts(self, name: str, *, numbers: bool = False) -> tuple[list[str], np.ndarray]:
        """Return (value of each node or "", present_N) of a string attribute.

        With ``numbers`` an integer counts as its digits.

        Raises:
            TraceError: If some node carries the attribute with a type other than string_val, or
                twice with different values.
        """
        row_A, node_A = self.attribute_rows(name)
        wire_A, word_A = self.attributes.wire_A[row_A], self.attributes.word_A[row_A]
        text_A = wire_A == Wire.STRING
        digits_A = IS_INTEGER[wire_A] & numbers
        other_A = np.flatnonzero(~text_A & ~digits_A)
        if other_A.size:
            first = int(other_A[0])
            raise TraceError(
                f"{self.source}: node {int(self.id_N[node_A[first]])} carries attribute '{name}' "
                f"as {wire_name(int(wire_A[first]))}; string_val is needed."
            )
        value_N = np.full(self.num_nodes, "", dtype=object)
        pool = np.array(self.strings, dtype=object)
        value_N[node_A[text_A]] = pool[word_A[text_A].astype(np.int64)]
        unsigned_A = digits_A & IS_UNSIGNED[wire_A]
        value_N[node_A[unsigned_A]] = word_A[unsigned_A].astype(str).astype(object)
        signed_A = digits_A & ~unsigned_A
        value_N[node_A[signed_A]] = word_A[signed_A].view(np.int64).astype(str).astype(object)
        present_N = np.zeros(self.num_nodes, dtype=bool)
        present_N[node_A] = True
        self._refuse_contradictions(name, row_A, node_A)
        return value_N.tolist(), present_N

    def dtypes(self) -> list[str]:
        """Return the number format of each node: its ``dtype``, else that of the metadata, or "".

        Raises TraceError like ``texts``.
        """
        names, stated_N = self.texts("dtype")
        common = next((str(a.value) for a in self.metadata if a.name == "dtype"), "")
        if not common:
            return names
        return [name if stated else common for name, stated in zip(names, stated_N, strict=True)]

    def _refuse_contradictions(self, name: str, row_A: np.ndarray, node_A: np.ndarray) -> None:
        repeated_A = node_A[1:] == node_A[:-1]
        if not repeated_A.any():
            return
        word_A = self.attributes.word_A[row_A]
        differs_A = repeated_A & (word_A[1:] != word_A[:-1])
        if differs_A.any():
            bad = int(self.id_N[node_A[1:][np.argmax(differs_A)]])
            raise TraceError(
                f"{self.source}: node {bad} carries attribute '{name}' twice, with different "
                "values; keep one."
            )


@dataclass(frozen=True, eq=False)
class RankClass:
    """Ranks that run one program: their traces differ in names of groups and in peers only.

    Attributes:
        rank_K: int64, the ranks, ascending.
        group_KT: int64, the name of each of a rank's groups, 0 for all ranks, which every rank has
            in the same places of its pool of strings.
        peer_KP: int64, the rank of each of a rank's peers, which every rank has in the same
            attributes of the same messages.
    """

    rank_K: np.ndarray
    group_KT: np.ndarray
    peer_KP: np.ndarray


class LazyTraces(Sequence[Trace], ABC):
    """Traces of so many ranks that each is made when it is first asked for.

    They share their large columns.
    """

    @abstractmethod
    def classes(self) -> Sequence[RankClass]:
        """Return the classes of ranks, by their first ranks."""

    @abstractmethod
    def files(self) -> Iterator[tuple[int, bytes]]:
        """Yield each rank with the bytes of its file, the last rank first.

        They are those of ``encode_trace(normalize(self[rank]))``, made faster.
        """


@dataclass(frozen=True, eq=False)
class Workload:
    """The traces of all ranks of one job, with its communicator groups.

    Ranks that run the same program may share one ``Trace`` object. A job of very many ranks may
    hold ``LazyTraces``.

    Attributes:
        groups: Ranks of each communicator group, by the group's integer name (as a string).
        job_notes: What the reader did not understand of the job as a whole; ``notes`` has those of
            its traces, too.
    """

    traces: Sequence[Trace]
    groups: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    source: str = "<memory>"
    job_notes: tuple[Note, ...] = ()

    @property
    def notes(self) -> tuple[Note, ...]:
        """What the reader did not understand, of the job and of every distinct trace."""
        if isinstance(self.traces, LazyTraces):
            return self.job_notes
        of_traces = (note for trace, _ in self.ranks_by_trace() for note in trace.notes)
        return merge_notes([*self.job_notes, *of_traces])

    @property
    def num_ranks(self) -> int:
        """Number of ranks."""
        return len(self.traces)

    def programs(self) -> Iterator[tuple[Trace, int]]:
        """Yield a trace of each program, and how many ranks run it.

        Ranks run one program if they share their trace, or are of one class of ``LazyTraces``.
        """
        if isinstance(self.traces, LazyTraces):
            for each in self.traces.classes():
                yield self.traces[int(each.rank_K[0])], len(each.rank_K)
            return
        for trace, ranks in self.ranks_by_trace():
            yield trace, len(ranks)

    def ranks_by_trace(self) -> list[tuple[Trace, list[int]]]:
        """Return each distinct trace with the ranks that share it, by the first of these."""
        held: dict[int, tuple[Trace, list[int]]] = {}  # holds the traces, so that ids stay distinct
        for rank, trace in enumerate(self.traces):
            held.setdefault(id(trace), (trace, []))[1].append(rank)
        return list(held.values())

    def for_each_rank(self, function: Callable[[Trace], T]) -> list[T]:
        """Return what a function makes of each rank's trace; a shared one is given to it once."""
        found: dict[int, T] = {}
        for trace, ranks in self.ranks_by_trace():
            found.update(dict.fromkeys(ranks, function(trace)))
        return [found[rank] for rank in range(self.num_ranks)]

    def to_pandas(self) -> "pd.DataFrame":
        """Return a row for each node of each rank; see ``Trace.to_pandas``."""
        import pandas as pd

        tables = [trace.to_pandas() for trace in self.traces]
        return pd.concat(tables, keys=range(len(tables)), names=["rank"]).reset_index("rank")

    def save(self, *_: object, **__: object) -> NoReturn:
        """Say what writes a workload."""
        raise WrongNameError(guess_message("workload.save", "layerdag.write(workload, prefix)"))

    def __repr__(self) -> str:
        """Return where it comes from and its sizes, not the columns."""
        source = shorten(self.source, 70)
        return f"Workload({source!r}, {self.num_ranks:,} ranks, {len(self.groups):,} groups)"


DATA, CONTROL = 0, 1


def dependency_edges(trace: Trace) -> tuple[np.ndarray, np.ndarray]:
    """Return every distinct dependency as an edge from the earlier to the later node.

    A pair that is both a data and a control dependency is one data edge. ASTRA-sim enforces both
    kinds, and so does layerdag.

    Returns:
        (edge_index_2E int64 of rows, kind_E uint8: ``DATA`` or ``CONTROL``), sorted by target and
        then by source.

    Raises:
        TraceError: If an id occurs twice or a dependency names an absent node; names both.
    """
    order_N = np.argsort(trace.id_N, kind="stable")
    sorted_N = trace.id_N[order_N]
    twice = np.flatnonzero(sorted_N[1:] == sorted_N[:-1])
    if twice.size:
        raise TraceError(
            f"{trace.source}: {twice.size} ids occur more than once, first id "
            f"{sorted_N[twice[0]]}; give every node of a rank its own id."
        )
    both = (trace.data_deps, trace.ctrl_deps)
    wanted_E = np.concatenate([deps.values for deps in both])
    target_E = np.concatenate([deps.node_V for deps in both])
    source_E = _lookup(sorted_N, order_N, wanted_E)
    if (source_E < 0).any():
        bad = int(np.argmax(source_E < 0))
        raise TraceError(
            f"{trace.source}: node {trace.id_N[target_E[bad]]} depends on node "
            f"{wanted_E[bad]}, which is not in the trace; add the node, or let "
            "'layerdag convert --drop-dangling' drop such dependencies."
        )
    kind_E = np.repeat(np.array([DATA, CONTROL], np.uint8), [deps.values.size for deps in both])
    # Stable sort: of equal pairs the data edge comes first and is the one that is kept.
    key_E = target_E * max(trace.num_nodes, 1) + source_E
    _, first_E = np.unique(key_E, return_index=True)
    return np.stack([source_E, target_E])[:, first_E], kind_E[first_E]


def trace_layers(trace: Trace, edge_index_2E: np.ndarray | None = None) -> np.ndarray:
    """Return the longest-path layer of each node, shape (N,).

    ``edge_index_2E`` are the ``dependency_edges`` where they are known already.

    Raises:
        TraceError: As ``dependency_edges``, and if dependencies form a cycle; names its nodes.
    """
    if edge_index_2E is None:
        edge_index_2E, _ = dependency_edges(trace)
    try:
        return longest_path_layers(trace.num_nodes, edge_index_2E)
    except GraphError:
        ids = [str(trace.id_N[row]) for row in rows_on_a_cycle(trace.num_nodes, edge_index_2E)]
        shown = listed(ids, 8)
        what = (
            f"node {shown} depends on itself"
            if len(ids) == 1
            else f"{len(ids)} nodes wait for each other in a cycle (ids {shown})"
        )
        raise TraceError(
            f"{trace.source}: {what}; remove the dependency that closes the cycle."
        ) from None


def listed(items: Sequence[object], most: int) -> str:
    """Return the first items of a list for a sentence."""
    return ", ".join(map(str, items[:most])) + (", ..." if len(items) > most else "")


def rows_on_a_cycle(num_nodes: int, edge_index_2E: np.ndarray) -> np.ndarray:
    """Return the rows of one set of nodes that all wait for each other; empty if there is none."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    source_E, target_E = edge_index_2E
    itself_E = source_E == target_E
    if itself_E.any():
        return source_E[itself_E][:1]
    ones_E = np.ones(source_E.size, dtype=np.int8)
    adjacency = coo_array((ones_E, (source_E, target_E)), shape=(num_nodes, num_nodes))
    _, component_N = connected_components(adjacency, directed=True, connection="strong")
    size_K = np.bincount(component_N, minlength=1)
    return np.flatnonzero((size_K > 1)[component_N] & (component_N == int(np.argmax(size_K))))


def rows_of(trace: Trace, ids: np.ndarray) -> np.ndarray:
    """Return the row of each id, -1 where no node has it."""
    order_N = np.argsort(trace.id_N, kind="stable")
    return _lookup(trace.id_N[order_N], order_N, ids)


def _lookup(sorted_N: np.ndarray, order_N: np.ndarray, ids: np.ndarray) -> np.ndarray:
    if not order_N.size:
        return np.full(ids.size, -1)
    at = np.minimum(np.searchsorted(sorted_N, ids), order_N.size - 1)
    return np.where(sorted_N[at] == ids, order_N[at], -1)


def without_dependencies(
    trace: Trace, chosen: Callable[[Ragged], np.ndarray]
) -> tuple[Trace, np.ndarray]:
    """Return the trace without the dependencies that ``chosen`` finds, and the rows of their nodes.

    A node that loses several is named as often.
    """
    kept, rows = [], []
    for deps in (trace.data_deps, trace.ctrl_deps):
        gone_V = chosen(deps)
        rows.append(deps.node_V[gone_V])
        kept.append(Ragged(pointers(~gone_V)[deps.ptr_N1], deps.values[~gone_V]))
    return replace(trace, data_deps=kept[0], ctrl_deps=kept[1]), np.concatenate(rows)


def without_dangling(trace: Trace) -> tuple[Trace, np.ndarray]:
    """Return the trace without dependencies on absent nodes; see ``without_dependencies``."""
    return without_dependencies(trace, lambda deps: rows_of(trace, deps.values) < 0)


def drop_dangling(workload: Workload) -> tuple[Workload, int]:
    """Return the workload without dependencies on absent nodes, and how many went.

    Chakra's own converter writes control dependencies on nodes that it removed.
    """
    traces, total = list(workload.traces), 0
    for trace, ranks in workload.ranks_by_trace():
        kept, rows = without_dangling(trace)
        total += rows.size
        for rank in ranks:
            traces[rank] = kept
    return replace(workload, traces=tuple(traces)), total
