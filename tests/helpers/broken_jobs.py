"""Jobs of two ranks, each of which breaks one rule that has a safe answer, and no other."""

from dataclasses import replace

from small_workloads import collective, compute, integer, job, message, with_attribute

from layerdag.hardware.collectives import CollectiveType
from layerdag.traces.builder import NodeSpec
from layerdag.traces.trace import Attribute, NodeType, Wire, Workload

GATHER = CollectiveType.ALL_GATHER
ON_CPU = Attribute("is_cpu_op", Wire.BOOL, True)


def on_both(*nodes: NodeSpec, groups: dict[str, tuple[int, ...]] | None = None) -> Workload:
    """Return a job whose two ranks have equal nodes."""
    return job(nodes, nodes, groups=groups)


def exchanged(tag: int, wire: Wire = Wire.INT64) -> Workload:
    """Return a job whose rank 0 sends two messages to rank 1, one with this tag."""
    number = integer("comm_tag", tag, wire)
    first, second = (
        with_attribute(message(1, sends=sends, source=0, target=1), number)
        for sends in (True, False)
    )
    return job(
        (first, message(2, 1, sends=True, source=0, target=1)),
        (second, message(2, 1, sends=False, source=0, target=1)),
    )


def _world_after_groups() -> Workload:
    """Return a job of four: only ranks 0 and 1 call a collective before all four call one."""
    paired = (collective(1, group="1"), collective(2, 1))
    alone = (compute(1), collective(2, 1))
    return job(paired, paired, alone, alone, groups={"1": (0, 1)})


_SENT = message(1, sends=True, source=0, target=1)
_RECEIVED = message(1, sends=False, source=0, target=1)

BROKEN = {
    "no-dangling-dependency": on_both(compute(1), compute(2, 1, 77, ctrl_deps=(78,))),
    "no-self-dependency": on_both(compute(1), compute(2, 2, 1)),
    "no-double-dependency": on_both(compute(1), compute(2, 1, 1)),
    "integer-attributes": on_both(
        with_attribute(collective(1), Attribute("comm_size", Wire.DOUBLE, 4096.0)),
        with_attribute(compute(2, 1), Attribute("num_ops", Wire.STRING, "77")),
    ),
    "feeder-v1-types": on_both(
        with_attribute(collective(1), integer("comm_size", 64, Wire.UINT64))
    ),
    "comm-off-cpu": on_both(with_attribute(collective(1), ON_CPU)),
    "no-metadata-node": on_both(compute(1), compute(2, 1, type=NodeType.METADATA), compute(3, 2)),
    "no-invalid-node": on_both(compute(1), compute(2, 1, type=NodeType.INVALID), compute(3, 2)),
    "positive-sizes": on_both(compute(1), collective(2, 1, kind=GATHER, size=0), compute(3, 2)),
    "supported-collective": on_both(
        compute(1), collective(2, 1, kind=CollectiveType.BARRIER, size=0), compute(3, 2)
    ),
    "own-sender": job((with_attribute(_SENT, integer("comm_src", 1, Wire.INT32)),), (_RECEIVED,)),
    "message-tags": exchanged(-1),
    "described-groups": on_both(compute(1), groups={"tp": (0, 1)}),
    "group-names": on_both(compute(1), collective(2, 1, group="tp"), groups={"tp": (0, 1)}),
    "several-members": job(
        (compute(1), collective(2, 1, group="1"), compute(3, 2)), (compute(1),), groups={"1": (0,)}
    ),
    "world-after-equal-groups": _world_after_groups(),
}
"""A job by the rule that it breaks."""


def with_twice(spec: NodeSpec, attribute: Attribute) -> NodeSpec:
    """Return the node with one more attribute of a name that it has."""
    return replace(spec, attributes=(*spec.attributes, attribute))


BEYOND_FIXING = {
    "acyclic": on_both(compute(1, 2), compute(2, 1)),
    "one-value": on_both(with_twice(collective(1), integer("comm_size", 77))),
    "integer-attributes": on_both(
        with_attribute(collective(1), Attribute("comm_size", Wire.DOUBLE, 0.5))
    ),
    "collectives-agree": job((collective(1, size=8),), (collective(1, size=16),)),
    "known-group": on_both(collective(1, group="7")),
    "positive-sizes": on_both(collective(1, size=-8)),
}
"""A job by the rule that it breaks without a safe answer."""
