"""Ranks that run nearly the same program: every column that is equal is held once.

Ranks of one job mostly differ in a few columns only (group names, peers, durations), so a workload
of thousands of ranks takes little more memory than its differences.
"""

import hashlib
from collections.abc import Hashable
from dataclasses import fields
from typing import Any, TypeVar

import numpy as np

from layerdag.traces._trace import AttributeTable, Ragged, Trace

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
