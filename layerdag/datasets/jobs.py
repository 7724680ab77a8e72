"""A job as one graph: the union of its classes of ranks, with matched communication merged.

Ranks that run the same program are one class ("stage"); a send and its receive are one node, and so
is a collective in which every class takes part. Decoding (``unfold.py``) therefore cannot produce a
message without a partner or a collective that some rank misses.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from layerdag.datasets.raw import RawGraph
from layerdag.datasets.vocabulary import public_name
from layerdag.errors import GraphError, TraceError
from layerdag.graph.dag import Condition
from layerdag.graph.layering import longest_path_layers
from layerdag.traces.trace import CollectiveType, NodeType, Trace

EDGE_TYPES = ("data", "control")
NONE = "none"
ALL = "all"
MESSAGE = "MESSAGE"
CATEGORIES = ("op", "type", "collective", "group", "stage", "peer", "device", "dtype")
# Attribute of the graph -> (attribute of the trace, unit); 0 and missing are "absent".
NUMBERS = {
    "flops": ("num_ops", "flops"),
    "bytes": ("tensor_size", "bytes"),
    "comm_bytes": ("comm_size", "bytes"),
    "duration": ("duration_ns", "ns"),
}


@dataclass(frozen=True, eq=False)
class RankClassTrace:
    """The program of one class of ranks.

    Attributes:
        trace: Of the first rank.
        ranks: All ranks of the class, ascending.
    """

    trace: Trace
    ranks: tuple[int, ...]


def job_graph(
    name: str,
    classes: Sequence[RankClassTrace],
    groups: Mapping[str, tuple[int, ...]],
    conditions: Mapping[str, Condition],
) -> RawGraph:
    """Return the graph of a job.

    Args:
        name: For messages and manifests.
        classes: At least one, covering all ranks.
        groups: Ranks of each communicator group by integer name.
        conditions: What is known of the job; sizes are added.

    Raises:
        TraceError: If a dependency dangles, or messages or collectives of the classes do not match.
        GraphError: If dependencies form a cycle.
    """
    tables = [_ClassTable.read(stage, part) for stage, part in enumerate(classes)]
    start_C = np.cumsum([0, *(table.num_nodes for table in tables)])
    groups_of = _Groups(classes, groups)
    columns: dict[str, list[str]] = {key: [] for key in CATEGORIES}
    numbers: dict[str, list[np.ndarray]] = {key: [] for key in NUMBERS}
    for table in tables:
        for key, words in table.categories(groups_of).items():
            columns[key].extend(words)
        for key in NUMBERS:
            numbers[key].append(table.numbers[key])
    owner_N = np.arange(start_C[-1])
    for first, others in _merged(name, tables, start_C, groups_of):
        owner_N[list(others)] = first
        _mark_merged(first, columns, tables, start_C, others)
    edges_2E, type_E = _union_edges(tables, start_C, owner_N)
    keep_N = owner_N == np.arange(len(owner_N))
    new_N = np.cumsum(keep_N) - 1
    kept = np.flatnonzero(keep_N)
    graph_edges_2E = new_N[edges_2E]
    edges_2E, type_E = _without_deadlock(graph_edges_2E, type_E, len(kept))
    layer_N = longest_path_layers(len(kept), edges_2E)
    world_size = sum(len(part.ranks) for part in classes)
    return RawGraph(
        name=name,
        categories={key: [words[i] for i in kept.tolist()] for key, words in columns.items()},
        numbers={key: np.concatenate(parts)[kept] for key, parts in numbers.items()},
        units={key: unit for key, (_, unit) in NUMBERS.items()},
        edge_index_2E=edges_2E,
        edge_type_E=type_E,
        edge_type_names=EDGE_TYPES,
        conditions={
            **conditions,
            "world_size": str(world_size),
            "num_nodes": float(len(kept)),
            "num_layers": float(layer_N.max() + 1),
        },
        open_vocabularies=("op",),
    )


@dataclass(frozen=True, eq=False)
class _ClassTable:
    """The columns of one class's trace that the graph needs."""

    stage: int
    part: RankClassTrace
    row_of: Mapping[int, int]
    numbers: Mapping[str, np.ndarray]

    @classmethod
    def read(cls, stage: int, part: RankClassTrace) -> "_ClassTable":
        trace = part.trace
        numbers = {}
        for key, (attribute, _) in NUMBERS.items():
            value_N, _present = trace.integers(attribute)
            if key == "duration":
                measured_N = trace.duration_us_N.astype(np.int64) * 1000
                value_N = np.where(value_N > 0, value_N, measured_N)
            numbers[key] = np.where(value_N > 0, value_N, np.nan).astype(np.float64)
        return cls(stage, part, {int(i): row for row, i in enumerate(trace.id_N)}, numbers)

    @property
    def num_nodes(self) -> int:
        return self.part.trace.num_nodes

    def categories(self, groups: "_Groups") -> dict[str, list[str]]:
        """Return the words of each categorical attribute, before merging."""
        trace = self.part.trace
        kind_N = trace.type_N.tolist()
        collective_N, _ = trace.integers("comm_type")
        pg_N, _ = trace.texts("pg_name")
        on_host_N, _ = trace.integers("is_cpu_op")
        device_N, _ = trace.texts("device")
        dtype_N, _ = trace.texts("dtype")
        is_collective_N = [kind == NodeType.COMM_COLL for kind in kind_N]
        return {
            "op": [public_name(word) for word in trace.names()],
            "type": [NodeType(kind).name for kind in kind_N],
            "collective": [
                CollectiveType(code).name if mine else NONE
                for code, mine in zip(collective_N.tolist(), is_collective_N, strict=True)
            ],
            "group": [
                groups.role(self.stage, pg) if mine else NONE
                for pg, mine in zip(pg_N, is_collective_N, strict=True)
            ],
            "stage": [str(self.stage)] * self.num_nodes,
            "peer": [NONE] * self.num_nodes,
            "device": [
                "host" if host else (device or "cpu")
                for host, device in zip(on_host_N.tolist(), device_N, strict=True)
            ],
            "dtype": [word or NONE for word in dtype_N],
        }

    def edges(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the class's edges by row and their types; a data edge wins over a control edge."""
        trace = self.part.trace
        found: dict[tuple[int, int], int] = {}
        for code, deps in ((1, trace.ctrl_deps), (0, trace.data_deps)):
            target_E = np.repeat(np.arange(self.num_nodes), np.diff(deps.ptr_N1))
            for source, target in zip(deps.values.tolist(), target_E.tolist(), strict=True):
                if source not in self.row_of:
                    raise TraceError(
                        f"{trace.source}: node {int(trace.id_N[target])} depends on node {source}, "
                        "which is not in the trace; export the trace again."
                    )
                found[self.row_of[source], target] = code
        pairs_2E = np.array(list(found), dtype=np.int64).reshape(-1, 2).T
        return pairs_2E, np.fromiter(found.values(), np.int64, len(found))


class _Groups:
    """Who takes part in a communicator group, seen from a class of ranks."""

    def __init__(
        self, classes: Sequence[RankClassTrace], groups: Mapping[str, tuple[int, ...]]
    ) -> None:
        self._classes = classes
        self._groups = groups
        self._world = tuple(sorted(rank for part in classes for rank in part.ranks))

    def ranks(self, pg_name: str) -> tuple[int, ...]:
        """Return the ranks of a group; "" and "0" are the world."""
        if pg_name in ("", "0"):
            return self._world
        return tuple(self._groups.get(pg_name, self._world))

    def role(self, stage: int, pg_name: str) -> str:
        """Return "world", "stage", or the shape of a sub-group such as "strided2"."""
        ranks = tuple(sorted(self.ranks(pg_name)))
        if ranks == self._world:
            return "world"
        if ranks == self._classes[stage].ranks:
            return "stage"
        steps = set(np.diff(ranks).tolist())
        return ("contiguous" if steps <= {1} else "strided") + str(len(ranks))

    def spans_all_classes(self, pg_name: str) -> bool:
        """Return whether every class, and more than one, takes part."""
        ranks = set(self.ranks(pg_name))
        return len(self._classes) > 1 and all(ranks & set(part.ranks) for part in self._classes)

    def stage_of(self, rank: int) -> int:
        """Return the class that ``rank`` belongs to."""
        for stage, part in enumerate(self._classes):
            if rank in part.ranks:
                return stage
        raise TraceError(f"rank {rank} takes part in a message but belongs to no trace of the job.")


def _merged(
    name: str, tables: Sequence[_ClassTable], start_C: np.ndarray, groups: _Groups
) -> Iterable[tuple[int, tuple[int, ...]]]:
    """Yield (node kept, nodes merged into it) for matched messages and shared collectives."""
    sends: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    receives: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    shared: dict[str, list[list[int]]] = {}
    for table in tables:
        trace, start = table.part.trace, int(start_C[table.stage])
        order = np.argsort(trace.id_N, kind="stable")
        target_N, _ = trace.integers("comm_dst")
        source_N, _ = trace.integers("comm_src")
        tag_N, _ = trace.integers("comm_tag")
        pg_N, _ = trace.texts("pg_name")
        for row in order[np.isin(trace.type_N[order], (5, 6, 7))].tolist():
            kind, tag = int(trace.type_N[row]), int(tag_N[row])
            if kind == NodeType.COMM_SEND:
                peer = groups.stage_of(int(target_N[row]))
                sends[table.stage, peer, tag].append(start + row)
            elif kind == NodeType.COMM_RECV:
                peer = groups.stage_of(int(source_N[row]))
                receives[peer, table.stage, tag].append(start + row)
            elif groups.spans_all_classes(pg_N[row]):
                shared.setdefault(pg_N[row], [[] for _ in tables])[table.stage].append(start + row)
    for key in sorted(sends.keys() | receives.keys()):
        if len(sends[key]) != len(receives[key]):
            raise TraceError(
                f"{name}: {len(sends[key])} sends from stage {key[0]} to {key[1]} with tag "
                f"{key[2]} meet {len(receives[key])} receives; the ranks are not of one job."
            )
        yield from ((s, (r,)) for s, r in zip(sends[key], receives[key], strict=True))
    for pg_name, lists in shared.items():
        if len({len(nodes) for nodes in lists}) > 1:
            raise TraceError(
                f"{name}: the ranks of group '{pg_name or 0}' issue different numbers of "
                f"collectives ({', '.join(str(len(nodes)) for nodes in lists)}); some rank is cut."
            )
        yield from ((nodes[0], tuple(nodes[1:])) for nodes in zip(*lists, strict=True))


def _mark_merged(
    first: int,
    columns: dict[str, list[str]],
    tables: Sequence[_ClassTable],
    start_C: np.ndarray,
    others: tuple[int, ...],
) -> None:
    """Write what merging has made of node ``first``."""
    if columns["type"][first] == NodeType.COMM_COLL.name:
        columns["stage"][first] = ALL
        return
    stage = int(np.searchsorted(start_C, others[0], side="right") - 1)
    columns["type"][first] = MESSAGE
    columns["peer"][first] = str(tables[stage].stage)


def _union_edges(
    tables: Sequence[_ClassTable], start_C: np.ndarray, owner_N: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the edges of all classes between owners, without doubles; data wins over control."""
    parts = [table.edges() for table in tables]
    pairs = [edges_2E + start for (edges_2E, _), start in zip(parts, start_C[:-1], strict=True)]
    edges_2E = owner_N[np.concatenate(pairs, axis=1)]
    type_E = np.concatenate([types_E for _, types_E in parts])
    order_E = np.lexsort((type_E, edges_2E[0], edges_2E[1]))
    edges_2E, type_E = edges_2E[:, order_E], type_E[order_E]
    fresh_E = np.ones(len(type_E), dtype=bool)
    fresh_E[1:] = (edges_2E[:, 1:] != edges_2E[:, :-1]).any(axis=0)
    fresh_E &= edges_2E[0] != edges_2E[1]
    return edges_2E[:, fresh_E], type_E[fresh_E]


def _without_deadlock(
    edges_2E: np.ndarray, type_E: np.ndarray, num_nodes: int
) -> tuple[np.ndarray, np.ndarray]:
    """Drop control edges if merging buffered messages has closed a cycle through them."""
    try:
        longest_path_layers(num_nodes, edges_2E)
    except GraphError:
        data_E = type_E == 0
        edges_2E, type_E = edges_2E[:, data_E], type_E[data_E]
    return edges_2E, type_E
