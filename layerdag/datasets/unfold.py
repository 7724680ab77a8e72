"""From the graph of a job back to one execution trace a rank.

Messages and collectives are single nodes of the graph, so that what is unfolded here matches on all
ranks by construction. A sampled graph can still contradict itself in small ways (a message from a
stage to itself in a job of one rank); such nodes are mended by fixed rules, and every repair is
counted, so that a reader of the manifest knows how often the model was wrong.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from layerdag.datasets.jobs import ALL, MESSAGE, NONE
from layerdag.datasets.raw import RawGraph
from layerdag.errors import DataError, UsageError
from layerdag.graph.layering import longest_path_layers
from layerdag.traces.build import NodeSpec, build_trace
from layerdag.traces.trace import Attribute, CollectiveType, NodeType, Trace, Wire, Workload

MIN_MESSAGE_BYTES = 1


@dataclass(frozen=True)
class Unfolded:
    """A workload made from a graph.

    Attributes:
        workload: One trace a rank; ranks with the same program share one ``Trace``.
        repairs: How often each repair was needed, by its name.
    """

    workload: Workload
    repairs: Mapping[str, int] = field(default_factory=dict)


def unfold(graph: RawGraph, num_ranks: int) -> Unfolded:
    """Return one trace a rank.

    Stages share the ranks evenly: stage s of S gets ranks ``[s * R / S, (s + 1) * R / S)``.

    Args:
        graph: A job as ``jobs.job_graph`` makes it; any node order.
        num_ranks: R, a multiple of the number of stages of the graph (``num_stages``).

    Raises:
        UsageError: If the ranks cannot be shared evenly among the stages.
        DataError: If the graph lacks an attribute of a job.
        GraphError: If it has a cycle.
    """
    if missing := {"op", "type", "stage"} - set(graph.categories):
        raise DataError(
            f"{graph.name}: attribute '{min(missing)}' is missing; only a graph of kind 'trace' "
            "can be written as execution traces."
        )
    plan = _Plan.make(graph, num_ranks)
    shared: dict[int, Trace] = {}
    traces = []
    for rank in range(num_ranks):
        stage = plan.stage_of_rank[rank]
        if stage not in plan.uniform_stages:
            traces.append(plan.trace(rank))
        else:
            if stage not in shared:
                shared[stage] = plan.trace(rank)
            traces.append(shared[stage])
    workload = Workload(tuple(traces), plan.group_ranks(), graph.name)
    return Unfolded(workload, dict(sorted(plan.repairs.items())))


def num_stages(graph: RawGraph) -> int:
    """Return the number of stages (classes of ranks) of a job's graph, at least 1."""
    return max(1, len({word for word in graph.categories["stage"] if word.isdigit()}))


