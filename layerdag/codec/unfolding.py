"""From the graph of a job back to one execution trace per rank.

Messages and collectives are single nodes of the graph, so that what is unfolded here matches on
all ranks by construction. Where a sampled graph contradicts itself, ``JobPlan`` repairs it by
fixed rules and counts the repairs, so that the manifest says how often the model was wrong.

The roofline of a simulator needs FLOPs and bytes of every operator. A sampled graph can lack them,
and communication that became work for want of a partner never had any. What is missing is filled
in from what the node does state, in this order:

1. Communication of a single rank is a copy: it reads and writes its own size.
2. An operator that states FLOPs only is timed by them: it moves one element.
3. An operator that states neither moves what the others of the job, by their median, move in its
   duration; one element where durations are missing, too.
4. An operator that states bytes only does one operation for each element it writes, having read
   as many (`layerdag.traces.pytorch` counts element-wise operators like that).

A job in which no node states any cost gets none: it was learned from traces that have only times.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise

import numpy as np

from layerdag.codec.folding import HOST, MESSAGE, NONE
from layerdag.codec.placement import COLLECTIVE, COMPUTE, JobPlan
from layerdag.codec.vocabulary import OTHER, RECEIVE
from layerdag.graph.attributed_graph import AttributedGraph
from layerdag.traces.builder import NodeSpec, build_trace
from layerdag.traces.chakra.files import START_BYTES, START_OPS
from layerdag.traces.trace import Attribute, NodeType, Trace, Wire, Workload

ELEMENT_BYTES = 4
MIN_BYTES = 1
# Of bytes, of operations, and of ns: the simulator runs no node longer than 11 days.
_MAX_ENTRIES = 10**15
_MEMORY = ("MEM_LOAD", "MEM_STORE")


@dataclass(frozen=True, eq=False)
class NodeNumbers:
    """The numeric attributes of all nodes of a job, int64 (N,), 0 for absent.

    Durations are in ns. ``filled`` is the number of compute nodes whose FLOPs or bytes were filled
    in, ``lifted`` that of nodes that were made larger by ``with_time_at_start``.
    """

    duration_N: np.ndarray
    flops_N: np.ndarray
    bytes_N: np.ndarray
    comm_bytes_N: np.ndarray
    filled: int = 0
    lifted: int = 0


def node_numbers(plan: JobPlan) -> NodeNumbers:
    """Return the numbers of a job's nodes; what consumers need and the graph lacks is filled in."""
    found = NodeNumbers(
        duration_N=_whole(plan, "duration"),
        flops_N=_whole(plan, "flops"),
        bytes_N=_whole(plan, "bytes"),
        comm_bytes_N=_whole(plan, "comm_bytes"),
    )
    computes_N = np.array([kind == COMPUTE for kind in plan.kind_N])
    memory_N = np.array([kind in _MEMORY for kind in plan.kind_N])
    bytes_N = np.where(memory_N, np.maximum(found.bytes_N, MIN_BYTES), found.bytes_N)
    comm_bytes_N = np.where(
        computes_N | memory_N, found.comm_bytes_N, np.maximum(found.comm_bytes_N, MIN_BYTES)
    )
    found = replace(found, bytes_N=bytes_N, comm_bytes_N=comm_bytes_N)
    # What became compute by a repair is counted as that repair alone.
    meant_N = np.array([word == COMPUTE for word in plan.graph.categories["type"]])
    return _with_costs(found, computes_N, meant_N)


def _whole(plan: JobPlan, name: str) -> np.ndarray:
    values = plan.graph.numbers.get(name)
    if values is None:
        return np.zeros(plan.graph.num_nodes, dtype=np.int64)
    known_N = np.nan_to_num(values, nan=0.0, posinf=_MAX_ENTRIES, neginf=0.0)
    return np.rint(np.clip(known_N, 0, _MAX_ENTRIES)).astype(np.int64)


