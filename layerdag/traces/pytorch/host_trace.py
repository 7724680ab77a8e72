"""The compiled reader of PyTorch host traces (``native/host``): nodes and tensors as records.

A file holds ``{"schema", "pid", "time", "start_ts", "nodes": [...], "finish_ts"}`` and is read a
stretch of text at a time, so that memory does not grow with it.

Every schema version of ExecutionTraceObserver is read. Nodes stand in *exit order*: an operator is
written when it returns, after everything it called. Ids are taken from one counter at entry, so
that they order nodes by start. ``parent`` (1.0.1) or ``ctrl_deps`` is the enclosing node as the
observer saw it, which is unreliable in gloo runs.
"""

import ctypes
import json
import re
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from layerdag.errors import TraceError
from layerdag.runtime.json_shape import doubled_name, found_value, parse_json
from layerdag.runtime.native import library
from layerdag.runtime.reading import open_unpacked

CHUNK = 1 << 18
HEAD_LIMIT = 1 << 20
"""The list of nodes must begin within so many bytes."""
MAX_NODE_LENGTH = 1 << 26
"""Bytes of one node; real ones have a few thousand, with long lists of tensors a million."""

# In the order of native/host/json_text.h and native/host/scan.h.
_CUT, _DEEP, _FIELD, _MEMORY, _END, _OBJECT = 1, 3, 4, 5, 6, 7
_REASONS = {
    _DEEP: "values are nested too deeply",
    _OBJECT: "found a value that is no object at character {at} of the list of nodes; the trace is "
    "damaged, collect or copy it again",
    _MEMORY: "does not fit into memory; trace fewer steps",
}
_FIELDS = (
    *("", "id", "name", "parent' or 'ctrl_deps", "inputs", "outputs", "attrs"),
    *("values", "shapes", "types", "strides", "op_schema", "rf_id", "tid"),
)
_NODE = np.dtype(
    [
        (name, np.int64)
        for name in ("id", "rf_id", "tid", "parent", "begin", "end", "inputs", "outputs", "kind")
    ]
)
_TENSOR = np.dtype(
    [(name, np.int64) for name in ("storage", "begin", "end", "bytes", "shape")]
    + [(name, np.int32) for name in ("dims", "position", "dtype", "device")]
)


class _Vector(ctypes.Structure):
    _fields_ = (("data", ctypes.c_void_p), ("size", ctypes.c_int64), ("capacity", ctypes.c_int64))


class _Names(ctypes.Structure):
    _fields_ = (
        ("pool", ctypes.c_void_p),
        ("bytes", ctypes.c_void_p),
        ("used", ctypes.c_size_t),
        ("capacity", ctypes.c_size_t),
    )


class _Host(ctypes.Structure):
    _fields_ = (
        ("nodes", _Vector),
        ("tensors", _Vector),
        ("sizes", _Vector),
        ("ignored", _Vector),
        ("kinds", _Names),
        ("words", _Names),
        ("fault_field", ctypes.c_int64),
        ("fault_id", ctypes.c_int64),
        ("flat", ctypes.c_int),
    )


@dataclass(frozen=True, slots=True)
class OpSchema:
    """Name, schema ("" for scopes) and kind of the nodes of one operator or scope.

    A compiled Triton kernel has no schema.
    """

    name: str
    schema: str
    is_triton: bool


@dataclass(frozen=True, eq=False)
class HostBlock:
    """Consecutive nodes of a host trace, in file order.

    Attributes:
        nodes_N: Records ``id``, ``rf_id``, ``tid``, ``parent``, ``kind``; ``begin`` and ``end`` in
            ``text``; the inputs are tensors ``inputs`` to ``outputs``, the outputs those up to the
            next node.
        tensors_T: Records of tensors: ``storage``, ``begin`` and ``end`` in bytes of the storage,
            ``bytes``, ``shape`` and ``dims`` (a range of ``size_S``), ``position`` among the
            arguments, ``dtype`` and ``device`` (in ``words``).
        size_S: Sizes of all tensors.
        kinds: All kinds met so far, by number.
        words: All data types and devices met so far, by number.
        text: The JSON from which the nodes were read.
    """

    nodes_N: np.ndarray
    tensors_T: np.ndarray
    size_S: np.ndarray
    kinds: list[OpSchema]
    words: list[str]
    text: bytes

    def json_of(self, row: int) -> dict[str, object]:
        """Return one node as the JSON object that it is in the file."""
        node = self.nodes_N[row]
        found: dict[str, object] = json.loads(self.text[node["begin"] : node["end"]])
        return found


