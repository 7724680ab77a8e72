"""Who runs what with whom, when the graph of a job is unfolded on a number of ranks.

A sampled graph can contradict itself in small ways (a collective in a stage that has one rank);
such nodes are repaired by fixed rules here, and every repair is counted.
"""

import bisect
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from layerdag.codec._attributed_graph import AttributedGraph
from layerdag.codec._fold import MESSAGE, NONE
from layerdag.codec._groups import ALL_RANKS, STAGE, members
from layerdag.codec._program_order import missing_order
from layerdag.codec._vocabulary import COLLECTIVE_NAMES, OTHER, SEND, is_communication
from layerdag.errors import DataError, UsageError
from layerdag.traces import CollectiveType, NodeType

COLLECTIVE = NodeType.COMM_COLL.name
COMPUTE = NodeType.COMP.name
TYPES = (COMPUTE, "MEM_LOAD", "MEM_STORE", COLLECTIVE, MESSAGE)
# ASTRA-sim refuses a trace with one of these collectives of Chakra; substitutes that move the same
# number of bytes in the same direction.
STAND_INS = {
    CollectiveType.REDUCE: CollectiveType.ALL_REDUCE,
    CollectiveType.GATHER: CollectiveType.ALL_GATHER,
    CollectiveType.SCATTER: CollectiveType.REDUCE_SCATTER,
    CollectiveType.REDUCE_SCATTER_BLOCK: CollectiveType.REDUCE_SCATTER,
    CollectiveType.BARRIER: CollectiveType.ALL_REDUCE,
    CollectiveType.INVALID: CollectiveType.ALL_REDUCE,
}


def num_stages(graph: AttributedGraph) -> int:
    """Return the number of stages (classes of ranks) of a job's graph, at least 1."""
    return max(1, len(_stage_words(graph)))


