"""A job as files for PARAM's ``comm_replay``, which runs its communication on a real cluster.

PARAM (facebookresearch/param) reads ``FOLDER/rank-<r>.json``: PyTorch execution traces of which it
takes the process groups (node ``## process_group:init ##``) and the nodes ``record_param_comms``.
A collective is posted and waited for right before the first communication that depends on it.
Compute is not replayed.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from layerdag.errors import TraceError, UsageError
from layerdag.runtime.files import write_text
from layerdag.runtime.terminal import track
from layerdag.traces.analysis import (
    WORLD_NAMES,
    collective_name,
    gather_communication,
    group_names,
    program_order,
)
from layerdag.traces.trace import CollectiveType, NodeType, Trace, Workload, dependency_edges

SCHEMA = "1.1.1-chakra.0.0.4"
_NAMES = {
    CollectiveType.ALL_REDUCE: "allreduce",
    CollectiveType.ALL_GATHER: "_allgather_base",
    CollectiveType.REDUCE_SCATTER: "_reduce_scatter_base",
    CollectiveType.REDUCE_SCATTER_BLOCK: "_reduce_scatter_base",
    CollectiveType.ALL_TO_ALL: "alltoall_base",
    CollectiveType.BROADCAST: "broadcast",
    CollectiveType.BARRIER: "barrier",
}
"""PyTorch's names; reduce, gather and scatter are missing, for which PARAM's reader has no root."""

_TYPES = {
    "float32": ("float", 4), "float": ("float", 4), "bfloat16": ("c10::BFloat16", 2),
    "float16": ("c10::Half", 2), "half": ("c10::Half", 2), "float64": ("double", 8),
    "int32": ("int", 4), "int64": ("long int", 8), "uint8": ("unsigned char", 1),
    "int8": ("signed char", 1), "bool": ("bool", 1),
}  # fmt: skip
_DIVIDED = (CollectiveType.REDUCE_SCATTER, CollectiveType.REDUCE_SCATTER_BLOCK,
    CollectiveType.ALL_TO_ALL)  # fmt: skip
_ATTRIBUTES = (
    ("rf_id", "uint64", 0), ("fw_parent", "uint64", 0), ("seq_id", "int64", -1),
    ("scope", "uint64", 0), ("tid", "uint64", 1), ("fw_tid", "uint64", 0),
    ("op_schema", "string", ""), ("kernel_backend", "string", ""), ("kernel_file", "string", ""),
    ("tensor_range", "string", ""),
)  # fmt: skip

Json = dict[str, object]


@dataclass(frozen=True)
class _Group:
    """A process group: its number for PARAM, which counts them from 0, and its ranks."""

    number: int
    ranks: tuple[int, ...]


def write_replay(
    workload: Workload, folder: str | Path, *, overwrite: bool = False
) -> tuple[Path, ...]:
    """Write ``rank-<r>.json`` for each rank into a folder; see the module.

    Args:
        workload: A job with all of its ranks.
        folder: Made if it is not there.
        overwrite: Whether files of ranks that are there may be replaced.

    Returns:
        The files, by rank.

    Raises:
        UsageError: If a file of a rank is there already.
        TraceError: If a group is unknown, a collective needs a root, or messages between two ranks
            are received in another order than they are sent, since PARAM has no tags.
    """
    folder = Path(folder)
    standing = sorted(folder.glob("rank-*.json"))
    if standing and not overwrite:
        raise UsageError(
            f"{standing[0]}: is there already; name another folder, or allow that it is replaced "
            "with --overwrite."
        )
    paths = tuple(folder / f"rank-{rank}.json" for rank in range(workload.num_ranks))
    foreign = [path for path in standing if path not in paths]
    if foreign:
        raise UsageError(
            f"{foreign[0]}: is no rank of the new job, so readers would mix the two; remove it."
        )
    groups = _groups(workload)
    _require_order(workload)
    folder.mkdir(parents=True, exist_ok=True)
    for rank, path in track(list(enumerate(paths)), "writing replay files", len(paths)):
        write_text(path, json.dumps(_document(workload.traces[rank], rank, groups)) + "\n")
    return paths


def _groups(workload: Workload) -> dict[str, _Group]:
    world = _Group(0, tuple(range(workload.num_ranks)))
    named = {
        name: _Group(number, tuple(ranks))
        for number, (name, ranks) in enumerate(workload.groups.items(), start=1)
    }
    return {**named, **dict.fromkeys(WORLD_NAMES, world)}


def _require_order(workload: Workload) -> None:
    """Raise TraceError unless messages between two ranks are received as they are sent."""
    events = gather_communication(workload)
    sent: dict[tuple[int, int], list[int]] = defaultdict(list)
    received: dict[tuple[int, int], list[int]] = defaultdict(list)
    for kind, found in ((NodeType.COMM_SEND, sent), (NodeType.COMM_RECV, received)):
        for at in np.flatnonzero(events.type_K == kind).tolist():
            ends = int(events.source_K[at]), int(events.target_K[at])
            found[ends].append(int(events.tag_K[at]))
    for ends in sorted({*sent, *received}):
        if sent[ends] != received[ends]:
            raise TraceError(
                f"{workload.source}: messages from rank {ends[0]} to rank {ends[1]} are sent with "
                f"the tags {_few(sent[ends])}, but received with {_few(received[ends])}; PARAM has "
                "no tags and matches messages by their order, so give both the same order."
            )


def _few(tags: Sequence[int]) -> str:
    return ", ".join(map(str, tags[:6])) + (", ..." if len(tags) > 6 else "") or "none"


def _document(trace: Trace, rank: int, groups: Mapping[str, _Group]) -> Json:
    described = [
        {
            "pg_name": str(group.number),
            "pg_desc": "default_pg" if group.number == 0 else f"group_{group.number}",
            "backend_config": "",
            "ranks": [] if group.number == 0 else list(group.ranks),
            "group_size": len(group.ranks),
            "group_count": len(set(groups.values())),
        }
        for group in sorted(set(groups.values()), key=lambda group: group.number)
    ]
    nodes = [
        _node(1, "[pytorch|profiler|execution_trace|process]", 1, [], []),
        _node(2, "[pytorch|profiler|execution_trace|thread]", 1, [], []),
        _node(3, "## process_group:init ##", 2, [(json.dumps(described), "String", [])], []),
        *_Replay(trace, rank, groups).nodes(),
    ]
    return {"schema": SCHEMA, "pid": rank + 1, "time": "", "start_ts": 0, "nodes": nodes}


def _node(
    node: int,
    name: str,
    parent: int,
    inputs: Sequence[tuple[object, str, object]],
    outputs: Sequence[tuple[object, str, object]],
    attributes: Mapping[str, object] | None = None,
) -> Json:
    """Return a node; inputs and outputs are values, types and shapes."""
    more = [
        {"name": key, "type": "uint64" if isinstance(value, int) else "string", "value": value}
        for key, value in (attributes or {}).items()
    ]
    return {
        "id": node,
        "name": name,
        "ctrl_deps": parent,
        "inputs": _arguments(inputs),
        "outputs": _arguments(outputs),
        "attrs": [{"name": n, "type": t, "value": v} for n, t, v in _ATTRIBUTES] + more,
    }


def _arguments(given: Sequence[tuple[object, str, object]]) -> Json:
    """Return arguments as PyTorch writes them; strides are those of contiguous tensors."""
    strides = [[1] if kind.startswith("Tensor") else [] for _, kind, _ in given]
    return {
        "values": [value for value, _, _ in given],
        "shapes": [shape for _, _, shape in given],
        "types": [kind for _, kind, _ in given],
        "strides": strides,
    }


class _Replay:
    def __init__(self, trace: Trace, rank: int, groups: Mapping[str, _Group]) -> None:
        self._trace, self._rank, self._groups = trace, rank, groups
        self._next = 4
        self._kind_N = trace.integers("comm_type", -1)[0]
        self._size_N = trace.integers("comm_size", 0)[0]
        self._peer = {
            NodeType.COMM_SEND: trace.integers("comm_dst", rank)[0],
            NodeType.COMM_RECV: trace.integers("comm_src", rank)[0],
        }
        self._group_N = group_names(trace)[0]
        self._dtypes = trace.dtypes()

    def nodes(self) -> Iterator[Json]:
        """Yield posts and waits; what nothing waits for is waited for at the end."""
        edges_2E, _ = dependency_edges(self._trace)
        before: list[list[int]] = [[] for _ in range(self._trace.num_nodes)]
        for source, target in edges_2E.T.tolist():
            before[target].append(source)
        awaited: list[frozenset[int]] = [frozenset()] * self._trace.num_nodes
        posted: dict[int, _Group] = {}
        for row in program_order(self._trace).tolist():
            needs = frozenset().union(*(awaited[b] for b in before[row])) & posted.keys()
            if self._trace.type_N[row] < NodeType.COMM_SEND:
                awaited[row] = needs
                continue
            for earlier in sorted(needs):
                yield self._wait(earlier, posted.pop(earlier))
            request = self._next
            group = self._group(row)
            yield self._post(row, group)
            posted[request] = group
            awaited[row] = frozenset((request,))
        for earlier, group in posted.items():
            yield self._wait(earlier, group)

    def _group(self, row: int) -> _Group:
        """Return the group of a communication; messages are of the world."""
        if self._trace.type_N[row] != NodeType.COMM_COLL:
            return self._groups[WORLD_NAMES[0]]
        name = self._group_N[row]
        if name not in self._groups:
            raise TraceError(
                f"{self._trace.source}: node {int(self._trace.id_N[row])} is of group '{name}', "
                "which is not described; give the groups with --comm-group."
            )
        return self._groups[name]

    def _post(self, row: int, group: _Group) -> Json:
        if self._trace.type_N[row] != NodeType.COMM_COLL:
            return self._message(row, group)
        kind = CollectiveType(self._kind_N[row]) if self._kind_N[row] in _NAMES else None
        if kind is None:
            raise TraceError(
                f"{self._trace.source}: node {int(self._trace.id_N[row])} is "
                f"{collective_name(int(self._kind_N[row]))}, which PARAM's reader cannot replay "
                f"(it knows {', '.join(known.name for known in _NAMES)})."
            )
        if kind is CollectiveType.BARRIER:
            return self._comm("barrier", group, 0, None, None)
        word, size = self._type(row)
        elements = max(-(-int(self._size_N[row]) // size), 1)
        ranks = len(group.ranks)
        if kind in _DIVIDED:
            elements = -(-elements // ranks) * ranks
        received = {
            CollectiveType.ALL_GATHER: elements * ranks,
            CollectiveType.REDUCE_SCATTER: elements // ranks,
            CollectiveType.REDUCE_SCATTER_BLOCK: elements // ranks,
        }.get(kind, elements)
        sent_tensor, received_tensor = (self._tensor(n, size) for n in (elements, received))
        return self._comm(
            _NAMES[kind], group, 0, (sent_tensor, word, [elements]),
            (received_tensor, word, [received]),
        )  # fmt: skip

    def _message(self, row: int, group: _Group) -> Json:
        """Return the node that starts a message; both sides name the tensor."""
        kind = NodeType(int(self._trace.type_N[row]))
        word, size = self._type(row)
        elements = max(-(-int(self._size_N[row]) // size), 1)
        tensor = (self._tensor(elements, size), word, [elements])
        name = "isend" if kind is NodeType.COMM_SEND else "irecv"
        return self._comm(name, group, int(self._peer[kind][row]), tensor, tensor)

    def _type(self, row: int) -> tuple[str, int]:
        """Return PyTorch's type and the bytes of an element; bytes where the format is unknown."""
        word = self._dtypes[row].rpartition(".")[2].lower()
        scalar, size = _TYPES.get(word, ("float", 4) if not word else ("unsigned char", 1))
        return f"Tensor({scalar})", size

    def _tensor(self, elements: int, size: int) -> list[object]:
        return [self._next, self._next, 0, elements, size, "cuda:0"]

    def _wait(self, request: int, group: _Group) -> Json:
        return self._comm("wait", group, 0, None, None, request)

    def _comm(
        self,
        name: str,
        group: _Group,
        peer: int,
        given: tuple[object, str, object] | None,
        result: tuple[object, str, object] | None,
        request: int | None = None,
    ) -> Json:
        """Return a node ``record_param_comms``; its id is the request that a wait names."""
        node, self._next = self._next, self._next + 1
        described = [
            str(group.number),
            "default_pg" if group.number == 0 else f"group_{group.number}",
        ]
        inputs: list[tuple[object, str, object]] = [
            (node if request is None else request, "Int", []),
            (described, "Tuple[String,String]", [[], []]),
            (peer, "Int", []),
            (name, "String", []),
            ([], "GenericList[]", []),
            ([], "GenericList[]", []),
            (group.ranks[0], "Int", []),
            (1, "Int", []),
            (len(group.ranks), "Int", []),
        ]
        counts = {
            "in_msg_nelems": _elements(given),
            "out_msg_nelems": _elements(result),
        }
        attributes = {
            "collective_name": name,
            "dtype": "" if given is None else given[1].removeprefix("Tensor(").rstrip(")"),
            **counts,
            "in_split_size": "[]",
            "out_split_size": "[]",
            "global_rank_start": group.ranks[0],
            "global_rank_stride": 1,
            "pg_name": str(group.number),
            "pg_desc": described[1],
            "pg_size": len(group.ranks),
        }
        inputs = inputs if given is None else [given, *inputs]
        outputs = [] if result is None else [result]
        return _node(node, "record_param_comms", 2, inputs, outputs, attributes)


def _elements(tensor: tuple[object, str, object] | None) -> int:
    """Return the elements of a tensor, 0 for none."""
    return int(tensor[0][3]) if tensor is not None and isinstance(tensor[0], list) else 0