FLAT = {
    "1.0.1": True,
    "1.0.2": False,
    "1.0.3": False,
    "1.0.4": False,
    "1.1.0": False,
    "1.1.1": False,
}
"""Whether the fields of a node lie side by side, for each schema version; the others nest arguments
and list further attributes. A suffix such as "-chakra.0.0.4" does not change the layout."""

_NODES = re.compile(rb'"nodes"\s*:\s*\[')


def read_host_blocks(
    path: str | Path, has_tensors: Callable[[OpSchema], bool] = lambda kind: True
) -> Iterator[HostBlock]:
    """Yield the nodes of a host trace, block by block, in file order, which is exit order.

    Args:
        path: JSON file, plain or compressed with gzip or xz (recognized by content).
        has_tensors: Whether the tensors of a kind are asked for; fewer are faster. It is asked
            after the block in which the kind is met first, so that there they are read in any case.

    Raises:
        TraceError: If the file is missing, damaged, cut short, no host trace, or of an unknown
            schema version, or a node lacks or misuses a field; names the file and the place.
    """
    source, text = str(path), b""
    with open_unpacked(path, TraceError) as stream:
        while (begin := _NODES.search(text)) is None:
            more = stream.read_full(CHUNK) if len(text) < HEAD_LIMIT else b""
            text += more
            if not more:
                raise TraceError(
                    f"{source}: no list 'nodes' in the first {HEAD_LIMIT} characters; this is no "
                    "trace of the expected kind, or it is empty."
                )
        reader = _Reader(_is_flat(text[: begin.end()], source), has_tensors, source)
        reader.dropped = begin.end()
        text, done = text[begin.end() :], False
        while not done:
            block, used, done = reader.scan(text)
            yield block
            if not done:
                if len(text) - used > MAX_NODE_LENGTH:
                    raise reader.error_at(used, f"a node of more than {MAX_NODE_LENGTH >> 20} MiB")
                more = stream.read_full(max(CHUNK, len(text) - used))
                if not more:
                    raise reader.error_at(used, "the file ends inside the list")
                reader.dropped += used
                text = text[used:] + more
        try:  # further fields may follow, and nothing else
            parse_json(b'{"nodes": [' + text[used:] + stream.read_full(HEAD_LIMIT))
        except (ValueError, RecursionError) as error:
            raise reader.error_at(used, f"after the list of nodes: {error}") from None


def _is_flat(data: bytes, source: str) -> bool:
    """Return whether nodes are flat, as the text before them says."""
    try:
        head = data.decode()
    except UnicodeDecodeError as error:
        raise TraceError(
            f"{source}: the file is damaged or cut short ({error}); collect or copy it again."
        ) from None
    if twice := doubled_name(head + "]}"):
        raise TraceError(f"{source}: '{twice}' stands twice before the nodes; keep one of them.")
    version = re.search(r'"schema"\s*:\s*"([^"]*)"', head)
    if version is None:
        raise TraceError(
            f"{source}: no 'schema' before the nodes; this is no PyTorch execution trace. Give "
            "the file written by ExecutionTraceObserver."
        )
    flat = FLAT.get(version[1].partition("-")[0])
    if flat is None:
        raise TraceError(
            f"{source}: schema version '{version[1]}' is not known; known are "
            f"{', '.join(FLAT)}, with or without a '-chakra' suffix."
        )
    return flat


