"""Which nodes of a job's classes of ranks are one node of its graph: matched communication.

The k-th send from one class to another with a tag meets the k-th receive there, and the k-th
collective that a class issues in a group meets the k-th one of the other classes in it, in the
order in which ranks issue (``layerdag.traces.analysis``).
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from layerdag.codec._groups import JobGroups
from layerdag.errors import TraceError
from layerdag.traces import NodeType, Trace
from layerdag.traces.analysis import group_names, program_order

Node = tuple[int, int]
"""(class, row in its trace)."""


@dataclass(frozen=True)
class Merge:
    """Nodes that are one.

    Attributes:
        kept: The node that stays: the send, or the collective of the first class.
        others: The nodes that go.
        joint: Whether every class of the job takes part.
    """

    kept: Node
    others: tuple[Node, ...]
    joint: bool


def matched_nodes(name: str, traces: Sequence[Trace], groups: JobGroups) -> Iterator[Merge]:
    """Yield every message, and every collective that several classes share.

    Args:
        name: Of the job, for messages.
        traces: One for each class of ranks.
        groups: Of the job.

    Raises:
        TraceError: If a partner is missing, or a collective joins three classes or more but not
            all, which the graph of a job cannot express.
    """
    sends: dict[tuple[int, int, int], list[Node]] = defaultdict(list)
    receives: dict[tuple[int, int, int], list[Node]] = defaultdict(list)
    shared: dict[str, dict[int, list[Node]]] = defaultdict(lambda: defaultdict(list))
    for stage, trace in enumerate(traces):
        target_N, _ = trace.integers("comm_dst")
        source_N, _ = trace.integers("comm_src")
        tag_N, _ = trace.integers("comm_tag")
        group_N, _ = group_names(trace)
        for row in program_order(trace).tolist():
            kind, tag, node = int(trace.type_N[row]), int(tag_N[row]), (stage, row)
            if kind == NodeType.COMM_SEND:
                sends[stage, groups.stage_of(int(target_N[row])), tag].append(node)
            elif kind == NodeType.COMM_RECV:
                receives[groups.stage_of(int(source_N[row])), stage, tag].append(node)
            elif kind == NodeType.COMM_COLL and len(groups.classes_of(group_N[row])) > 1:
                shared[group_N[row]][stage].append(node)
    yield from _messages(name, sends, receives)
    for group, lists in shared.items():
        yield from _collectives(name, group, lists, groups)


def _messages(
    name: str,
    sends: dict[tuple[int, int, int], list[Node]],
    receives: dict[tuple[int, int, int], list[Node]],
) -> Iterator[Merge]:
    """Pair the sends and receives of each (sender, receiver, tag)."""
    for key in sorted(sends.keys() | receives.keys()):
        if len(sends[key]) != len(receives[key]):
            raise TraceError(
                f"{name}: {len(sends[key])} sends from rank class {key[0]} to {key[1]} with tag "
                f"{key[2]} meet {len(receives[key])} receives; the ranks are not of one job."
            )
        for send, receive in zip(sends[key], receives[key], strict=True):
            yield Merge(send, (receive,), joint=False)


def _collectives(
    name: str, group: str, lists: dict[int, list[Node]], groups: JobGroups
) -> Iterator[Merge]:
    """Join the collectives that the classes issue in one group."""
    wanted = groups.classes_of(group)
    joint = len(wanted) == groups.num_classes
    if not joint and len(wanted) > 2:
        raise TraceError(
            f"{name}: group '{group}' joins {len(wanted)} of {groups.num_classes} classes of "
            "ranks; a graph of a job holds collectives of one, two or all classes."
        )
    counts = {stage: len(lists.get(stage, [])) for stage in wanted}
    if len(set(counts.values())) > 1:
        found = ", ".join(f"{count} in class {stage}" for stage, count in counts.items())
        raise TraceError(
            f"{name}: the ranks of group '{group or 0}' issue different numbers of collectives "
            f"({found}); some trace is cut."
        )
    for first, *rest in zip(*(lists[stage] for stage in wanted), strict=True):
        yield Merge(first, tuple(rest), joint)
