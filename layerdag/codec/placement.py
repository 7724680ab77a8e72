"""Which rank runs what with whom, the order of communication, and the traces of all ranks.

A sampled graph can contradict itself in small ways (a collective in a stage that has one rank);
such nodes are repaired by fixed rules here, and every repair is counted.

**Order.** A rank that has entered a collective waits until the others come. Its own dependencies do
not tell it that another rank needs a message first, or enters another collective first: that is
known only to the graph of the job. Nor is it enough that ranks run the same program: ranks of one
stage differ in time, so that of two independent collectives each may find another one ready first.
So each rank issues what holds its communication slot in the order of the whole graph, as on the one
communication stream of a real job. Sends among themselves mostly need no such order: a receive that
depends on nothing is posted at the start, so that its send ends when the message has arrived,
whatever else the other rank does. Such a send is *prompt*.

**Claim.** Number the nodes of the graph in topological order. Let each rank run the nodes in which
it takes part, with the edges among them. Sends, collectives and memory accesses hold the slot of a
rank's communication while they run. Let ``missing_order_edges`` add edges until they depend on each
other in ascending order, prompt sends among themselves excepted. Then the job runs to its end,
however long the nodes last, wherever a ready node starts as soon as its slot is free, receives need
no slot, and computation and memory accesses end by themselves. Sends may be buffered or wait for
their receives.

**Proof.** All edges, the added ones included, lead from lower to higher numbers. Suppose everything
stands still before the end, and let g be the lowest node that some rank has not finished. On every
rank that takes part in g, all that g waits for has a lower number and so is finished: g is ready.

1. *Its slot is free there.* A node h in the way is not finished, so h > g. A computation would end
   by itself, and so would a prompt send. Any other h holds the slot of communication, and so does
   g then; but on this rank h depends on g, and so cannot have started. Hence g has been issued on
   all ranks that take part in it.
2. *Computations and memory accesses* end by themselves.
3. *A message.* Both ends are issued, and its tag is the number of g, so that nothing else can be
   taken for it. It arrives, and both ends finish.
4. *A collective.* All its ranks have issued it. Ranks that share a group issue the collectives of
   this group in ascending order, and no other; so g is the k-th of the group for each of them, and
   the k-th meets the k-th. They come together, and g finishes.

So g finishes on all its ranks, which contradicts the choice of g.
"""

import bisect
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import final, overload

import numpy as np

from layerdag.codec.folding import ALL_RANKS, MESSAGE, NONE, STAGE, members
from layerdag.codec.vocabulary import COLLECTIVE_NAMES, OTHER, SEND, is_communication
from layerdag.errors import DataError, UsageError
from layerdag.graph.attributed_graph import AttributedGraph
from layerdag.hardware.collectives import CollectiveType
from layerdag.traces.chakra.files import encode_trace, normalize
from layerdag.traces.trace import LazyTraces, NodeType, RankClass, Trace


def missing_order_edges(
    parents: Sequence[Sequence[int]],
    mine_N: Sequence[bool],
    holds_N: Sequence[bool],
    prompt_N: Sequence[bool],
) -> list[tuple[int, int]]:
    """Return the edges that one class of ranks lacks to issue its communication in order.

    Nodes are in topological order of the whole graph. ``mine_N`` are those the class takes part in,
    ``holds_N`` those that hold its communication slot, ``prompt_N`` those that need no order among
    themselves. The edges (source, target) join nodes that hold the slot; none is redundant.
    """
    # Bit k of a word is the k-th node that holds the slot: whether it is done when a node is.
    done_N = [0] * len(parents)
    issued: list[int] = []
    ordered = 0  # those that are not prompt
    added: list[tuple[int, int]] = []
    for node, mine in enumerate(mine_N):
        if not mine:
            continue
        done = 0
        for parent in parents[node]:
            if mine_N[parent]:
                done |= done_N[parent]
        if holds_N[node]:
            bit = 1 << len(issued)
            before = ordered if prompt_N[node] else bit - 1
            while missing := before & ~done:
                last = issued[missing.bit_length() - 1]
                added.append((last, node))
                done |= done_N[last]
            done |= bit
            ordered |= 0 if prompt_N[node] else bit
            issued.append(node)
        done_N[node] = done
    return added


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
    """Return the number of stages (classes of ranks) of a job, at least 1."""
    return max(1, len(_stage_words(graph)))


