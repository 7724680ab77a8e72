"""JSON documents with a few values changed, for laws of readers."""

import copy
from typing import Any

from hypothesis import strategies as st

_ODD = st.sampled_from(
    [None, True, -1, 0, 2**31, 2**63, 2**64, 10**30, 0.5, float("inf"), float("nan"), 1e300, "",
     "x", "7", "\ud800", "Tensor(float)", "aten::mm", "## process_group:init ##",
     "c10d::allreduce_", "c10d::send", "gloo:x",
     [], [[]], {}, [1], [[1, 2]], {"a": 1}, ["x"], [None]]
)  # fmt: skip


def _paths(value: Any, path: tuple = ()) -> list[tuple]:
    """Return the path of every value in a document, itself excluded."""
    entries = value.items() if isinstance(value, dict) else enumerate(value)
    found = []
    for key, inner in entries:
        found.append((*path, key))
        if isinstance(inner, dict | list):
            found += _paths(inner, (*path, key))
    return found


@st.composite
def changed(draw: st.DrawFn, document: Any, times: int = 3) -> Any:
    """Return the document with up to ``times`` values replaced, removed, repeated or exchanged."""
    document = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, times))):
        paths = _paths(document)
        if not paths:
            break
        path = draw(st.sampled_from(paths))
        holder = document
        for key in path[:-1]:
            holder = holder[key]
        kind = draw(st.integers(0, 4))
        if kind == 0:
            del holder[path[-1]]
        elif kind == 1 and isinstance(holder, list):
            holder.insert(path[-1], copy.deepcopy(holder[path[-1]]))
        elif kind == 2 and isinstance(holder, list):
            holder.append(holder.pop(path[-1]))
        else:
            holder[path[-1]] = copy.deepcopy(draw(_ODD))
    return document
