"""Traces from Python objects: for synthetic writers, importers of small files, and tests."""

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from layerdag.errors import TraceError
from layerdag.traces import Attribute, AttributeTable, NodeType, Ragged, Trace, Wire, wire_name
from layerdag.traces.chakra._attributes import (
    MASK64,
    encode_text,
    is_list,
    list_to_payload,
    scalar_to_word,
)

T = TypeVar("T")


@dataclass(frozen=True)
class NodeSpec:
    """One node of a trace to be built.

    Attributes:
        id: Unique in its trace, 0 <= id < 2**64. ASTRA-sim issues ready nodes by ascending id.
        name: Node name.
        type: A ``NodeType``.
        data_deps: Ids of nodes that must finish before this one starts.
        ctrl_deps: Ids of control dependencies; leave empty for ASTRA-sim, which enforces them too.
        start_us: Start in microseconds.
        duration_us: Duration in microseconds.
        attributes: Further attributes, in file order.
        io: inputs.values/shapes/types and outputs.values/shapes/types; None for absent.
    """

    id: int
    name: str
    type: int
    data_deps: tuple[int, ...] = ()
    ctrl_deps: tuple[int, ...] = ()
    start_us: int = 0
    duration_us: int = 0
    attributes: tuple[Attribute, ...] = ()
    io: tuple[str | None, ...] = (None,) * 6


class Pool(Generic[T]):
    """Distinct values in order of first use."""

    def __init__(self) -> None:
        self._index: dict[T, int] = {}

    def add(self, value: T) -> int:
        """Return the index of ``value``."""
        return self._index.setdefault(value, len(self._index))

    def values(self) -> tuple[T, ...]:
        """Return all values by index."""
        return tuple(self._index)


def build_trace(
    nodes: Sequence[NodeSpec],
    *,
    metadata: tuple[Attribute, ...] = (),
    version: str = "1.0.0",
    source: str = "<memory>",
) -> Trace:
    """Return the trace with the given nodes, in their order.

    Dependencies are not resolved here: a dangling or cyclic one is found by
    ``layerdag.traces.dependency_edges``.

    Raises:
        TraceError: If a value does not fit its field, or an id occurs twice, naming the node; or if
            a string is no text.
    """
    _check_distinct([node.id for node in nodes], source)
    strings: Pool[str] = Pool()
    rows = [_node_row(node, strings, source) for node in nodes]
    table = attribute_table([node.attributes for node in nodes], strings, source)
    texts = (text for attribute in metadata for text in _texts(attribute))
    _check_texts((*strings.values(), version, *texts), source)
    head_N5 = np.array([row[:5] for row in rows], dtype=np.uint64).reshape(-1, 5)
    return Trace(
        id_N=head_N5[:, 0].copy(),
        name_N=head_N5[:, 1].astype(np.int32),
        type_N=head_N5[:, 2].astype(np.uint8),
        start_us_N=head_N5[:, 3].copy(),
        duration_us_N=head_N5[:, 4].copy(),
        data_deps=ragged([node.data_deps for node in nodes], source),
        ctrl_deps=ragged([node.ctrl_deps for node in nodes], source),
        io_N6=np.array([row[5:] for row in rows], dtype=np.int32).reshape(-1, 6),
        attributes=table,
        strings=strings.values(),
        version=version,
        metadata=metadata,
        source=source,
    )


class NodeColumns:
    """Nodes appended as plain numbers, for importers of many nodes: no object for an attribute."""

    def __init__(self, source: str = "<memory>") -> None:
        self._source = source
        self._strings: Pool[str] = Pool()
        self._heads = tuple(array(code) for code in "QiBQQ")
        self._deps = (array("Q"), array("Q"))
        self._ends = (array("q", [0]), array("q", [0]), array("q", [0]))
        self._attributes = tuple(array(code) for code in "iBQ")

    def text(self, value: str) -> int:
        """Return the word of a string attribute."""
        return self._strings.add(value)

    def attribute(self, name: str, wire: int, word: int) -> None:
        """Append an attribute to the node that `add` completes next; ``word`` as in `Trace`."""
        names, wires, words = self._attributes
        names.append(self._strings.add(name))
        wires.append(wire)
        words.append(word)

    def add(
        self,
        number: int,
        name: str,
        kind: NodeType,
        deps: tuple[Sequence[int], Sequence[int]],
        times_us: tuple[int, int],
    ) -> None:
        """Append a node with the attributes appended since the last one.

        Args:
            number: Its id.
            name: Its name.
            kind: Its type.
            deps: Ids of its data and of its control dependencies.
            times_us: Start and duration in microseconds.

        Raises:
            TraceError: If a number does not fit its field.
        """
        head = (number, self._strings.add(name), kind, *times_us)
        try:
            for column, value in zip(self._heads, head, strict=True):
                column.append(value)
            self._deps[0].extend(deps[0])
            self._deps[1].extend(deps[1])
        except OverflowError as error:
            raise TraceError(f"{self._source}: node {number}: {error}.") from None
        sizes = (len(self._deps[0]), len(self._deps[1]), len(self._attributes[0]))
        for ends, size in zip(self._ends, sizes, strict=True):
            ends.append(size)

    def trace(self) -> Trace:
        """Return the trace of all nodes; version 1.0.0."""
        id_N, name_N, type_N, start_N, duration_N = map(_array, self._heads)
        data, ctrl = (
            Ragged(_array(ends), _array(deps))
            for ends, deps in zip(self._ends, self._deps, strict=False)
        )
        name_A, wire_A, word_A = map(_array, self._attributes)
        return Trace(
            id_N=id_N,
            name_N=name_N,
            type_N=type_N,
            start_us_N=start_N,
            duration_us_N=duration_N,
            data_deps=data,
            ctrl_deps=ctrl,
            io_N6=np.full((id_N.size, 6), -1, np.int32),
            attributes=AttributeTable(
                _array(self._ends[2]),
                name_A,
                wire_A,
                word_A,
                np.full(name_A.size, -1, np.int32),
                (),
            ),
            strings=self._strings.values(),
            version="1.0.0",
            source=self._source,
        )


