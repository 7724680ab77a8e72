"""From the graph of a job back to one execution trace per rank.

Messages and collectives are single nodes of the graph, so that what is unfolded here matches on
all ranks by construction. Where a sampled graph contradicts itself, ``job_plan`` repairs it by
fixed rules and counts the repairs, so that the manifest says how often the model was wrong.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise

import numpy as np

from layerdag.codec._attributed_graph import AttributedGraph
from layerdag.codec._fold import HOST, MESSAGE, NONE
from layerdag.codec._node_costs import NodeNumbers, node_numbers, with_time_at_start
from layerdag.codec._placement import COLLECTIVE, JobPlan, fitting_ranks, num_stages
from layerdag.codec._vocabulary import OTHER, RECEIVE
from layerdag.traces import Attribute, NodeType, Trace, Wire, Workload
from layerdag.traces.chakra import NodeSpec, build_trace

__all__ = [
    "Unfolded", "fitting_ranks", "needed_repairs", "num_stages", "unfold", "unfold_sampled"
]  # fmt: skip


@dataclass(frozen=True)
class Unfolded:
    """A workload made from a graph.

    Attributes:
        workload: One trace per rank; ranks with the same program share one ``Trace``.
        repairs: How often each repair was needed, by its name.
        completions: How often decoding wrote down what the graphs of real jobs leave out as well:
            the order in which several stages communicate, and a first node that ASTRA-sim takes.
    """

    workload: Workload
    repairs: Mapping[str, int] = field(default_factory=dict)
    completions: Mapping[str, int] = field(default_factory=dict)


def unfold(graph: AttributedGraph, num_ranks: int) -> Unfolded:
    """Return one trace per rank.

    Stages share the ranks as evenly as possible: stage s of S gets ranks ``[s * R // S,
    (s + 1) * R // S)``. Node ids count the topological order of the whole graph; a message around
    the ranks of one stage takes two, since a rank both sends and receives it.

    Args:
        graph: A job as ``jobs.job_graph`` makes it; any node order.
        num_ranks: R, at least the number of stages, and a multiple of it if there are messages.

    Raises:
        UsageError: If the job cannot run on so many ranks; see ``fitting_ranks``.
        DataError: If the graph lacks an attribute of a job, or a word is none of a job's.
        GraphError: If it has a cycle.
    """
    plan = JobPlan(graph, num_ranks)
    return _unfolded(plan, node_numbers(plan))


def unfold_sampled(graph: AttributedGraph, num_ranks: int) -> Unfolded:
    """Return one trace per rank of a sampled job; no rank starts with a node that takes no time.

    Otherwise like ``unfold``, which gives real jobs back as they were.

    Raises:
        UsageError, DataError, GraphError: As ``unfold`` does.
    """
    plan = JobPlan(graph, num_ranks)
    return _unfolded(plan, with_time_at_start(plan, node_numbers(plan)))


def needed_repairs(graph: AttributedGraph, num_ranks: int) -> dict[str, int]:
    """Return how often ``unfold_sampled`` would need each repair, without writing traces.

    Raises:
        UsageError, DataError, GraphError: As ``unfold`` does.
    """
    plan = JobPlan(graph, num_ranks)
    return _needed({**plan.repairs, "compute_without_cost": node_numbers(plan).filled})


def _unfolded(plan: JobPlan, numbers: NodeNumbers) -> Unfolded:
    """Write the traces of all ranks."""
    writer = _Writer(plan, numbers)
    traces: list[Trace] = []
    for stage in range(plan.num_stages):
        ranks = plan.ranks_of(stage)
        first = writer.trace(ranks.start)
        if plan.is_uniform(stage):
            traces.extend([first] * len(ranks))
        else:
            traces.append(first)
            others = _OtherRanks(first, writer)
            traces.extend(others.trace(rank) for rank in ranks[1:])
    groups = {name: ranks for ranks, name in writer.groups.items()}
    workload = Workload(tuple(traces), groups, plan.graph.name)
    repairs = {**plan.repairs, "compute_without_cost": numbers.filled}
    completions = {**plan.completions, "start_without_time": numbers.lifted}
    return Unfolded(workload, _needed(repairs), _needed(completions))


def _needed(counts: Mapping[str, int]) -> dict[str, int]:
    """Return the counts above 0, by name."""
    return {name: count for name, count in sorted(counts.items()) if count}


class _Writer:
    """Writes the trace of one rank after the other, and names the groups that they use."""

    def __init__(self, plan: JobPlan, numbers: NodeNumbers) -> None:
        self.plan = plan
        self._numbers = numbers
        self.first_rank = 0
        self._only_world = not plan.has_groups()
        rings_N = map(plan.is_ring, range(plan.graph.num_nodes))
        bounds = accumulate((1 + ring for ring in rings_N), initial=0)
        self._ids = [range(*pair) for pair in pairwise(bounds)]
        self.groups: dict[tuple[int, ...], str] = {}

    def trace(self, rank: int) -> Trace:
        """Return the trace of one rank: the nodes it takes part in, in topological order."""
        plan = self.plan
        self.first_rank = rank
        mine_N = plan.takes_part(plan.stage_of(rank))
        nodes = []
        for node in np.flatnonzero(mine_N).tolist():
            for number, end in zip(self._ids[node], self._ends(node, rank), strict=True):
                nodes.append(self._node(node, number, end, rank, mine_N))
        return build_trace(nodes, source=f"{plan.graph.name}.{rank}")

    def _ends(self, node: int, rank: int) -> tuple[NodeType, ...]:
        """Return the type of each node that the rank runs for a node of the graph."""
        plan = self.plan
        if plan.kind_N[node] != MESSAGE:
            return (NodeType[plan.kind_N[node]],)
        if plan.is_ring(node):
            return NodeType.COMM_SEND, NodeType.COMM_RECV
        sends = plan.stage_N[node] == plan.stage_of(rank)
        return (NodeType.COMM_SEND if sends else NodeType.COMM_RECV,)

    def _node(
        self, node: int, number: int, kind: NodeType, rank: int, mine_N: list[bool]
    ) -> NodeSpec:
        """Return one node of a trace; the receiving end of a message has its own operator."""
        return NodeSpec(
            id=number,
            name=RECEIVE if kind == NodeType.COMM_RECV else self.plan.name_N[node],
            type=kind,
            data_deps=self._parents(node, mine_N, control=False),
            ctrl_deps=self._parents(node, mine_N, control=True),
            duration_us=round(int(self._numbers.duration_N[node]) / 1000),
            attributes=tuple(self._attributes(node, kind, rank)),
        )

    def _parents(self, node: int, mine_N: list[bool], *, control: bool) -> tuple[int, ...]:
        """Return the ids of the parents of one kind that the rank runs."""
        found = self.plan.parents[node]
        return tuple(
            number
            for parent, kind in found
            if mine_N[parent] and (kind == "control") == control
            for number in self._ids[parent]
        )

    def _attributes(self, node: int, kind: NodeType, rank: int) -> Iterator[Attribute]:
        """Yield the attributes that consumers of Chakra traces rely on, with their wire types."""
        communicates = kind >= NodeType.COMM_SEND
        device = self.plan.column("device")[node]
        yield Attribute("is_cpu_op", Wire.BOOL, device == HOST and not communicates)
        if device not in (NONE, OTHER):
            yield Attribute("device", Wire.STRING, "cpu" if device == HOST else device)
        dtype = self.plan.column("dtype")[node]
        if dtype not in (NONE, OTHER):
            yield Attribute("dtype", Wire.STRING, dtype)
        numbers = self._numbers
        for attribute, wire, value_N in (
            ("duration_ns", Wire.INT64, numbers.duration_N),
            ("num_ops", Wire.INT64, numbers.flops_N),
            ("tensor_size", Wire.UINT64, numbers.bytes_N),
        ):
            if value_N[node]:
                yield Attribute(attribute, wire, int(value_N[node]))
        if communicates:
            yield Attribute("comm_size", Wire.INT64, int(numbers.comm_bytes_N[node]))
        if kind in (NodeType.COMM_SEND, NodeType.COMM_RECV):
            yield from _ends_of(*self._message_end(node, kind, rank), node)
        elif kind == NodeType.COMM_COLL:
            collective = self.plan.collective_N[node]
            assert collective is not None, "the plan places every collective"
            yield Attribute("comm_type", Wire.INT64, int(collective))
            yield Attribute("pg_name", Wire.STRING, self.group_name(self.plan.group(node, rank)))

    def message_ends(self, node: int, rank: int) -> Iterator[tuple[int, int]]:
        """Yield source and target of each node that a rank runs for a message."""
        for kind in self._ends(node, rank):
            yield self._message_end(node, kind, rank)

    def _message_end(self, node: int, kind: NodeType, rank: int) -> tuple[int, int]:
        if kind == NodeType.COMM_SEND:
            return rank, self.plan.target(node, rank)
        return self.plan.source(node, rank), rank

    def group_name(self, ranks: tuple[int, ...]) -> str:
        """Return the integer name of a group; "0" is the world where there is no other.

        ASTRA-sim numbers the collectives of "0" by rank, those of other groups included, so that
        ranks with unequal numbers of these would never meet: beside groups the world is one too.
        """
        if self._only_world and len(ranks) == self.plan.num_ranks:
            return "0"
        return self.groups.setdefault(ranks, str(len(self.groups) + 1))


class _OtherRanks:
    """Makes the traces of a stage's other ranks: that of the first with other groups and peers.

    Args:
        first: Trace of the first rank.
        writer: What wrote it.
    """

    def __init__(self, first: Trace, writer: _Writer) -> None:
        self._first, self._writer = first, writer
        plan, table = writer.plan, first.attributes
        stage = plan.stage_of(writer.first_rank)
        mine = np.flatnonzero(plan.takes_part(stage)).tolist()
        self._collectives = [node for node in mine if plan.kind_N[node] == COLLECTIVE]
        self._messages = [node for node in mine if plan.kind_N[node] == MESSAGE]
        self._group_row_C = self._rows("pg_name")
        self._end_row_M2 = np.sort(np.concatenate([self._rows("comm_src"), self._rows("comm_dst")]))
        kinds = [plan.group_kind(node) for node in self._collectives]
        place = {kind: at for at, kind in enumerate(dict.fromkeys(kinds))}
        self._one_of_kind = dict(zip(reversed(kinds), reversed(self._collectives), strict=True))
        self._kinds = [*place]
        self._word_A = table.word_A.copy()
        self._word_A[self._group_row_C] = [len(first.strings) + place[kind] for kind in kinds]

    def _rows(self, name: str) -> np.ndarray:
        """Return the rows of an attribute, in order of nodes."""
        strings, table = self._first.strings, self._first.attributes
        if name not in strings:
            return np.zeros(0, dtype=np.int64)
        return np.flatnonzero(table.name_A == strings.index(name))

    def trace(self, rank: int) -> Trace:
        """Return the trace of a rank."""
        plan, writer, word_A = self._writer.plan, self._writer, self._word_A
        names = [writer.group_name(plan.group(self._one_of_kind[k], rank)) for k in self._kinds]
        if self._messages:
            word_A = word_A.copy()
            ends = [end for node in self._messages for end in writer.message_ends(node, rank)]
            word_A[self._end_row_M2] = np.array(ends, dtype=np.uint64).reshape(-1)
        return replace(
            self._first,
            strings=(*self._first.strings, *names),
            attributes=replace(self._first.attributes, word_A=word_A),
            source=f"{plan.graph.name}.{rank}",
        )


def _ends_of(source: int, target: int, tag: int) -> Iterator[Attribute]:
    """Yield the ends of a message; nodes of the graph serve as tags, so no two messages meet."""
    for name, value in (("comm_src", source), ("comm_dst", target), ("comm_tag", tag)):
        yield Attribute(name, Wire.INT32, value)
