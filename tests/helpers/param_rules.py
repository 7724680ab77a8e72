"""What PARAM's reader of replay files (et_replay, ``commsTraceParser``) takes from them, as rules.

Written from its source: which node it looks at, which argument it reads, what it refuses.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ALIASES = {
    "alltoall": "all_to_all", "alltoallv": "all_to_allv", "alltoallbase": "all_to_allv",
    "allreduce": "all_reduce", "allgather": "all_gather", "allgatherbase": "all_gather_base",
    "reducescatter": "reduce_scatter", "reducescatterbase": "reduce_scatter_base",
    "recvanysource": "recv",
}  # fmt: skip
FUNCTIONS = {"all_to_allv", "all_reduce", "broadcast", "all_gather_base", "reduce_scatter_base",
    "barrier", "wait", "isend", "irecv", "send", "recv"}  # fmt: skip
TYPES = {"int", "float", "bool", "long", "long int", "double", "half", "byte", "c10::Half",
    "c10::BFloat16", "unsigned char", "signed char"}  # fmt: skip
SCHEMAS = ("1.0.3-chakra.0.0.4", "1.0.4-chakra.0.0.4", "1.1.0-chakra.0.0.4", "1.1.1-chakra.0.0.4")


@dataclass
class Replayed:
    """One communication as PARAM runs it."""

    name: str
    request: int
    group: int
    ranks: list[int]
    sent: int = 0
    received: int = 0
    ends: tuple[int, int] = field(default=(-1, -1))


def read_replay(path: Path, rank: int) -> tuple[dict[int, list[int]], list[Replayed]]:
    """Return groups and communication of a rank's file; AssertionError where PARAM would fail."""
    document = json.loads(path.read_text())
    assert document["schema"] in SCHEMAS
    assert isinstance(document["pid"], int)
    nodes = {node["id"]: node for node in document["nodes"]}
    assert len(nodes) == len(document["nodes"])
    for node in nodes.values():
        _check(node, nodes)
    groups = _groups(nodes)
    found = [_communication(n, groups, rank) for n in nodes.values()
        if n["name"] == "record_param_comms"]  # fmt: skip
    return groups, found


def _check(node: dict[str, Any], nodes: dict[int, Any]) -> None:
    """What the reader of execution traces looks up without a default."""
    assert node["id"] == 1 or node["ctrl_deps"] in nodes
    for side in ("inputs", "outputs"):
        lengths = {len(node[side][key]) for key in ("values", "types", "shapes", "strides")}
        assert len(lengths) == 1, node
    wanted = {"fw_parent", "seq_id", "fw_tid", "op_schema", "rf_id", "scope", "tid"}
    assert wanted <= {attribute["name"] for attribute in node["attrs"]}


def _groups(nodes: dict[int, Any]) -> dict[int, list[int]]:
    (init,) = [node for node in nodes.values() if "process_group:init" in node["name"]]
    found = {}
    told = json.loads(init["inputs"]["values"][0])
    for group in told:
        assert group["pg_name"].isdecimal()
        ranks = group["ranks"] or list(range(group["group_size"]))
        found[int(group["pg_name"])] = ranks
        assert group["group_count"] == len(told)
    assert sorted(found) == list(range(len(found)))  # others become dummies on this rank alone
    return found


def _communication(node: dict[str, Any], groups: dict[int, list[int]], rank: int) -> Replayed:
    values, types = node["inputs"]["values"], node["inputs"]["types"]
    shift = 1 if any(word in values[0:5] for word in ("wait", "barrier")) else 0
    letters = "".join(letter for letter in values[4 - shift].lower() if letter.isalpha())
    name = ALIASES.get(letters, values[4 - shift].lower())
    assert name in FUNCTIONS, name
    group = values[2 - shift]
    assert group[0].isdecimal()
    ranks = groups[int(group[0])]
    found = Replayed(name, values[1 - shift], int(group[0]), ranks)
    if name not in ("wait", "barrier"):
        for side, key in (("inputs", "sent"), ("outputs", "received")):
            kind = node[side]["types"][0]
            assert kind.startswith("Tensor(")
            assert kind[len("Tensor(") : -1] in TYPES
            setattr(found, key, node[side]["values"][0][3])
        assert node["outputs"]["types"][0] == types[0]
    peer = ranks[values[3 - shift]]
    if "send" in name:
        found.ends = rank, peer
    if "recv" in name:
        found.ends = peer, rank
    if name == "all_to_allv":
        assert values[5] == values[6] == []
        assert found.sent % len(ranks) == found.received % len(ranks) == 0
    return found