def _array(column: "array[int]") -> np.ndarray:
    """Return a column as an array of its own."""
    return np.array(column)


def ragged(lists: Iterable[Sequence[int]], source: str = "<memory>") -> Ragged:
    """Return lists of ids as one flat uint64 column.

    Raises:
        TraceError: If an id does not fit into 64 unsigned bits.
    """
    held = list(lists)
    ptr_N1 = np.zeros(len(held) + 1, dtype=np.int64)
    np.cumsum([len(ids) for ids in held], out=ptr_N1[1:])
    flat = [value for ids in held for value in ids]
    try:
        return Ragged(ptr_N1, np.array(flat, dtype=np.uint64))
    except OverflowError:
        bad = next(value for value in flat if not 0 <= value <= MASK64)
        raise TraceError(
            f"{source}: a dependency names node {bad}; ids lie between 0 and 2**64 - 1."
        ) from None


def _texts(attribute: Attribute) -> Iterator[str]:
    """Yield every string of an attribute."""
    value = attribute.value
    yield from (attribute.name, attribute.doc)
    for part in value if isinstance(value, tuple) else (value,):
        if isinstance(part, str):
            yield part


def _check_texts(texts: Iterable[str], source: str) -> None:
    """Raise TraceError where a string has no UTF-8 form, which half of a surrogate pair has not."""
    for text in texts:
        try:
            encode_text(text)
        except TraceError as error:
            raise TraceError(f"{source}: {error}") from None


def _check_distinct(ids: list[int], source: str) -> None:
    """Raise TraceError, naming the id, if one occurs twice."""
    if len(set(ids)) == len(ids):
        return
    twice = Counter(ids).most_common(1)[0][0]
    raise TraceError(f"{source}: two nodes have id {twice}; give every node of a rank its own id.")


def _node_row(node: NodeSpec, strings: Pool[str], source: str) -> tuple[int, ...]:
    """Return id, name, type, start, duration and the six io columns of one node."""
    for label, value in (
        ("id", node.id),
        ("start_us", node.start_us),
        ("duration_us", node.duration_us),
    ):
        if not 0 <= value <= MASK64:
            raise TraceError(
                f"{source}: node {node.id} has {label} {value}; it must lie in 0 to 2**64 - 1."
            )
    if not 0 <= node.type < len(NodeType):
        raise TraceError(f"{source}: node {node.id} has type {node.type}; types are 0 to 7.")
    io = (-1 if text is None else strings.add(text) for text in node.io)
    name = strings.add(node.name)
    return (node.id, name, int(node.type), node.start_us, node.duration_us, *io)


def attribute_table(
    lists: Sequence[Sequence[Attribute]], strings: Pool[str], source: str
) -> AttributeTable:
    """Return the attributes of all nodes as one table; new strings are added to the pool."""
    ptr_N1 = np.zeros(len(lists) + 1, dtype=np.int64)
    np.cumsum([len(attributes) for attributes in lists], out=ptr_N1[1:])
    flat = [attribute for attributes in lists for attribute in attributes]
    blobs: Pool[bytes] = Pool()
    try:
        words = [_word(attribute, strings, blobs) for attribute in flat]
    except TraceError as error:
        raise TraceError(f"{source}: {error}") from None
    return AttributeTable(
        ptr_N1=ptr_N1,
        name_A=np.array([strings.add(attribute.name) for attribute in flat], dtype=np.int32),
        wire_A=np.array([attribute.wire for attribute in flat], dtype=np.uint8),
        word_A=np.array(words, dtype=np.uint64),
        doc_A=np.array(
            [strings.add(attribute.doc) if attribute.doc else -1 for attribute in flat],
            dtype=np.int32,
        ),
        blobs=blobs.values(),
    )


def _word(attribute: Attribute, strings: Pool[str], blobs: Pool[bytes]) -> int:
    """Return the word of one attribute; strings and lists go into their pools."""
    wire, value = attribute.wire, attribute.value
    try:
        if wire == Wire.UNSET:
            return 0
        if is_list(wire) and isinstance(value, tuple | list):
            return blobs.add(list_to_payload(wire, value))
        if wire == Wire.STRING and isinstance(value, str):
            return strings.add(value)
        if wire == Wire.BYTES and isinstance(value, bytes):
            return blobs.add(value)
        if is_list(wire) or wire in (Wire.STRING, Wire.BYTES):
            raise TraceError(f"{wire_name(wire)} cannot hold {value!r}.")
        return scalar_to_word(wire, value)
    except TraceError as error:
        raise TraceError(f"attribute '{attribute.name}': {error}") from None