def fitting_ranks(graph: AttributedGraph, wanted: int) -> int:
    """Return the smallest number of ranks >= ``wanted`` on which a job's graph can run.

    Every stage needs a rank; stages that exchange messages need equally many. Raises DataError if
    it is not the graph of a job.
    """
    _check_words(graph)
    stages = num_stages(graph)
    if MESSAGE in graph.categories["type"]:
        return max(1, -(-wanted // stages)) * stages
    return max(stages, wanted)


def _stage_words(graph: AttributedGraph) -> list[str]:
    words = {word for word in graph.categories["stage"] if word.isascii() and word.isdigit()}
    return sorted(words, key=int)


class JobPlan:
    """The placement of a job's graph on ``num_ranks`` ranks (R).

    Stage s of S gets ranks ``[s * R // S, (s + 1) * R // S)``.

    Attributes:
        graph: The same graph, its nodes renumbered in topological order.
        stage_N: Stage that runs a node (that sends a message), None for all.
        peer_N: Stage that receives a message or joins a collective, else None. If it is the
            sender's own stage, each of its ranks sends to the next one, the last to the first.
        collective_N: Type of each collective, None for other nodes.
        parents: Parents of each node as pairs (node, edge type).
        repairs: How often each repair was needed.
        completions: How often decoding wrote down what graphs of real jobs leave out, too.

    Raises:
        UsageError: If the graph cannot run on so many ranks (``fitting_ranks``).
        DataError: If the graph lacks an attribute of a job, or has an unknown word.
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
        """Return a categorical attribute, "none" everywhere if it is missing."""
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
        """Return role, stage and peer: all but the rank that a collective's group depends on."""
        return self._role_N[node], self.stage_N[node], self.peer_N[node]

    def has_groups(self) -> bool:
        """Return whether some collective joins only some of the ranks."""
        collectives = (node for node, kind in enumerate(self.kind_N) if kind == COLLECTIVE)
        firsts = ((node, self.ranks_of(self.stage_N[node] or 0).start) for node in collectives)
        return any(len(self.group(node, rank)) < self.num_ranks for node, rank in firsts)

    def is_ring(self, node: int) -> bool:
        """Return whether the node is a message from every rank of a stage to the next one."""
        return self.kind_N[node] == MESSAGE and self.peer_N[node] == self.stage_N[node]

    def target(self, node: int, rank: int) -> int:
        """Return the rank that ``rank`` sends a message to; stages meet rank by rank."""
        return self._at(self.peer_N[node], self._place(rank) + self.is_ring(node))

    def source(self, node: int, rank: int) -> int:
        """Return the rank from which ``rank`` receives a message."""
        return self._at(self.stage_N[node], self._place(rank) - self.is_ring(node))

    def _place(self, rank: int) -> int:
        return rank - self.ranks_of(self.stage_of(rank)).start

    def _at(self, stage: int | None, position: int) -> int:
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
        """Return a stage's position; None for "all" and anything else."""
        return self._stages.index(word) if word in self._stages else None

    def _settle_message(self, node: int, target: int | None) -> None:
        """Set sender and receiver, repairing a message without a partner."""
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
        """Set type and role of a collective, repairing an impossible one."""
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
        self.kind_N[node], self.peer_N[node], self._role_N[node] = COMPUTE, None, ""
        self.repairs[repair] += 1

    def _fitting_name(self, node: int) -> str:
        """Return the operator of a node, repairing one that contradicts the node's type."""
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
        mine_S = [self.takes_part(stage) for stage in range(self.num_stages)]
        prompt_N = [
            kind == MESSAGE and peer is not None and not any(mine_S[peer][n] for n in found)
            for kind, peer, found in zip(self.kind_N, self.peer_N, parents, strict=True)
        ]
        found = (
            missing_order_edges(parents, mine_N, self.holds_slot(stage), prompt_N)
            for stage, mine_N in enumerate(mine_S)
        )
        return dict.fromkeys(edge for edges in found for edge in edges)


def _check_words(graph: AttributedGraph) -> None:
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
    order_N = np.argsort(graph.layer_N, kind="stable")
    rank_N = np.empty_like(order_N)
    rank_N[order_N] = np.arange(len(order_N))
    return replace(
        graph,
        categories={k: [words[i] for i in order_N] for k, words in graph.categories.items()},
        numbers={k: values[order_N] for k, values in graph.numbers.items()},
        edge_index_2E=rank_N[graph.edge_index_2E],
    )


@final
class RankTraces(LazyTraces):
    """The traces of all ranks; those of a class share all columns but groups and peers.

    In the program of a class ``pg_name`` holds the role of a group ("tensor"), and ``comm_src`` and
    ``comm_dst`` the number of a peer.

    Args:
        programs: The program of each class, groups and peers by role.
        class_R: Class of each rank, int64 (R,).
        members_GM: The groups of each role, int64 (G, members); a rank is in at most one.
        peers: For each peer number the peer of every rank, int64 (R,).
        numbers: Integer name of the first group of a role; by default numbered from 1 on.
    """

    def __init__(
        self,
        programs: Sequence[Trace],
        class_R: np.ndarray,
        members_GM: Mapping[str, np.ndarray],
        peers: Sequence[np.ndarray],
        numbers: Mapping[str, int] | None = None,
    ) -> None:
        self._programs = tuple(programs)
        self._places = tuple(_Places.from_trace(trace) for trace in programs)
        self._made: dict[int, Trace] = {}
        self._class_R = class_R
        self.groups, self._name_R = _numbered(members_GM, len(class_R), numbers or {})
        self._peer_R = list(peers)

    def __len__(self) -> int:
        return len(self._class_R)

    @overload
    def __getitem__(self, index: int) -> Trace: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Trace, ...]: ...

    def __getitem__(self, index: int | slice) -> Trace | tuple[Trace, ...]:
        if isinstance(index, slice):
            return tuple(self[rank] for rank in range(*index.indices(len(self))))
        rank = range(len(self))[index]
        if rank not in self._made:
            kind = int(self._class_R[rank])
            self._made[rank] = self._places[kind].filled(self._programs[kind], self._filling(rank))
        return self._made[rank]

    def classes(self) -> tuple[RankClass, ...]:
        """See ``LazyTraces.classes``."""
        found = []
        for kind, places in enumerate(self._places):
            rank_K = np.flatnonzero(self._class_R == kind)
            names = [self._name_R[role][rank_K] for role in places.text_of]
            peers = [self._peer_R[peer][rank_K] for peer in np.unique(places.peer_M).tolist()]
            found.append(RankClass(rank_K, _columns(names, rank_K), _columns(peers, rank_K)))
        return tuple(sorted((c for c in found if len(c.rank_K)), key=lambda c: int(c.rank_K[0])))

    def files(self) -> Iterator[tuple[int, bytes]]:
        """See ``LazyTraces.files``.

        A file is encoded once per class and number of digits; groups and peers are then patched.
        """
        forms: dict[tuple[int, ...], _FileForm] = {}
        for rank in reversed(range(len(self))):
            filling = self._filling(rank)
            kind = int(self._class_R[rank])
            key = (kind, *filling.widths)
            if key not in forms:
                data = encode_trace(normalize(self[rank]))
                forms[key] = _FileForm.from_bytes(data, self._places[kind], len(self._peer_R))
            yield rank, forms[key].filled(filling)

    def _filling(self, rank: int) -> "_Filling":
        names = {role: str(name_R[rank]) for role, name_R in self._name_R.items()}
        return _Filling(names, tuple(int(peer_R[rank]) for peer_R in self._peer_R))


def _columns(values: list[np.ndarray], rank_K: np.ndarray) -> np.ndarray:
    return np.stack(values, axis=1) if values else np.zeros((len(rank_K), 0), dtype=np.int64)


@dataclass(frozen=True)
class _Filling:
    """A rank's group number in each role, and its peers."""

    names: dict[str, str]
    peers: tuple[int, ...]

    @property
    def widths(self) -> tuple[int, ...]:
        """Bytes of each in a file."""
        return (*map(len, self.names.values()), *(len(_varint(peer)) for peer in self.peers))


@dataclass(frozen=True, eq=False)
class _Places:
    """Where the program of a class names groups and peers.

    ``text_of`` is the position of each role in the pool of strings, ``role_C`` the role of each
    collective, ``row_M`` the attribute row of each message's peer and ``peer_M`` its number.
    """

    text_of: dict[str, int]
    role_C: list[str]
    row_M: np.ndarray
    peer_M: np.ndarray

    @classmethod
    def from_trace(cls, trace: Trace) -> "_Places":
        strings, table = trace.strings, trace.attributes
        named = [strings.index(name) for name in ("comm_dst", "comm_src") if name in strings]
        row_M = np.flatnonzero(np.isin(table.name_A, named))
        role_C: list[str] = []
        if "pg_name" in strings:
            row_C = np.flatnonzero(table.name_A == strings.index("pg_name"))
            role_C = [strings[word] for word in table.word_A[row_C].tolist()]
        text_of = {role: strings.index(role) for role in dict.fromkeys(role_C)}
        return cls(text_of, role_C, row_M, table.word_A[row_M].astype(np.int64))

    def filled(self, trace: Trace, filling: _Filling) -> Trace:
        strings = list(trace.strings)
        for role, position in self.text_of.items():
            strings[position] = filling.names[role]
        table = trace.attributes
        if self.row_M.size:
            word_A = table.word_A.copy()
            word_A[self.row_M] = np.array(filling.peers, dtype=np.uint64)[self.peer_M]
            table = replace(table, word_A=word_A)
        return replace(trace, strings=tuple(strings), attributes=table)


_GROUP = re.compile(rb"\x07pg_name\xea\x01(.)", re.DOTALL)  # name, field 29, length; then the text
_PEER = re.compile(rb"\x08comm_(?:dst|src)\x38")  # name, field 7; then the number


@dataclass(frozen=True, eq=False)
class _FileForm:
    """A rank's file as bytes, and where its group names and peers begin."""

    form_B: np.ndarray
    at_role: dict[str, np.ndarray]
    at_peer: tuple[np.ndarray, ...]

    @classmethod
    def from_bytes(cls, data: bytes, places: _Places, num_peers: int) -> "_FileForm":
        """Find the places in a file, whose nodes are in the order of the program."""
        group_C = np.array([found.end() for found in _GROUP.finditer(data)], dtype=np.int64)
        peer_M = np.array([found.end() for found in _PEER.finditer(data)], dtype=np.int64)
        roles = np.array(places.role_C, dtype=object)
        return cls(
            np.frombuffer(data, dtype=np.uint8),
            {role: group_C[roles == role] for role in places.text_of},
            tuple(peer_M[places.peer_M == peer] for peer in range(num_peers)),
        )

    def filled(self, filling: _Filling) -> bytes:
        data_B = self.form_B.copy()
        for role, at in self.at_role.items():
            for offset, byte in enumerate(filling.names[role].encode()):
                data_B[at + offset] = byte
        for peer, at in zip(filling.peers, self.at_peer, strict=True):
            for offset, byte in enumerate(_varint(peer)):
                data_B[at + offset] = byte
        return data_B.tobytes()


def _numbered(
    members_GM: Mapping[str, np.ndarray], num_ranks: int, numbers: Mapping[str, int]
) -> tuple[dict[str, tuple[int, ...]], dict[str, np.ndarray]]:
    groups: dict[str, tuple[int, ...]] = {}
    names: dict[str, np.ndarray] = {}
    free = 1
    for role, of_role_GM in members_GM.items():
        first = numbers.get(role, free)
        free = max(free, first + len(of_role_GM))
        names[role] = np.zeros(num_ranks, dtype=np.int64)
        names[role][of_role_GM] = first + np.arange(len(of_role_GM))[:, None]
        groups.update((str(first + g), tuple(ranks)) for g, ranks in enumerate(of_role_GM.tolist()))
    return groups, names


def _varint(value: int) -> bytes:
    done = bytearray()
    while value > 0x7F:
        done.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*done, value))
