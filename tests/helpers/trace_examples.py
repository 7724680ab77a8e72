"""Small traces for tests."""

import struct

from layerdag.traces.builder import (
    FIXED32,
    VARINT,
    NodeSpec,
    build_trace,
    length_delimited,
    tag,
    varint,
)
from layerdag.traces.trace import Attribute, NodeType, Trace, Wire, Workload

NOT_ON_CPU = Attribute("is_cpu_op", Wire.BOOL, False)


def comp(id: int, *deps: int, us: int = 5, name: str = "aten::mm", ctrl: tuple[int, ...] = ()):
    """Return a computation."""
    return NodeSpec(id, name, NodeType.COMP, deps, ctrl, duration_us=us, attributes=(NOT_ON_CPU,))


def coll(id: int, *deps: int, kind: int = 0, size: int = 1024, group: str | None = None):
    """Return a collective."""
    attributes = [
        NOT_ON_CPU,
        Attribute("comm_type", Wire.INT64, kind),
        Attribute("comm_size", Wire.INT64, size),
    ]
    if group is not None:
        attributes.append(Attribute("pg_name", Wire.STRING, group))
    return NodeSpec(id, "coll", NodeType.COMM_COLL, deps, attributes=tuple(attributes))


def message(id: int, kind: NodeType, peer: int, *deps: int, tag: int = 7, size: int = 64):
    """Return a send or receive."""
    side = "comm_dst" if kind is NodeType.COMM_SEND else "comm_src"
    attributes = (
        NOT_ON_CPU,
        Attribute(side, Wire.INT32, peer),
        Attribute("comm_tag", Wire.INT32, tag),
        Attribute("comm_size", Wire.INT64, size),
    )
    return NodeSpec(id, "message", kind, deps, attributes=attributes)


EVERY_VALUE = (
    Attribute("double", Wire.DOUBLE, -1.5e300),
    Attribute("doubles", Wire.DOUBLE + 1, (0.1, float("inf"))),
    Attribute("float", Wire.FLOAT, 0.25),
    Attribute("int32", Wire.INT32, -(2**31)),
    Attribute("int64", Wire.INT64, -(2**63)),
    Attribute("uint32", Wire.UINT32, 2**32 - 1),
    Attribute("uint64", Wire.UINT64, 2**64 - 1),
    Attribute("sint32", Wire.SINT32, -(2**31)),
    Attribute("sint64", Wire.SINT64, -(2**63)),
    Attribute("sints", Wire.SINT64 + 1, (-1, 0, 2**62)),
    Attribute("fixed32", Wire.FIXED32, 2**32 - 1),
    Attribute("fixed64", Wire.FIXED64, 2**64 - 1),
    Attribute("sfixed32", Wire.SFIXED32, -1),
    Attribute("sfixed64", Wire.SFIXED64, -1),
    Attribute("bool", Wire.BOOL, True),
    Attribute("bools", Wire.BOOL + 1, (True, False)),
    Attribute("text", Wire.STRING, "Größe\n"),
    Attribute("texts", Wire.STRING + 1, ("a", "", "b")),
    Attribute("bytes", Wire.BYTES, b"\x00\xff"),
    Attribute("bytes list", Wire.BYTES + 1, (b"", b"\x01")),
    Attribute("empty list", Wire.INT32 + 1, ()),
    Attribute("unset", Wire.UNSET, None),
    Attribute("with doc", Wire.INT64, 3, "what it means"),
)


def rich_trace() -> Trace:
    """Return a trace that uses every field and every type of attribute."""
    nodes = (
        NodeSpec(
            2**63 + 5,
            "first",
            NodeType.METADATA,
            start_us=7,
            duration_us=2**40,
            attributes=EVERY_VALUE,
            io=("[1]", "[[2]]", None, None, None, "['Int']"),
        ),
        comp(3, 2**63 + 5, 9, ctrl=(9,)),
        comp(9),
        NodeSpec(0, "", NodeType.INVALID),
    )
    return build_trace(nodes, version="1.0.0", metadata=EVERY_VALUE[:5])


def pair_workload(size: int = 64) -> Workload:
    """Return two ranks: an all-reduce of both, then a message from rank 0 to rank 1."""
    first = build_trace(
        [comp(0), coll(1, 0), message(2, NodeType.COMM_SEND, 1, 1, size=size)], source="rank 0"
    )
    second = build_trace(
        [comp(0), coll(1, 0), message(2, NodeType.COMM_RECV, 0, 1)], source="rank 1"
    )
    return Workload((first, second), {}, "pair")


def framed(*messages: bytes) -> bytes:
    """Return messages with their length prefixes."""
    return b"".join(varint(len(payload)) + payload for payload in messages)


def number(field: int, value: int) -> bytes:
    """Return a varint field."""
    return tag(field, VARINT) + varint(value & (1 << 64) - 1)


def text(field: int, value: str | bytes) -> bytes:
    """Return a string or message field."""
    return length_delimited(field, value.encode() if isinstance(value, str) else value)


def real(field: int, value: float) -> bytes:
    """Return a float field."""
    return tag(field, FIXED32) + struct.pack("<f", value)
