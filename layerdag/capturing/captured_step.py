"""A captured step: the trace of each pipeline stage's first rank, and those of all ranks."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, final

import numpy as np

from layerdag.capturing.fake_world import FakeWorld, Ranks
from layerdag.capturing.recorder import OperatorRecorder
from layerdag.codec.placement import RankTraces
from layerdag.errors import UsageError
from layerdag.hardware.collectives import CollectiveType
from layerdag.hardware.operators import OperatorKind, operator_kind
from layerdag.plan import RECORDED, StepSettings
from layerdag.runtime.notes import Note
from layerdag.simulator.compute import SKIPPED, ComputeModel
from layerdag.traces.analysis import WORLD
from layerdag.traces.builder import ragged, with_words
from layerdag.traces.pytorch.host_dataflow import HostOperations
from layerdag.traces.pytorch.importer import import_operations
from layerdag.traces.pytorch.kineto import Timings
from layerdag.traces.trace import NodeType, Ragged, Trace, Wire, Workload, communicates

_ROLE = "layerdag:group:"  # no text of a trace begins so


@final
@dataclass(frozen=True)
class CapturedStep:
    """The trace of one training step, with one rank for each pipeline stage.

    Attributes:
        stages: The trace of the first rank of each stage, one without a pipeline; groups by their
            role in the mesh, peers by their place in ``PEERS``.
        parameters: Parameters of the whole model.
        elementwise: Names of operators that work on each element alone.
        notes: What was not understood of the file that describes the model.
    """

    name: str
    stages: tuple[Trace, ...]
    world: FakeWorld
    settings: StepSettings
    parameters: int
    elementwise: frozenset[str]
    notes: tuple[Note, ...] = ()

    @property
    def trace(self) -> Trace:
        """The trace of rank 0."""
        return self.stages[0]

    def workload(self) -> Workload:
        """Return the traces of all ranks, which share their columns, with their groups.

        The group of all ranks is number 0; it needs no file.
        """
        texts = (text for trace in self.stages for text in trace.strings)
        used = dict.fromkeys(text for text in texts if text.startswith(_ROLE))
        members = {text: self.world.members(text.removeprefix(_ROLE)) for text in used}
        whole = {
            text: int(WORLD)
            for text, held_GM in members.items()
            if held_GM.shape == (1, self.world.size)
        }
        per_stage = self.world.size // len(self.stages)
        rank_R = np.arange(self.world.size)
        traces = RankTraces(
            self.stages,
            rank_R // per_stage,
            members,
            [(rank_R + step * per_stage) % self.world.size for step in (-1, 1)],
            whole,
        )
        groups = {name: ranks for name, ranks in traces.groups.items() if name != WORLD}
        return Workload(traces, groups, self.name)

    def timed(self, compute: ComputeModel) -> "CapturedStep":
        """Return the step with the times that a compute model gives its operators.

        They are in the attribute ``duration_ns``, as measured ones are.
        """
        stages = []
        for trace in self.stages:
            rows = np.flatnonzero(trace.type_N == NodeType.COMP)
            on_cpu_N = trace.integers("is_cpu_op")[0] != 0
            time_ns = compute.durations_ns(trace, rows, on_cpu_N[rows])
            kept = time_ns != SKIPPED
            word_of = dict(zip(rows[kept].tolist(), time_ns[kept].tolist(), strict=True))
            stages.append(with_words(trace, "duration_ns", Wire.INT64, word_of))
        return replace(self, stages=tuple(stages))

    def summary(self) -> dict[str, Any]:
        """Return the figures that ``layerdag capture --json`` prints, of rank 0.

        ``operators`` are nodes by kind, ``flops`` those of PyTorch's counter where it knows the
        operator (``matrix_flops``), and one for each element elsewhere. A pipeline has ``stages``,
        the figures of each one's first rank.
        """
        kind_N = self._kinds(self.trace)
        phases, _ = self.trace.texts("phase")
        counts = {kind: int((kind_N == kind).sum()) for kind in _KINDS}
        figures = {
            "model": self.name,
            "parameters": self.parameters,
            **RECORDED.facts(self.settings),
            "ranks": self.world.size,
            "nodes": self.trace.num_nodes,
            "operators": counts,
            "collectives": self._collectives,
            **self._work(self.trace),
            "bytes": int(self.trace.integers("tensor_size")[0].sum()),
            "phases": {phase: phases.count(phase) for phase in dict.fromkeys(phases)},
        }
        if len(self.stages) > 1:
            figures["stages"] = [
                {"nodes": trace.num_nodes, **self._work(trace), **_sent(trace)}
                for trace in self.stages
            ]
        return figures

    def _work(self, trace: Trace) -> dict[str, int]:
        flops_N = trace.integers("num_ops")[0]
        matrix_N = np.isin(self._kinds(trace), ("gemm", "attention", "convolution"))
        return {"flops": int(flops_N.sum()), "matrix_flops": int(flops_N[matrix_N].sum())}

    def _kinds(self, trace: Trace) -> np.ndarray:
        of_name = dict.fromkeys(trace.names(), "other")
        for name in of_name:
            if name in self.elementwise:
                of_name[name] = "elementwise"
            of_name[name] = _OF_KIND.get(operator_kind(name), of_name[name])
        kind_N = np.array([of_name[name] for name in trace.names()], dtype=object)
        kind_N[trace.type_N != NodeType.COMP] = "communication"
        return kind_N

    @property
    def _collectives(self) -> dict[str, dict[str, int]]:
        kind_N = self.trace.integers("comm_type")[0]
        size_N = self.trace.integers("comm_size")[0]
        roles, _ = self.trace.texts("pg_name")
        found: dict[str, dict[str, int]] = defaultdict(lambda: {"count": 0, "bytes": 0})
        for row in np.flatnonzero(self.trace.type_N == NodeType.COMM_COLL).tolist():
            kind = CollectiveType(kind_N[row]).name.lower()
            entry = found[f"{kind}:{roles[row].removeprefix(_ROLE)}"]
            entry["count"] += 1
            entry["bytes"] += int(size_N[row])
        return dict(found)


def _sent(trace: Trace) -> dict[str, int]:
    size_N = trace.integers("comm_size")[0][trace.type_N == NodeType.COMM_SEND]
    return {"messages": len(size_N), "sent_bytes": int(size_N.sum())}


_KINDS = ("gemm", "attention", "convolution", "elementwise", "other")
_OF_KIND: dict[OperatorKind | None, str] = {
    OperatorKind.PRODUCT: "gemm",
    OperatorKind.ATTENTION: "attention",
    OperatorKind.CONVOLUTION: "convolution",
}


def captured_trace(
    recorder: OperatorRecorder,
    world: FakeWorld,
    groups: dict[str, Ranks],
    source: str,
    tasks: Sequence[int] = (),
) -> Trace:
    """Return the trace of what was recorded, with groups by role.

    Communication is chained in program order, so that no two ranks can wait for each other.
    ``tasks`` are numbers of the operations with which the passes of a pipeline's micro-batches
    begin: each waits for the one before. Receives then wait for nothing, as a rank posts them
    before it needs them.

    Raises:
        UsageError: If nothing was recorded, or a group is no dimension of the mesh.
    """
    done = [op for op in recorder.operations if op.role.name != "ALLOCATION"]
    if not done:
        raise UsageError(f"{source}: the step runs no operator on tensors; there is no trace.")
    roles = world.groups()
    named = {op.group for op in done if op.group is not None}
    strange = [ranks for name, ranks in groups.items() if name in named and ranks not in roles]
    if strange:
        raise UsageError(
            f"{source}: a collective of ranks {list(strange[0])} is along no dimension of the mesh "
            f"{dict(world.degrees)}; what other ranks do there is not known from rank 0."
        )
    used = {name: ranks for name, ranks in groups.items() if name in named}
    names = {ranks: f"{_ROLE}{role}" for ranks, role in roles.items()}
    host = HostOperations(
        tuple(recorder.operations), (), used, {}, len(recorder.operations), source
    )
    trace = import_operations(host, Timings({}), names).trace
    begin_N = np.searchsorted([op.id for op in done], tasks)
    return replace(trace, ctrl_deps=_chained(trace, begin_N.tolist()))


def _chained(trace: Trace, tasks: Sequence[int]) -> Ragged:
    """Return the control dependencies with each communication after the one before.

    Where there are tasks, what begins one waits for the last operator of the task before.
    """
    ctrl = [trace.ctrl_deps.of(row).tolist() for row in range(trace.num_nodes)]
    posted_N = (trace.type_N == NodeType.COMM_RECV) & bool(tasks)
    spoken = np.flatnonzero(communicates(trace.type_N) & ~posted_N).tolist()
    for before, after in pairwise(spoken):
        number = int(trace.id_N[before])
        if number not in ctrl[after] and number not in trace.data_deps.of(after):
            ctrl[after] = sorted([*ctrl[after], number])
    computes = (trace.type_N == NodeType.COMP).tolist()
    for first, end in pairwise([*tasks, trace.num_nodes]):
        last = next((row for row in range(first - 1, -1, -1) if computes[row]), None)
        for row in range(first, end if last is not None else first):
            data = set(trace.data_deps.of(row).tolist())
            inside = any(first <= other < end for other in (*ctrl[row], *data))
            if computes[row] and not inside:
                ctrl[row] = sorted({*ctrl[row], last} - data)
    return ragged(ctrl)
