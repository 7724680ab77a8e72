"""Programs of classes of ranks on another mesh: groups, peers, and the traces of all ranks."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from layerdag.errors import TraceError
from layerdag.traces import Trace, Workload
from layerdag.traces.analysis import WORLD_NAMES
from layerdag.workloads.ranks import RankTraces
from layerdag.workloads.scaling._mesh import Mesh
from layerdag.workloads.scaling._roles import Job, Role


@dataclass(frozen=True, eq=False)
class Layout:
    """Where the classes of a job run after its degrees have changed.

    Attributes:
        job: As it was, with its groups and mesh.
        mesh: The new ranks; axes in the same order.
        traces: The program of each new class, with the groups and peers of the old job.
        origin: Class of the old job of each new class.
        class_R: New class of each new rank.
    """

    job: Job
    mesh: Mesh
    traces: tuple[Trace, ...]
    origin: tuple[int, ...]
    class_R: np.ndarray

    def workload(self) -> Workload:
        """Return the traces of all ranks; each is made when it is asked for."""
        texts = {role: f"role {number}" for number, role in enumerate(self.job.roles)}
        steps: dict[tuple[int, ...], int] = {}
        programs = [
            self._with_peers(self._with_roles(trace, old, texts), old, steps)
            for trace, old in zip(self.traces, self.origin, strict=True)
        ]
        used = {text for trace in programs for text in trace.strings}
        members = {
            text: self.mesh.groups(role.extents) for role, text in texts.items() if text in used
        }
        peers = [self._peers(step) for step in steps]
        traces = RankTraces(programs, self.class_R, members, peers, self._numbers(texts))
        return Workload(traces, traces.groups, self.job.source)

    def _numbers(self, texts: dict[Role, str]) -> dict[str, int]:
        """Return 0 for the group of all ranks, if it had this name."""
        found = {}
        for program, roles in zip(self.job.programs, self.job.role_CN, strict=True):
            for group, role in zip(program.group_N, roles, strict=True):
                if role is not None and group in WORLD_NAMES and group:
                    found[texts[role]] = int(group)
        return found

    def _with_roles(self, trace: Trace, old: int, texts: dict[Role, str]) -> Trace:
        """Return a program whose collectives name roles."""
        pairs = zip(self.job.programs[old].group_N, self.job.role_CN[old], strict=True)
        role_of = {group: role for group, role in pairs if role is not None}
        table = trace.attributes
        named_A = [trace.strings[name] == "pg_name" for name in table.name_A.tolist()]
        strings, word_A = list(trace.strings), table.word_A.copy()
        index_of: dict[Role, int] = {}
        for row in np.flatnonzero(named_A).tolist():
            role = role_of.get(trace.strings[int(word_A[row])])
            if role is not None:
                if role not in index_of:
                    index_of[role] = len(strings)
                    strings.append(texts[role])
                word_A[row] = index_of[role]
        return replace(trace, strings=tuple(strings), attributes=replace(table, word_A=word_A))

    def _with_peers(self, trace: Trace, old: int, steps: dict[tuple[int, ...], int]) -> Trace:
        """Return a program whose messages name steps on the mesh."""
        table = trace.attributes
        named = [trace.strings.index(n) for n in ("comm_dst", "comm_src") if n in trace.strings]
        row_M = np.flatnonzero(np.isin(table.name_A, named))
        if not row_M.size:
            return trace
        mesh = self.job.mesh
        own_A = mesh.coordinates(np.array(self.job.programs[old].ranks[:1]))[0]
        step_MA = mesh.coordinates(table.word_A[row_M].astype(np.int64)) - own_A
        moved = [
            axis for axis in range(len(mesh.sizes)) if mesh.sizes[axis] != self.mesh.sizes[axis]
        ]
        if step_MA[:, moved].any():
            raise TraceError(
                f"{trace.source}: messages go along an axis whose size changes; what a longer "
                "chain of ranks sends is not determined. Leave this degree as it is."
            )
        word_A = table.word_A.copy()
        word_A[row_M] = [steps.setdefault(tuple(step), len(steps)) for step in step_MA.tolist()]
        return replace(trace, attributes=replace(table, word_A=word_A))

    def _peers(self, step: Sequence[int]) -> np.ndarray:
        """Return the rank one step away from each, around the mesh, int64 (R,)."""
        position_RA = (self.mesh.position_RA + np.array(step)) % np.array(self.mesh.sizes)
        return self.mesh.ranks(position_RA)
