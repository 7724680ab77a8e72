"""Synthetic training steps of a transformer for any number of ranks, for benchmarks only.

Rank order as in STAGE: data parallel fastest, then tensor parallel. One trace is built; the ranks
differ in the names of their groups alone, so they share every column.
"""

import dataclasses

import numpy as np

from layerdag.hardware.collectives import CollectiveType
from layerdag.simulator.cluster import Cluster
from layerdag.simulator.config import Dimension, NetworkConfig, SystemConfig, Topology
from layerdag.traces.builder import NodeSpec, build_trace
from layerdag.traces.trace import Attribute, AttributeTable, NodeType, Ragged, Trace, Wire, Workload

TENSOR_GROUP, DATA_GROUP = "<tensor>", "<data>"
OPS_BYTES = 40_000_000_000, 90_000_000
ACTIVATION_BYTES, GRADIENT_BYTES = 8 << 20, 64 << 20


def llm_workload(data_parallel: int, tensor_parallel: int, layers: int = 2) -> Workload:
    """Return a step with 48 nodes per layer on each of data_parallel * tensor_parallel ranks."""
    template = build_trace(_nodes(layers), source="benchmark")
    ranks = data_parallel * tensor_parallel
    groups = {
        str(1 + t): tuple(range(t * data_parallel, (t + 1) * data_parallel))
        for t in range(tensor_parallel)
    }
    first = 1 + tensor_parallel
    groups |= {str(first + d): tuple(range(d, ranks, data_parallel)) for d in range(data_parallel)}
    traces = [
        _with_groups(template, str(first + rank % data_parallel), str(1 + rank // data_parallel))
        for rank in range(ranks)
    ]
    return Workload(tuple(traces), groups, "benchmark")


def _with_groups(trace: Trace, tensor: str, data: str) -> Trace:
    """Return the trace with the placeholders of its groups replaced."""
    names = {TENSOR_GROUP: tensor, DATA_GROUP: data}
    return dataclasses.replace(trace, strings=tuple(names.get(s, s) for s in trace.strings))


class _Step:
    """The nodes of one training step, appended in order."""

    def __init__(self) -> None:
        self.nodes: list[NodeSpec] = []
        self.last: tuple[int, ...] = ()

    def add(self, kind: NodeType, **values: int | str) -> int:
        """Append a node after the last one of the chain; return its id."""
        wires = {int: Wire.INT64, str: Wire.STRING}
        attributes = tuple(Attribute(name, wires[type(v)], v) for name, v in values.items())
        id = len(self.nodes)
        self.nodes.append(NodeSpec(id, f"n{id}", kind, self.last, attributes=attributes))
        return id

    def compute(self, *shares: int) -> None:
        """Append a chain of kernels, each with one n-th of the largest one's work."""
        for share in shares:
            ops, size = (amount // share for amount in OPS_BYTES)
            self.last = (self.add(NodeType.COMP, num_ops=ops, tensor_size=size),)

    def reduce(self, size: int, group: str) -> int:
        """Append an all-reduce beside the chain; return its id."""
        kind = int(CollectiveType.ALL_REDUCE)
        return self.add(NodeType.COMM_COLL, comm_type=kind, comm_size=size, pg_name=group)


def _nodes(layers: int) -> list[NodeSpec]:
    """Forward and backward pass: kernels and two tensor-parallel all-reduces a layer and pass.

    In the backward pass weight gradients hang beside the chain, and each half layer's are
    reduced over the data-parallel group.
    """
    step = _Step()
    for _ in range(2 * layers):
        step.compute(4, 1, 3, 1, 2)
        step.last = (step.reduce(ACTIVATION_BYTES, TENSOR_GROUP),)
    for _ in range(2 * layers):
        step.compute(4, 1, 3, 1, 2, 1, 5, 2)
        step.last = (step.reduce(ACTIVATION_BYTES, TENSOR_GROUP),)
        for _ in range(8):
            ops, size = (amount // 9 for amount in OPS_BYTES)
            step.add(NodeType.COMP, num_ops=ops, tensor_size=size)
        step.reduce(GRADIENT_BYTES, DATA_GROUP)
    return step.nodes


def llm_cluster(data_parallel: int, tensor_parallel: int) -> Cluster:
    """Return two switches (data parallel, tensor parallel) and rings in 4 chunks, with roofline."""
    network = NetworkConfig(
        (
            Dimension(Topology.SWITCH, data_parallel, 25.0, 1000.0),
            Dimension(Topology.SWITCH, tensor_parallel, 50.0, 500.0),
        )
    )
    system = dataclasses.replace(
        SystemConfig.uniform("ring", 2),
        preferred_dataset_splits=4,
        local_mem_bw_gb=1600.0,
        peak_perf_tflops=900.0,
        roofline_enabled=True,
    )
    return Cluster(network, system)


def chain(nodes: int) -> Workload:
    """Return one rank with ``nodes`` compute nodes of 3 us, each after a random earlier one."""
    rng = np.random.default_rng(0)
    position = np.arange(1, nodes)
    parent = np.maximum(position - 1 - rng.integers(0, 50, nodes - 1), 0)
    ptr = np.concatenate([[0], np.arange(nodes)])
    empty = Ragged(np.zeros(nodes + 1, np.int64), np.zeros(0, np.uint64))
    none = np.zeros(0, np.int32)
    table = AttributeTable(empty.ptr_N1, none, none.astype(np.uint8), empty.values, none, ())
    trace = Trace(
        id_N=np.arange(nodes, dtype=np.uint64),
        name_N=np.full(nodes, -1, np.int32),
        type_N=np.full(nodes, NodeType.COMP, np.uint8),
        start_us_N=np.zeros(nodes, np.uint64),
        duration_us_N=np.full(nodes, 3, np.uint64),
        data_deps=Ragged(ptr, parent.astype(np.uint64)),
        ctrl_deps=empty,
        io_N6=np.full((nodes, 6), -1, np.int32),
        attributes=table,
        strings=(),
    )
    return Workload((trace,))
