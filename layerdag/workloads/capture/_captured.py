"""A captured step: its trace on every rank, and its figures."""

from collections import defaultdict
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, final

import numpy as np

from layerdag.errors import UsageError
from layerdag.traces import CollectiveType, NodeType, Ragged, Trace, Workload
from layerdag.traces.analysis import WORLD
from layerdag.traces.chakra import ragged
from layerdag.traces.pytorch.device import Timings
from layerdag.traces.pytorch.host import HostOperations, import_operations
from layerdag.workloads.capture._recorder import Recorder
from layerdag.workloads.capture._settings import Settings
from layerdag.workloads.capture._world import Ranks, World

_ROLE = "layerdag:group:"  # no text of a trace begins so
_PRODUCTS = frozenset(
    f"aten::{name}"
    for name in ("mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot", "_scaled_mm", "_int_mm")
)


@final
@dataclass(frozen=True)
class CapturedStep:
    """What rank 0 does in one step; other ranks do the same in groups of their own.

    Attributes:
        name: Of the model.
        program: The trace of rank 0, groups by their role in the mesh.
        world: The ranks.
        settings: What was captured.
        parameters: Parameters of the whole model.
        elementwise: Names of operators that work on each element alone.
    """

    name: str
    program: Trace
    world: World
    settings: Settings
    parameters: int
    elementwise: frozenset[str]

    def workload(self) -> Workload:
        """Return the traces of all ranks, which share their columns, with their groups."""
        used = [text for text in self.program.strings if text.startswith(_ROLE)]
        names, groups = _numbered(self.world, [text.removeprefix(_ROLE) for text in used])
        traces = tuple(_renamed(self.program, names, rank) for rank in range(self.world.size))
        return Workload(traces, groups, self.name)

    def summary(self) -> dict[str, Any]:
        """Return the figures that ``layerdag capture --json`` prints, of rank 0.

        ``operators`` are nodes by kind, ``flops`` those of PyTorch's counter where it knows the
        operator (``matrix_flops``), and one for each element elsewhere.
        """
        kind_N = self._kinds
        flops_N = self.program.integers("num_ops")[0]
        phases, _ = self.program.texts("phase")
        counts = {kind: int((kind_N == kind).sum()) for kind in _KINDS}
        matrix_N = np.isin(kind_N, ("gemm", "attention", "convolution"))
        return {
            "model": self.name,
            "parameters": self.parameters,
            "plan": asdict(self.settings.plan),
            "step": asdict(self.settings.step),
            "ranks": self.world.size,
            "nodes": self.program.num_nodes,
            "operators": counts,
            "collectives": self._collectives,
            "flops": int(flops_N.sum()),
            "matrix_flops": int(flops_N[matrix_N].sum()),
            "bytes": int(self.program.integers("tensor_size")[0].sum()),
            "phases": {phase: phases.count(phase) for phase in dict.fromkeys(phases)},
        }

    @cached_property
    def _kinds(self) -> np.ndarray:
        """The kind of each node, one of ``_KINDS`` or "communication"."""
        of_name = {name: _kind(name, self.elementwise) for name in set(self.program.names())}
        kinds = [of_name[name] for name in self.program.names()]
        kind_N = np.array(kinds, dtype=object)
        kind_N[self.program.type_N != NodeType.COMP] = "communication"
        return kind_N

    @property
    def _collectives(self) -> dict[str, dict[str, int]]:
        """Nodes and bytes of each kind of collective in each role."""
        kind_N = self.program.integers("comm_type")[0]
        size_N = self.program.integers("comm_size")[0]
        roles, _ = self.program.texts("pg_name")
        found: dict[str, dict[str, int]] = defaultdict(lambda: {"count": 0, "bytes": 0})
        for row in np.flatnonzero(self.program.type_N == NodeType.COMM_COLL).tolist():
            kind = CollectiveType(kind_N[row]).name.lower()
            entry = found[f"{kind}:{roles[row].removeprefix(_ROLE)}"]
            entry["count"] += 1
            entry["bytes"] += int(size_N[row])
        return dict(found)


_KINDS = ("gemm", "attention", "convolution", "elementwise", "other")


def _kind(name: str, elementwise: frozenset[str]) -> str:
    """Return the kind of an operator."""
    plain = name.removesuffix("_")
    if plain in _PRODUCTS:
        return "gemm"
    if "attention" in name:
        return "attention"
    if "convolution" in name:
        return "convolution"
    return "elementwise" if name in elementwise else "other"


def captured_trace(
    recorder: Recorder, world: World, groups: dict[str, Ranks], source: str
) -> Trace:
    """Return the trace of what was recorded, with groups by role.

    Communication is chained in program order, so that no two ranks can wait for each other.

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
    return replace(trace, ctrl_deps=_chained(trace))


def _chained(trace: Trace) -> Ragged:
    """Return the control dependencies with each communication after the one before."""
    ctrl = [trace.ctrl_deps.of(row).tolist() for row in range(trace.num_nodes)]
    spoken = np.flatnonzero(trace.type_N >= NodeType.COMM_SEND).tolist()
    for before, after in pairwise(spoken):
        number = int(trace.id_N[before])
        if number not in ctrl[after] and number not in trace.data_deps.of(after):
            ctrl[after] = sorted([*ctrl[after], number])
    return ragged(ctrl, trace.source)


def _numbered(
    world: World, roles: list[str]
) -> tuple[dict[str, np.ndarray], dict[str, tuple[int, ...]]]:
    """Return the number of each rank's group by role, and the ranks of each number.

    The group of all ranks is number 0; it needs no file where it is the only one.
    """
    names: dict[str, np.ndarray] = {}
    groups: dict[str, tuple[int, ...]] = {}
    for role in roles:
        member_GM = world.members(role)
        first = len(groups) + 1
        if len(member_GM) == 1:
            names[role] = np.full(world.size, int(WORLD))
            continue
        names[role] = np.zeros(world.size, dtype=np.int64)
        names[role][member_GM] = first + np.arange(len(member_GM))[:, None]
        groups.update((str(first + g), tuple(r)) for g, r in enumerate(member_GM.tolist()))
    return names, groups


def _renamed(trace: Trace, names: dict[str, np.ndarray], rank: int) -> Trace:
    """Return the program as one rank runs it."""
    own = {f"{_ROLE}{role}": str(number_R[rank]) for role, number_R in names.items()}
    return replace(trace, strings=tuple(own.get(text, text) for text in trace.strings))
