"""The fixes of communication: senders, tags, empty messages, groups of one rank, group names."""

from collections.abc import Iterable, Mapping

import numpy as np

from layerdag.evaluation.fixes._attributes import with_text, with_word
from layerdag.evaluation.fixes._fix import TraceFix
from layerdag.evaluation.fixes._trace import take_out
from layerdag.evaluation.rules import column, group_texts
from layerdag.traces import CollectiveType, NodeType, Trace, Wire
from layerdag.traces.analysis import WORLD_NAMES

MAX_TAG = 2**31 - 1
_OWN_END = {NodeType.COMM_SEND: "comm_src", NodeType.COMM_RECV: "comm_dst"}


def name_own_rank(trace: Trace, rank: int) -> TraceFix | None:
    """Let sends come from, and receives go to, the rank whose trace they stand in."""
    done_N = np.zeros(trace.num_nodes, dtype=bool)
    for kind, name in _OWN_END.items():
        held = column(trace, name)
        wrong_N = (trace.type_N == kind) & held.integer_N & (held.value_N >= 0)
        rows = np.flatnonzero(wrong_N & (held.value_N != rank)).tolist()
        if rows:
            done_N[rows] = True
            trace = with_word(trace, name, Wire.INT32, dict.fromkeys(rows, rank))
    if not done_N.any():
        return None
    return TraceFix(trace, done_N, "its own end is the rank of the trace")


def tag_map(traces: Iterable[Trace]) -> dict[int, int]:
    """Return a free tag from 0 to 2^31 - 1 for each tag outside, the same one on all ranks."""
    used: set[int] = set()
    for trace in traces:
        held = column(trace, "comm_tag")
        used.update(held.value_N[_messages(trace) & held.integer_N].tolist())
    wrong = sorted(tag for tag in used if not 0 <= tag <= MAX_TAG)
    free = (tag for tag in range(MAX_TAG + 1) if tag not in used)
    return dict(zip(wrong, free, strict=False))


def renumber_tags(trace: Trace, tag_of: Mapping[int, int]) -> TraceFix | None:
    """Give messages the tags of ``tag_map``."""
    held = column(trace, "comm_tag")
    wrong_N = _messages(trace) & held.integer_N & np.isin(held.value_N, list(tag_of))
    if not wrong_N.any():
        return None
    word_of = {row: tag_of[int(held.value_N[row])] for row in np.flatnonzero(wrong_N).tolist()}
    after = with_word(trace, "comm_tag", Wire.INT32, word_of)
    return TraceFix(after, wrong_N, "has a tag that fits, the same at both ends")


def _messages(trace: Trace) -> np.ndarray:
    return (trace.type_N == NodeType.COMM_SEND) | (trace.type_N == NodeType.COMM_RECV)


def take_out_empty(trace: Trace) -> TraceFix | None:
    """Take messages and all-gathers of 0 bytes out: they move nothing."""
    size, kind = column(trace, "comm_size"), column(trace, "comm_type")
    gather_N = (trace.type_N == NodeType.COMM_COLL) & (kind.value_N == CollectiveType.ALL_GATHER)
    moves_N = _messages(trace) | (gather_N & kind.integer_N)
    empty_N = moves_N & size.integer_N & (size.value_N == 0)
    return take_out(trace, empty_N, "communication of 0 bytes is taken out")


def take_out_alone(trace: Trace, alone: frozenset[str]) -> TraceFix | None:
    """Take collectives of groups of one rank out: nobody takes part but that rank.

    Args:
        trace: The trace.
        alone: Names of the groups of one rank.
    """
    if not alone or "pg_name" not in trace.strings:
        return None
    named_N = np.array([name in alone for name in group_texts(trace)], dtype=bool)
    alone_N = named_N & (trace.type_N == NodeType.COMM_COLL)
    return take_out(trace, alone_N, "collectives of one rank are taken out")


def rename_groups(trace: Trace, name_of: Mapping[str, str]) -> TraceFix | None:
    """Give nodes the new names of their groups, and write names that are numbers as text."""
    if "pg_name" not in trace.strings:
        return None
    held = column(trace, "pg_name")
    text_of = {
        row: name_of.get(name, name)
        for row, name in enumerate(group_texts(trace))
        if name in name_of or held.integer_N[row]
    }
    if not text_of:
        return None
    done_N = np.zeros(trace.num_nodes, dtype=bool)
    done_N[list(text_of)] = True
    return TraceFix(
        with_text(trace, "pg_name", text_of), done_N, "its group has an integer as its name"
    )


def name_the_world(trace: Trace, name: str) -> TraceFix | None:
    """Let collectives of all ranks name the group of all ranks.

    Args:
        trace: The trace.
        name: Of that group.
    """
    texts = group_texts(trace)
    rows = np.flatnonzero(trace.type_N == NodeType.COMM_COLL).tolist()
    text_of = {row: name for row in rows if texts[row] in WORLD_NAMES}
    if not text_of:
        return None
    done_N = np.zeros(trace.num_nodes, dtype=bool)
    done_N[list(text_of)] = True
    done = f"names group {name}, that of all ranks"
    return TraceFix(with_text(trace, "pg_name", text_of), done_N, done)