def fitting_ranks(graph: AttributedGraph, wanted: int) -> int:
    """Return the smallest number of ranks, at least ``wanted``, on which a job's graph can run.

    Every stage needs a rank; stages that send each other messages need the same number of ranks.

    Raises:
        DataError: If it is not the graph of a job.
    """
    _check_words(graph)
    stages = num_stages(graph)
    if MESSAGE in graph.categories["type"]:
        return max(1, -(-wanted // stages)) * stages
    return max(stages, wanted)


def _stage_words(graph: AttributedGraph) -> list[str]:
    """Return the stages that occur, in the order of their numbers."""
    words = {word for word in graph.categories["stage"] if word.isascii() and word.isdigit()}
    return sorted(words, key=int)


class JobPlan:
    """The decisions that all ranks share.

    Args:
        graph: A job as ``jobs.job_graph`` makes it; any node order.
        num_ranks: Number of ranks R; stage s of S gets ranks ``[s * R // S, (s + 1) * R // S)``.

    Attributes:
        graph: The same graph, its nodes renumbered in topological order.
        num_ranks: Number of ranks.
        num_stages: Number of stages.
        kind_N: Type of each node.
        stage_N: Stage that runs a node (that sends a message), None for all.
        peer_N: Stage that receives a message or joins a collective, else None. Where a message's
            is its own stage, every rank of it sends to the next one, the last to the first.
        collective_N: Type of each collective, None for other nodes.
        name_N: Operator of each node.
        parents: Parents of each node as pairs (node, edge type).
        repairs: How often each repair was needed.
        completions: How often decoding wrote down what graphs of real jobs leave out, too.

    Raises:
        UsageError: If the graph cannot run on so many ranks (``fitting_ranks``).
        DataError: If the graph lacks an attribute of a job, or a word is none of a job's.
        GraphError: If the graph has a cycle.
    """

    def __init__(self, graph: AttributedGraph, num_ranks: int) -> None:
        fitting = fitting_ranks(graph, num_ranks)
        self.graph = _topological(graph)
        self.num_ranks = num_ranks
        self.repairs: Counter[str] = Counter()
        self.completions: Counter[str] = Counter()
        self._stages = _stage_words(graph) or ["0"]
        self.num_stages = len(self._stages)
        if num_ranks != fitting:
            raise UsageError(
                f"{graph.name}: the job has {self.num_stages} stages and cannot run on "
                f"{num_ranks} ranks; ask for {fitting}."
            )
        self._start_S = [s * num_ranks // self.num_stages for s in range(self.num_stages + 1)]
        self.kind_N = list(self.graph.categories["type"])
        self.stage_N = [self._stage(word) for word in self.graph.categories["stage"]]
        self.peer_N: list[int | None] = [None] * self.graph.num_nodes
        self._role_N = [""] * self.graph.num_nodes
        self.collective_N: list[CollectiveType | None] = [None] * self.graph.num_nodes
        for node, word in enumerate(self.column("peer")):
            if self.kind_N[node] == MESSAGE:
                self._settle_message(node, self._stage(word))
            elif self.kind_N[node] == COLLECTIVE:
                self._settle_collective(node, self._stage(word))
        self.name_N = [self._fitting_name(node) for node in range(self.graph.num_nodes)]
        self.parents = self._ordered_parents()

    def column(self, name: str) -> list[str]:
        """Return a categorical attribute, "none" everywhere if the graph lacks it."""
        return self.graph.categories.get(name, [NONE] * self.graph.num_nodes)

    def stage_of(self, rank: int) -> int:
        """Return the stage of a rank."""
        return bisect.bisect_right(self._start_S, rank) - 1

    def ranks_of(self, stage: int) -> range:
        """Return the ranks of a stage."""
        return range(self._start_S[stage], self._start_S[stage + 1])

    def takes_part(self, stage: int) -> list[bool]:
        """Return for each node whether a stage runs it."""
        return [
            own is None or stage in (own, peer)
            for own, peer in zip(self.stage_N, self.peer_N, strict=True)
        ]

    def holds_slot(self, stage: int) -> list[bool]:
        """Return for each node whether it holds the communication slot of a stage's ranks."""
        return [
            takes_part and kind != COMPUTE and (kind != MESSAGE or own == stage)
            for takes_part, kind, own in zip(
                self.takes_part(stage), self.kind_N, self.stage_N, strict=True
            )
        ]

    def group(self, node: int, rank: int) -> tuple[int, ...]:
        """Return the ranks that meet ``rank`` in the collective ``node``."""
        own, peer = self.stage_N[node], self.peer_N[node]
        if own is None:
            domain = list(range(self.num_ranks))
        else:
            joined = {own} if peer is None else {own, peer}
            domain = [rank for stage in sorted(joined) for rank in self.ranks_of(stage)]
        return members(self._role_N[node], domain, rank)

    def group_kind(self, node: int) -> tuple[str, int | None, int | None]:
        """Return what the group of a collective depends on beside the rank."""
        return self._role_N[node], self.stage_N[node], self.peer_N[node]

    def has_groups(self) -> bool:
        """Return whether some collective joins fewer than all ranks."""
        collectives = (node for node, kind in enumerate(self.kind_N) if kind == COLLECTIVE)
        firsts = ((node, self.ranks_of(self.stage_N[node] or 0).start) for node in collectives)
        return any(len(self.group(node, rank)) < self.num_ranks for node, rank in firsts)

    def is_ring(self, node: int) -> bool:
        """Return whether the node is a message that every rank of a stage sends to the next one."""
        return self.kind_N[node] == MESSAGE and self.peer_N[node] == self.stage_N[node]

    def target(self, node: int, rank: int) -> int:
        """Return the rank that ``rank`` sends a message to: stages meet rank by rank."""
        return self._at(self.peer_N[node], self._place(rank) + self.is_ring(node))

    def source(self, node: int, rank: int) -> int:
        """Return the rank from which ``rank`` receives a message."""
        return self._at(self.stage_N[node], self._place(rank) - self.is_ring(node))

    def _place(self, rank: int) -> int:
        """Return the position of a rank in its stage."""
        return rank - self.ranks_of(self.stage_of(rank)).start

    def _at(self, stage: int | None, position: int) -> int:
        """Return the rank of a stage at a place, counted around."""
        assert stage is not None, "a placed message has two ends"
        ranks = self.ranks_of(stage)
        return ranks[position % len(ranks)]

    def is_uniform(self, stage: int) -> bool:
        """Return whether all ranks of a stage run the same trace, byte for byte."""
        return not any(
            mine and (kind == MESSAGE or role not in ("", ALL_RANKS, STAGE))
            for mine, kind, role in zip(
                self.takes_part(stage), self.kind_N, self._role_N, strict=True
            )
        )

    def _stage(self, word: str) -> int | None:
        """Return a stage's position, None for "all" and for whatever is no stage."""
        return self._stages.index(word) if word in self._stages else None

    def _settle_message(self, node: int, target: int | None) -> None:
        """Set sender and receiver; repair a message that has no partner."""
        source = self.stage_N[node]
        if source is None:
            source = self.stage_N[node] = 0
            self.repairs["message_without_sender"] += 1
        alone = len(self.ranks_of(source)) == 1
        if alone and self.num_stages == 1:
            self._become_work(node, "message_of_one_rank")
            return
        if target is None or (alone and target == source):
            target = (source + 1) % self.num_stages
            self.repairs["message_without_receiver"] += 1
        self.peer_N[node] = target

    def _settle_collective(self, node: int, joined: int | None) -> None:
        """Set type and role of a collective; repair one that is not possible."""
        role, own = self.column("group")[node], self.stage_N[node]
        if own is not None and joined is not None and joined != own:
            self.peer_N[node] = joined
        self._role_N[node] = role
        if len(self.group(node, self.ranks_of(own or 0).start)) == 1:
            self._become_work(node, "collective_of_one_rank")
            return
        if role == ALL_RANKS and own is not None and self.num_stages > 1:
            # Only some stages issue it, so only they can take part.
            self.repairs["world_collective_of_one_stage"] += 1
        if not role.startswith((ALL_RANKS, STAGE, "contiguous", "strided")):
            self.repairs["collective_without_group"] += 1
            self._role_N[node] = STAGE
        word = self.column("collective")[node]
        kind = CollectiveType.ALL_REDUCE if word == NONE else CollectiveType[word]
        if kind in STAND_INS:
            self.repairs["collective_that_is_not_simulated"] += 1
        self.collective_N[node] = STAND_INS.get(kind, kind)

    def _become_work(self, node: int, repair: str) -> None:
        """Turn communication of a single rank into compute of the same duration."""
        self.kind_N[node], self.peer_N[node], self._role_N[node] = COMPUTE, None, ""
        self.repairs[repair] += 1

    def _fitting_name(self, node: int) -> str:
        """Return the operator of a node; repair one that contradicts the node's type."""
        name, kind = self.graph.categories["op"][node], self.kind_N[node]
        if kind not in (MESSAGE, COLLECTIVE):
            if not is_communication(name):
                return name
            if self.graph.categories["type"][node] == kind:
                self.repairs["compute_named_as_communication"] += 1
            return OTHER
        if is_communication(name):
            return name
        if name != OTHER:
            self.repairs["communication_named_as_compute"] += 1
        collective = self.collective_N[node]
        return SEND if collective is None else COLLECTIVE_NAMES[collective.name]

    def _ordered_parents(self) -> list[list[tuple[int, str]]]:
        """Return the parents of each node, with those that put communication in order."""
        names = self.graph.edge_type_names
        parents: list[list[tuple[int, str]]] = [[] for _ in range(self.graph.num_nodes)]
        for source, target, code in zip(
            *self.graph.edge_index_2E.tolist(), self.graph.edge_type_E.tolist(), strict=True
        ):
            parents[target].append((source, names[code]))
        plain = [[source for source, _ in found] for found in parents]
        added = 0
        # An edge that one stage needs may hold up a receive of another stage, whose send then needs
        # order, too.
        while missing := self._missing_order(plain):
            for source, target in missing:
                plain[target].append(source)
                parents[target].append((source, "data"))
            added += len(missing)
        # Folding drops the order that several stages impose on each other (``_without_deadlock``),
        # so graphs of real pipelines lack it as well. The graph of one stage has it all.
        noted = self.completions if self.num_stages > 1 else self.repairs
        if added:
            noted["communication_order_added"] = added
        return parents

    def _missing_order(self, parents: Sequence[Sequence[int]]) -> dict[tuple[int, int], None]:
        """Return the edges that stages lack to issue their communication in order, each once."""
        mine_S = [self.takes_part(stage) for stage in range(self.num_stages)]
        prompt_N = [
            kind == MESSAGE and peer is not None and not any(mine_S[peer][n] for n in found)
            for kind, peer, found in zip(self.kind_N, self.peer_N, parents, strict=True)
        ]
        found = (
            missing_order(parents, mine_N, self.holds_slot(stage), prompt_N)
            for stage, mine_N in enumerate(mine_S)
        )
        return dict.fromkeys(edge for edges in found for edge in edges)


def _check_words(graph: AttributedGraph) -> None:
    """Raise DataError if the graph is not that of a job."""
    if missing := {"op", "type", "stage"} - set(graph.categories):
        raise DataError(
            f"{graph.name}: attribute '{min(missing)}' is missing; only a graph of kind 'trace' "
            "can be written as execution traces."
        )
    collectives = (NONE, *(kind.name for kind in CollectiveType))
    for name, known in (("type", TYPES), ("collective", collectives)):
        strange = set(graph.categories.get(name, ())) - set(known)
        if strange:
            raise DataError(
                f"{graph.name}: '{min(strange)}' is no {name} of a job's graph; known are "
                f"{', '.join(known)}."
            )


def _topological(graph: AttributedGraph) -> AttributedGraph:
    """Return the graph with its nodes in the order of their layers."""
    order_N = np.argsort(graph.layer_N, kind="stable")
    rank_N = np.empty_like(order_N)
    rank_N[order_N] = np.arange(len(order_N))
    return replace(
        graph,
        categories={k: [words[i] for i in order_N] for k, words in graph.categories.items()},
        numbers={k: values[order_N] for k, values in graph.numbers.items()},
        edge_index_2E=rank_N[graph.edge_index_2E],
    )
