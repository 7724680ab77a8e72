"""What storage nodes do: the message ``Node.storage`` of Chakra (mlcommons/chakra#216).

A STORAGE node is one operation on files, pages or blocks. Its message is kept as it stands, as the
attribute ``STORAGE`` of type bytes, and is written as field 11 of the node again. BATCH and
CHECKPOINT nodes have no message of their own. Facts: ``StorageInfo``, ``FsOp``, ``PageOp`` and
``BlockOp`` of ``et_def.proto``.
"""

from dataclasses import dataclass

import numpy as np

from layerdag.errors import TraceError
from layerdag.runtime.notes import NoteCollector, NoteKind
from layerdag.traces.builder import LENGTH, VARINT, Cursor
from layerdag.traces.trace import STORAGE, Trace, Wire

PAGE_BYTES = 4096
"""Of a page of Linux on x86 and most of Arm; the message counts pages."""

SECTOR_BYTES = 512
"""Of a sector of Linux's block layer, whatever the device has."""

LEVELS = ("UNKNOWN", "FS", "PAGE", "BLOCK", "DEVICE")

_FS, _PAGE, _BLOCK = 10, 11, 12
_OPERATIONS: dict[int, tuple[str, dict[int, str]]] = {
    _FS: ("fs", dict(enumerate(("unknown", "open", "close", "read", "write", "pread", "pwrite",
        "fsync", "fdatasync", "sync_file_range")))),
    _PAGE: ("page", {0: "unknown", 1: "add_to_cache", 2: "dirty", 3: "readahead_sync",
        6: "readahead_async"}),
    _BLOCK: ("block", dict(enumerate(("unknown", "read", "write", "flush")))),
}  # fmt: skip
_SIZE = {_FS: (5, 1), _PAGE: (4, PAGE_BYTES), _BLOCK: (5, SECTOR_BYTES)}
"""Field that counts, and the bytes of what it counts."""


@dataclass(frozen=True)
class StorageOperation:
    """One operation on storage.

    Attributes:
        level: One of ``LEVELS``, or the number of an unknown one.
        name: Such as "fs.read" or "block.flush"; "" where the message has no detail.
        num_bytes: Bytes that are moved; 0 of operations that move none.
    """

    level: str
    name: str
    num_bytes: int

    @classmethod
    def from_bytes(cls, payload: bytes) -> "StorageOperation":
        """Return what a message ``StorageInfo`` says.

        Raises:
            TraceError: If the bytes are not such a message.
        """
        level, name, size = 0, "", 0
        message = Cursor(payload)
        while not message.done:
            number, kind = message.tag()
            if number == 1 and kind == VARINT:
                level = message.varint()
            elif number in _OPERATIONS and kind == LENGTH:
                name, size = _detail(number, message.bytes())
            else:
                message.skip(kind)
        known = LEVELS[level] if level < len(LEVELS) else str(level)
        return cls(known, name, size)

    @property
    def text(self) -> str:
        """The operation for people, such as "fs.read of 4,096 bytes"."""
        name = self.name or f"level {self.level}"
        return f"{name} of {self.num_bytes:,} bytes" if self.num_bytes else name

    @property
    def is_known(self) -> bool:
        """Whether level and operation are of the schema."""
        return self.level in LEVELS and not self.name.rpartition(".")[2].isdigit()


def _detail(field: int, payload: bytes) -> tuple[str, int]:
    layer, names = _OPERATIONS[field]
    numbers: dict[int, int] = {}
    message = Cursor(payload)
    while not message.done:
        number, kind = message.tag()
        if kind == VARINT:
            numbers[number] = message.varint()
        else:
            message.skip(kind)
    count, unit = _SIZE[field]
    operation = numbers.get(1, 0)
    return f"{layer}.{names.get(operation, operation)}", numbers.get(count, 0) * unit


def storage_operations(trace: Trace) -> dict[int, StorageOperation]:
    """Return what the nodes with a message ``Node.storage`` do, by row.

    Raises:
        TraceError: If a message is damaged; names the node.
    """
    table = trace.attributes
    row_A, node_A = trace.attribute_rows(STORAGE)
    is_message_A = table.wire_A[row_A] == Wire.BYTES
    row_A, node_A = row_A[is_message_A], node_A[is_message_A]
    found: dict[int, StorageOperation] = {}
    made: dict[int, StorageOperation] = {}
    for node, word in zip(node_A.tolist(), table.word_A[row_A].tolist(), strict=True):
        if word not in made:
            try:
                made[word] = StorageOperation.from_bytes(table.blobs[word])
            except TraceError as error:
                raise TraceError(
                    f"{trace.source}: node {trace.id_N[node]} has a 'storage' that is none "
                    f"({error}); copy or collect the trace again."
                ) from None
        found[node] = made[word]
    return found


def storage_bytes(trace: Trace) -> tuple[np.ndarray, np.ndarray]:
    """Return (bytes that each node moves from or to storage, int64; whether it says so).

    Raises:
        TraceError: As ``storage_operations``.
    """
    value_N = np.zeros(trace.num_nodes, dtype=np.int64)
    present_N = np.zeros(trace.num_nodes, dtype=bool)
    for row, operation in storage_operations(trace).items():
        value_N[row], present_N[row] = min(operation.num_bytes, 2**63 - 1), True
    return value_N, present_N


def note_storage(trace: Trace, notes: NoteCollector) -> None:
    """Note levels and operations that the schema does not have."""
    for row, operation in storage_operations(trace).items():
        if not operation.is_known:
            word = f"{operation.level} {operation.name}".strip()
            effect = "no operation on storage that is known; kept as it is"
            notes.add(NoteKind.OPERATOR, word, effect, where=f"node {trace.id_N[row]}")