class _Reader:
    def __init__(self, flat: bool, has_tensors: Callable[[OpSchema], bool], source: str) -> None:
        self._has_tensors = has_tensors
        self.source = source
        self.dropped = 0
        self._kinds: list[OpSchema] = []
        self._words: list[str] = []
        self._native = native = library()
        native.host_new.restype = ctypes.POINTER(_Host)
        native.host_text.restype = ctypes.c_void_p
        self._host = native.host_new(ctypes.c_uint64(secrets.randbits(64)), ctypes.c_int32(flat))
        if not self._host:
            raise MemoryError("no memory for reading a host trace")

    def __del__(self) -> None:
        self._native.host_free(self._host)

    def scan(self, text: bytes) -> tuple[HostBlock, int, bool]:
        """Return the whole nodes in ``text``, the bytes used, and whether the list ended."""
        used = ctypes.c_int64()
        status = self._native.host_scan(
            self._host, text, ctypes.c_int64(len(text)), ctypes.byref(used)
        )
        if status not in (_CUT, _END):
            raise self._fault(status, used.value)
        held = self._host.contents
        self._add_names(used.value)
        block = HostBlock(
            _records(held.nodes, _NODE),
            _records(held.tensors, _TENSOR),
            _records(held.sizes, np.dtype(np.int64)),
            self._kinds,
            self._words,
            text,
        )
        return block, used.value, status == _END

    def error_at(self, at: int, what: str) -> TraceError:
        return TraceError(
            f"{self.source}: no valid JSON from character {self.dropped + at} on ({what}); the "
            "trace is cut short or damaged, collect or copy it again."
        )

    def _fault(self, status: int, at: int) -> TraceError:
        held = self._host.contents
        if status == _FIELD:
            return TraceError(
                f"{self.source}: node {held.fault_id} lacks or misuses field "
                f"'{_FIELDS[held.fault_field]}'; it does not follow the schema version that the "
                "file declares."
            )
        if status in _REASONS:
            reason = _REASONS[status].format(at=self.dropped + at)
            return TraceError(f"{self.source}: {reason}.")
        return self.error_at(at, "a value is malformed")

    def _add_names(self, at: int) -> None:
        while (raw := self._text(1, len(self._kinds))) is not None:
            name, schema, triton = raw.split(b"\0")
            kind = OpSchema(self._decoded(name, at), self._decoded(schema, at), triton == b"1")
            try:
                wanted = self._has_tensors(kind)
            except TraceError as error:
                raise TraceError(f"{self.source}: {error}") from None
            if not wanted:
                self._native.host_ignore(self._host, ctypes.c_int64(len(self._kinds)))
            self._kinds.append(kind)
        while (raw := self._text(0, len(self._words))) is not None:
            self._words.append(self._decoded(raw, at))

    def _text(self, of_kind: int, index: int) -> bytes | None:
        """Return one distinct name, None beyond the last."""
        size = ctypes.c_int64()
        at = self._native.host_text(
            self._host, ctypes.c_int32(of_kind), ctypes.c_int64(index), ctypes.byref(size)
        )
        return None if at is None else ctypes.string_at(at, size.value)

    def _decoded(self, raw: bytes, at: int) -> str:
        try:
            text: str = json.loads(b'"%b"' % raw) if b"\\" in raw else raw.decode()
            text.encode()  # half of a surrogate pair can be escaped, but is not text
            return text
        except ValueError as error:
            raise self.error_at(at, f"a name is no text: {error}") from None


def _records(vector: _Vector, kind: np.dtype) -> np.ndarray:
    size = vector.size * kind.itemsize
    return np.frombuffer(ctypes.string_at(vector.data, size) if size else b"", dtype=kind)


def argument_values(node: dict[str, Any]) -> list[Any]:
    """Return the argument values of a node as it is in the file.

    A tensor is ``[tensor id, storage id, offset, elements, bytes per element, device]``; lists
    nest; other objects are numbers, bools, strings, or "<Object>".
    """
    inputs = node["inputs"]
    return inputs["values"] if isinstance(inputs, dict) else inputs


def attribute(node: dict[str, Any], name: str) -> Any:
    """Return a further attribute of a node as it is in the file, None if it is absent or empty.

    Raises:
        TraceError: If an attribute of the node has no name or no value.
    """
    for each in node.get("attrs", ()):
        if not isinstance(each, dict) or not {"name", "value"} <= each.keys():
            raise TraceError(
                f"node {node.get('id')!s:.40}: an attribute must have a name and a value, found "
                f"{found_value(each)}; write the trace again."
            )
        if each["name"] == name:
            return each["value"] or None
    return None