class _Plan:
    """The decisions that all ranks share: who runs what, with whom, in which order."""

    def __init__(self, graph: RawGraph, num_ranks: int, repairs: Counter[str]) -> None:
        self.graph, self.num_ranks, self.repairs = graph, num_ranks, repairs
        self.kind_N = list(graph.categories["type"])
        stages = sorted({word for word in graph.categories["stage"] if word.isdigit()}, key=int)
        self.stages = stages or ["0"]
        if num_ranks < 1 or num_ranks % len(self.stages):
            raise UsageError(
                f"{graph.name}: the job has {len(self.stages)} stages and cannot run on "
                f"{num_ranks} ranks; ask for a multiple of {len(self.stages)}."
            )
        self.ranks_of_stage = np.array_split(np.arange(num_ranks), len(self.stages))
        self.stage_of_rank = np.repeat(
            np.arange(len(self.stages)), [len(part) for part in self.ranks_of_stage]
        ).tolist()
        self.stage_N = [self._stage(word) for word in graph.categories["stage"]]
        self.peer_N = self._peers()
        self.groups: dict[tuple[int, ...], str] = {}
        self.group_N = [self._group(node) for node in range(graph.num_nodes)]
        self.uniform_stages = self._uniform_stages()

    @classmethod
    def make(cls, graph: RawGraph, num_ranks: int) -> "_Plan":
        """Return the plan of a graph, its nodes renumbered in topological order."""
        layer_N = longest_path_layers(graph.num_nodes, graph.edge_index_2E)
        order_N = np.argsort(layer_N, kind="stable")
        rank_N = np.empty_like(order_N)
        rank_N[order_N] = np.arange(len(order_N))
        ordered = RawGraph(
            name=graph.name,
            categories={k: [words[i] for i in order_N] for k, words in graph.categories.items()},
            numbers={k: values[order_N] for k, values in graph.numbers.items()},
            units=graph.units,
            edge_index_2E=rank_N[graph.edge_index_2E],
            edge_type_E=graph.edge_type_E,
            edge_type_names=graph.edge_type_names,
            conditions=graph.conditions,
        )
        return cls(ordered, num_ranks, Counter())

    def _stage(self, word: str) -> int | None:
        """Return the stage number of a node, None for one that all stages share."""
        return None if word == ALL or word not in self.stages else self.stages.index(word)

    def _words(self, name: str, default: str = NONE) -> list[str]:
        return self.graph.categories.get(name, [default] * self.graph.num_nodes)

    def _peers(self) -> list[int | None]:
        """Return the receiving stage of each message; mend those that have no partner."""
        peers: list[int | None] = [None] * self.graph.num_nodes
        for node, (kind, word) in enumerate(zip(self.kind_N, self._words("peer"), strict=True)):
            if kind != MESSAGE:
                continue
            source, target = self.stage_N[node], self._stage(word)
            if len(self.stages) == 1:
                # Without a second stage there is nobody to send to: the work stays, as compute.
                self.kind_N[node] = NodeType.COMP.name
                self.repairs["message_in_a_job_of_one_stage"] += 1
                continue
            if source is None:
                source = self.stage_N[node] = 0
                self.repairs["message_without_sender"] += 1
            if target is None or target == source:
                target = (source + 1) % len(self.stages)
                self.repairs["message_without_receiver"] += 1
            peers[node] = target
        return peers

    def _group(self, node: int) -> str:
        """Return the group role of a collective, "" for any other node."""
        if self.kind_N[node] != NodeType.COMM_COLL.name:
            return ""
        role = self._words("group")[node]
        if self.stage_N[node] is None or role == "world":
            if self.stage_N[node] is not None and len(self.stages) > 1:
                # Only one stage issues it, so only that stage can take part.
                self.repairs["world_collective_of_one_stage"] += 1
                return "stage"
            return "world"
        if role.startswith(("contiguous", "strided")):
            return role
        if role != "stage":
            self.repairs["collective_without_group"] += 1
        return "stage" if len(self.stages) > 1 else "world"

    def _uniform_stages(self) -> set[int]:
        """Return the stages all of whose ranks run the same trace, byte for byte."""
        varied = {
            stage
            for node in range(self.graph.num_nodes)
            if self.peer_N[node] is not None or self.group_N[node].startswith(("contig", "strid"))
            for stage in (self.stage_N[node], self.peer_N[node])
            if stage is not None
        }
        return set(range(len(self.stages))) - varied

    def members(self, role: str, rank: int) -> tuple[int, ...]:
        """Return the ranks that share a group of shape ``role`` with ``rank``."""
        if role == "world":
            return tuple(range(self.num_ranks))
        stage = self.ranks_of_stage[self.stage_of_rank[rank]].tolist()
        if role == "stage":
            return tuple(stage)
        shape = role.rstrip("0123456789")
        wanted = int(role[len(shape) :] or 2)
        size = max(d for d in range(1, min(wanted, len(stage)) + 1) if len(stage) % d == 0)
        place, count = stage.index(rank), len(stage) // size
        if shape == "contiguous":
            return tuple(stage[place // size * size : (place // size + 1) * size])
        return tuple(stage[place % count :: count])

    def group_name(self, role: str, rank: int) -> str:
        """Return the integer name of the group; "0" is the world."""
        ranks = self.members(role, rank)
        if ranks == tuple(range(self.num_ranks)):
            return "0"
        return self.groups.setdefault(ranks, str(len(self.groups) + 1))

    def group_ranks(self) -> dict[str, tuple[int, ...]]:
        """Return the ranks of each group that is used."""
        return {name: ranks for ranks, name in self.groups.items()}

    def trace(self, rank: int) -> Trace:
        """Return the trace of one rank: the nodes it takes part in, in topological order."""
        stage = self.stage_of_rank[rank]
        mine_N = [
            own is None or own == stage or peer == stage
            for own, peer in zip(self.stage_N, self.peer_N, strict=True)
        ]
        data, control = self._dependencies(mine_N)
        nodes = [
            NodeSpec(
                id=node,
                name=self._name(node, stage),
                type=self._type(node, stage),
                data_deps=tuple(data.get(node, ())),
                ctrl_deps=tuple(control.get(node, ())),
                duration_us=round(self._number("duration", node) / 1000),
                attributes=self._attributes(node, rank),
            )
            for node in range(self.graph.num_nodes)
            if mine_N[node]
        ]
        return build_trace(nodes, source=f"{self.graph.name}.{rank}")

    def _dependencies(
        self, mine_N: list[bool]
    ) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
        """Return data and control dependencies of the nodes of one rank."""
        data: dict[int, list[int]] = {}
        control: dict[int, list[int]] = {}
        names = self.graph.edge_type_names
        for source, target, code in zip(
            *self.graph.edge_index_2E.tolist(), self.graph.edge_type_E.tolist(), strict=True
        ):
            if mine_N[source] and mine_N[target]:
                kind = control if names[code] == "control" else data
                kind.setdefault(target, []).append(source)
        return data, control

    def _name(self, node: int, stage: int) -> str:
        receives = self.peer_N[node] == stage
        return "c10d::recv" if receives else self.graph.categories["op"][node]

    def _type(self, node: int, stage: int) -> int:
        if self.kind_N[node] == MESSAGE:
            return int(NodeType.COMM_RECV if self.peer_N[node] == stage else NodeType.COMM_SEND)
        return int(NodeType[self.kind_N[node]])

    def _number(self, name: str, node: int) -> int:
        """Return a numeric attribute rounded to an integer, 0 for absent."""
        values = self.graph.numbers.get(name)
        value = np.nan if values is None else values[node]
        return 0 if np.isnan(value) else max(0, round(float(value)))

    def _attributes(self, node: int, rank: int) -> tuple[Attribute, ...]:
        """Return the attributes that consumers of Chakra traces rely on, with their wire types."""
        device = self._words("device", "cpu")[node]
        communicates = self.kind_N[node] in (MESSAGE, NodeType.COMM_COLL.name)
        found = [
            Attribute("is_cpu_op", Wire.BOOL, device == "host" and not communicates),
            Attribute("device", Wire.STRING, "cpu" if device == "host" else device),
        ]
        dtype = self._words("dtype")[node]
        if dtype not in (NONE, "<other>"):
            found.append(Attribute("dtype", Wire.STRING, dtype))
        for name, attribute, wire in (
            ("duration", "duration_ns", Wire.INT64),
            ("flops", "num_ops", Wire.INT64),
            ("bytes", "tensor_size", Wire.UINT64),
        ):
            if value := self._number(name, node):
                found.append(Attribute(attribute, wire, value))
        if communicates:
            found.extend(self._communication(node, rank))
        return tuple(found)

    def _communication(self, node: int, rank: int) -> list[Attribute]:
        size = max(self._number("comm_bytes", node), MIN_MESSAGE_BYTES)
        sized = Attribute("comm_size", Wire.INT64, size)
        peer = self.peer_N[node]
        if peer is None:
            word = self._words("collective")[node]
            code = CollectiveType.ALL_REDUCE if word == NONE else CollectiveType[word]
            return [
                Attribute("comm_type", Wire.INT64, int(code)),
                sized,
                Attribute("pg_name", Wire.STRING, self.group_name(self.group_N[node], rank)),
            ]
        own = self.stage_N[node]
        assert own is not None
        senders, receivers = self.ranks_of_stage[own], self.ranks_of_stage[peer]
        # Ranks of the two stages meet in order; node ids serve as tags, so no two messages meet.
        sends = self.stage_of_rank[rank] == own
        mine, theirs = (senders, receivers) if sends else (receivers, senders)
        partner = int(theirs[int(np.flatnonzero(mine == rank)[0]) % len(theirs)])
        return [
            sized,
            Attribute("comm_src", Wire.INT32, rank if sends else partner),
            Attribute("comm_dst", Wire.INT32, partner if sends else rank),
            Attribute("comm_tag", Wire.INT32, node),
        ]