def _with_costs(numbers: NodeNumbers, computes_N: np.ndarray, counted_N: np.ndarray) -> NodeNumbers:
    """Fill in FLOPs and bytes of the compute nodes; the rules stand at the top of the module."""
    flops_N, bytes_N = numbers.flops_N, numbers.bytes_N
    # Compute nodes have a size of communication only if they were communication.
    bytes_N = np.where(computes_N & (bytes_N == 0), 2 * numbers.comm_bytes_N, bytes_N)
    if not ((flops_N > 0) | (bytes_N > 0))[computes_N].any():
        return numbers
    bare_N = computes_N & (bytes_N == 0)
    moved_N = np.where(flops_N > 0, 0, _moved_in_time(numbers.duration_N, bytes_N, computes_N))
    bytes_N = np.where(bare_N, np.maximum(moved_N, ELEMENT_BYTES), bytes_N)
    idle_N = computes_N & (flops_N == 0)
    flops_N = np.where(idle_N, np.maximum(bytes_N // (2 * ELEMENT_BYTES), 1), flops_N)
    filled_N = counted_N & ((numbers.bytes_N == 0) | (numbers.flops_N == 0))
    return replace(numbers, flops_N=flops_N, bytes_N=bytes_N, filled=int(filled_N.sum()))


def _moved_in_time(
    duration_N: np.ndarray, bytes_N: np.ndarray, computes_N: np.ndarray
) -> np.ndarray:
    """Return what nodes of these durations move at the median rate of the compute nodes, int64."""
    told_N = computes_N & (duration_N > 0) & (bytes_N > 0)
    if not told_N.any():
        return np.zeros_like(bytes_N)
    rate = float(np.median(bytes_N[told_N] / duration_N[told_N]))
    return np.rint(np.minimum(rate * duration_N, _MAX_ENTRIES)).astype(np.int64)


def with_time_at_start(plan: JobPlan, numbers: NodeNumbers) -> NodeNumbers:
    """Let what ranks start with last at least 1 ns.

    ASTRA-sim aborts where a node takes 0 ns at tick 0, and rounds times down: an operator on a few
    hundred bytes takes none. So the first operator of each rank's device, and a message or memory
    access that is its first communication, get a size that no device of today moves in less than
    1 ns (``START_BYTES``), unless the operator's FLOPs take as long.
    """
    opens_N = _opens_a_slot(plan)
    messages_N = np.array([kind == MESSAGE for kind in plan.kind_N])
    computes_N = np.array([kind == COMPUTE for kind in plan.kind_N])
    short_N = opens_N & ~messages_N & (numbers.bytes_N > 0) & (numbers.bytes_N < START_BYTES)
    short_N &= ~computes_N | (numbers.flops_N < START_OPS)
    small_N = opens_N & messages_N & (numbers.comm_bytes_N < START_BYTES)
    return replace(
        numbers,
        bytes_N=np.where(short_N, START_BYTES, numbers.bytes_N),
        comm_bytes_N=np.where(small_N, START_BYTES, numbers.comm_bytes_N),
        lifted=int((short_N | small_N).sum()),
    )


def _opens_a_slot(plan: JobPlan) -> np.ndarray:
    """Return which nodes start at tick 0 on the device or communication slot of a rank, bool (N,).

    Ready nodes start by ascending id, so these are the first of those that wait for nothing.
    Collectives are left out: they begin with a delay of their own.
    """
    opens_N = np.zeros(plan.graph.num_nodes, dtype=bool)
    device_N = plan.column("device")
    for stage in range(plan.num_stages):
        mine_N = plan.takes_part(stage)
        holds_N = plan.holds_slot(stage)
        free = [
            node
            for node in np.flatnonzero(mine_N).tolist()
            if not any(mine_N[parent] for parent, _ in plan.parents[node])
        ]
        works = (n for n in free if plan.kind_N[n] == COMPUTE and device_N[n] != HOST)
        holds = (n for n in free if holds_N[n])
        for first in (next(works, None), next(holds, None)):
            if first is not None and plan.kind_N[first] != COLLECTIVE:
                opens_N[first] = True
    return opens_N


_WORDS = {
    "collective_of_one_rank": "collective with one rank in its group, made compute of equal time",
    "collective_that_is_not_simulated": "collective that ASTRA-sim refuses, substituted",
    "collective_without_group": "collective without a group, given its stage's ranks",
    "communication_named_as_compute": "communication under the name of a computation, renamed",
    "communication_order_added": "dependency added, so that all ranks communicate in one order",
    "compute_named_as_communication": "computation under the name of a communication, renamed",
    "compute_without_cost": "computation without FLOPs or bytes, given those of what it does state",
    "message_of_one_rank": "message in a job of one rank, made compute of equal time",
    "message_without_receiver": "message without a receiver, sent to the next stage",
    "message_without_sender": "message without a sender, sent by stage 0",
    "ranks_raised": "rank added, because the stages need more than were requested",
    "start_without_time": "first node of a rank too small to take 1 ns, enlarged",
    "world_collective_of_one_stage": "collective of all ranks in one stage only, run by that stage",
}


def repair_in_words(name: str) -> str:
    """Return what a repair did, in words; a name without any is returned with spaces."""
    return _WORDS.get(name, name.replace("_", " "))


@dataclass(frozen=True)
class Unfolded:
    """A workload made from a graph; ranks with the same program share one ``Trace``.

    ``repairs`` counts each repair. ``completions`` counts what the graphs of real jobs leave out,
    too: the order in which several stages communicate, and a first node that ASTRA-sim takes.
    """

    workload: Workload
    repairs: Mapping[str, int] = field(default_factory=dict)
    completions: Mapping[str, int] = field(default_factory=dict)


def unfold(graph: AttributedGraph, num_ranks: int) -> Unfolded:
    """Return one trace per rank of a job's graph.

    Stages share the ranks as evenly as possible: stage s of S gets ranks ``[s * R // S,
    (s + 1) * R // S)``. Node ids count the topological order of the whole graph; a message around
    the ranks of one stage takes two, since a rank both sends and receives it.

    Raises:
        UsageError: If the job cannot run on so many ranks; see ``fitting_ranks``.
        DataError: If the graph lacks an attribute of a job, or a word is none of a job's.
        GraphError: If it has a cycle.
    """
    plan = JobPlan(graph, num_ranks)
    return _unfolded(plan, node_numbers(plan))


def unfold_sampled(graph: AttributedGraph, num_ranks: int) -> Unfolded:
    """Return one trace per rank of a sampled job; no rank starts with a node that takes no time.

    Otherwise like ``unfold``, which gives real jobs back as they were. Raises UsageError,
    DataError, GraphError as ``unfold`` does.
    """
    plan = JobPlan(graph, num_ranks)
    return _unfolded(plan, with_time_at_start(plan, node_numbers(plan)))


def needed_repairs(graph: AttributedGraph, num_ranks: int) -> dict[str, int]:
    """Return how often ``unfold_sampled`` would need each repair, without writing traces.

    Raises UsageError, DataError, GraphError as ``unfold`` does.
    """
    plan = JobPlan(graph, num_ranks)
    return _needed({**plan.repairs, "compute_without_cost": node_numbers(plan).filled})


def _unfolded(plan: JobPlan, numbers: NodeNumbers) -> Unfolded:
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
    return {name: count for name, count in sorted(counts.items()) if count}


class _Writer:
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
        found = self.plan.parents[node]
        return tuple(
            number
            for parent, kind in found
            if mine_N[parent] and (kind == "control") == control
            for number in self._ids[parent]
        )

    def _attributes(self, node: int, kind: NodeType, rank: int) -> Iterator[Attribute]:
        communicates = NodeType.COMM_SEND <= kind <= NodeType.COMM_COLL
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
            source, target = self._message_end(node, kind, rank)
            # Nodes of the graph serve as tags, so no two messages meet.
            for name, value in (("comm_src", source), ("comm_dst", target), ("comm_tag", node)):
                yield Attribute(name, Wire.INT32, value)
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
    """Makes the traces of a stage's other ranks: that of the first with other groups and peers."""

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
        strings, table = self._first.strings, self._first.attributes
        if name not in strings:
            return np.zeros(0, dtype=np.int64)
        return np.flatnonzero(table.name_A == strings.index(name))

    def trace(self, rank: int) -> Trace:
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
