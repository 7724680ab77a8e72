"""Ranks that run nearly the same program: every column that is equal is held once.

Ranks of one job mostly differ in a few columns only (group names, peers, durations), so a workload
of thousands of ranks takes little more memory than its differences.
"""

import hashlib
import re
from collections.abc import Hashable
from dataclasses import fields, replace
from typing import Any, TypeVar

import numpy as np

from layerdag.traces._trace import AttributeTable, Ragged, Trace, Wire
from layerdag.traces.chakra import decode_trace

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
        """Return the column that was seen first with this content."""
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
        if len(forms) < _MOST_FORMS:
            forms.append(_Form(data, trace))
        return trace


_MOST_FORMS = 64  # of one length; comparing with each takes time
_GROUP = re.compile(rb"\x0a\x07pg_name\xea\x01([\x01-\x0a])", re.DOTALL)  # string field 29: a text
_END = re.compile(rb"\x0a\x08comm_(?:dst|src)\x38([\x80-\xff]{0,3}[\x00-\x7f])", re.DOTALL)


class _Form:
    """One file with its trace, and where other files of its kind have other bytes.

    Args:
        data: The file.
        trace: What it holds.
    """

    def __init__(self, data: bytes, trace: Trace) -> None:
        self._trace, self._data_B = trace, np.frombuffer(data, dtype=np.uint8)
        row_C, row_E = _rows(trace, "pg_name"), _rows(trace, "comm_dst", "comm_src")
        groups = [(found.end(), found[1][0]) for found in _GROUP.finditer(data)]
        ends = [found.span(1) for found in _END.finditer(data)]
        table = trace.attributes
        text_C = table.word_A[row_C].astype(np.int64)
        if not (
            len(groups) == row_C.size
            and len(ends) == row_E.size
            and (table.wire_A[row_C] == Wire.STRING).all()
            and (table.wire_A[row_E] == Wire.INT32).all()
            and not np.isin(text_C, _other_texts(trace, row_C)).any()
        ):
            row_E, text_C, groups, ends = row_E[:0], text_C[:0], [], []  # equal files only
        at_C2 = np.array(groups, dtype=np.int64).reshape(-1, 2)
        self._texts = {
            int(text): _spans(at_C2[text_C == text, 0], int(at_C2[text_C == text, 1][0]))
            for text in np.unique(text_C)
        }
        span_E2 = np.array(ends, dtype=np.int64).reshape(-1, 2)
        bytes_E = span_E2[:, 1] - span_E2[:, 0]
        self._ends = [
            (row_E[bytes_E == width], _spans(span_E2[bytes_E == width, 0], int(width)))
            for width in np.unique(bytes_E)
        ]
        self._others = {t for i, t in enumerate(trace.strings) if i not in self._texts}
        positions = [
            at.reshape(-1) for at in (*self._texts.values(), *(at for _, at in self._ends))
        ]
        self._positions = np.concatenate([np.zeros(0, dtype=np.int64), *positions])
        self._made = {self._data_B[self._positions].tobytes(): trace}
        same = self._filled(self._data_B)
        if same is None or same.strings != trace.strings or _words(same) != _words(trace):
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


def _words(trace: Trace) -> bytes:
    return trace.attributes.word_A.tobytes()


def _spans(start: np.ndarray, width: int) -> np.ndarray:
    """Return the places of the bytes of spans of one width, int64 (N, width)."""
    return start[:, None] + np.arange(width)


def _rows(trace: Trace, *names: str) -> np.ndarray:
    """Return the attribute rows with one of these names."""
    known = [trace.strings.index(name) for name in names if name in trace.strings]
    return np.flatnonzero(np.isin(trace.attributes.name_A, known))


def _other_texts(trace: Trace, row_C: np.ndarray) -> np.ndarray:
    """Return the places of strings that something else than these attributes uses."""
    table = trace.attributes
    is_text_A = table.wire_A == Wire.STRING
    is_text_A[row_C] = False
    columns = (trace.name_N, trace.io_N6.reshape(-1), table.name_A, table.doc_A)
    return np.concatenate([*columns, table.word_A[is_text_A].astype(np.int64)])
