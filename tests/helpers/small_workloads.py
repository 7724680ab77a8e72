"""Small hand-made workloads: a sound one, and what it takes to break it."""

from dataclasses import replace

from layerdag.hardware.collectives import CollectiveType
from layerdag.traces.builder import NodeSpec, build_trace
from layerdag.traces.trace import Attribute, NodeType, Trace, Wire, Workload


def integer(name: str, value: int, wire: Wire = Wire.INT64) -> Attribute:
    return Attribute(name, wire, value)


def compute(node: int, *deps: int, **more: object) -> NodeSpec:
    attributes = (
        Attribute("is_cpu_op", Wire.BOOL, False),
        integer("num_ops", 100),
        integer("tensor_size", 65_536, Wire.UINT64),
    )
    spec = NodeSpec(node, f"op{node}", NodeType.COMP, deps, attributes=attributes, duration_us=5)
    return replace(spec, **more)


def collective(
    node: int,
    *deps: int,
    kind: int = CollectiveType.ALL_REDUCE,
    size: int = 1024,
    group: str | None = None,
) -> NodeSpec:
    attributes = [
        Attribute("is_cpu_op", Wire.BOOL, False),
        integer("comm_type", int(kind)),
        integer("comm_size", size),
    ]
    if group is not None:
        attributes.append(Attribute("pg_name", Wire.STRING, group))
    return NodeSpec(node, "coll", NodeType.COMM_COLL, deps, attributes=tuple(attributes))


def message(
    node: int, *deps: int, sends: bool, source: int, target: int, tag: int = 0, size: int = 65_536
) -> NodeSpec:
    attributes = (
        Attribute("is_cpu_op", Wire.BOOL, False),
        integer("comm_src", source, Wire.INT32),
        integer("comm_dst", target, Wire.INT32),
        integer("comm_tag", tag, Wire.INT32),
        integer("comm_size", size),
    )
    kind = NodeType.COMM_SEND if sends else NodeType.COMM_RECV
    return NodeSpec(node, "msg", kind, deps, attributes=attributes)


def trace(*nodes: NodeSpec, rank: int = 0) -> Trace:
    return build_trace(nodes, source=f"job.{rank}.et")


def job(*ranks: tuple[NodeSpec, ...], groups: dict[str, tuple[int, ...]] | None = None) -> Workload:
    traces = tuple(trace(*nodes, rank=rank) for rank, nodes in enumerate(ranks))
    return Workload(traces, groups or {}, "job")


def without(spec: NodeSpec, name: str) -> NodeSpec:
    return replace(spec, attributes=tuple(a for a in spec.attributes if a.name != name))


def with_attribute(spec: NodeSpec, attribute: Attribute) -> NodeSpec:
    kept = tuple(a for a in spec.attributes if a.name != attribute.name)
    return replace(spec, attributes=(*kept, attribute))
