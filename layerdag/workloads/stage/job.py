"""A job of STAGE: ranks, groups, figures."""

from collections import Counter
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, final

import numpy as np

from layerdag.codec.placement import RankTraces
from layerdag.hardware.collectives import CollectiveType
from layerdag.traces.trace import NodeType, Trace, Workload
from layerdag.workloads.stage.flags import StageFlags
from layerdag.workloads.stage.traces import traces_of_stages


@final
@dataclass(frozen=True)
class StageFigures:
    """Figures of one rank of a stage.

    ``communication`` has the nodes and their ``comm_size`` together, by kind ("ALL_REDUCE@pg",
    "SEND->", "RECV<-") and degree or, in messages, stage.
    """

    operators: dict[str, Any]
    communication: dict[tuple[str, str | int], tuple[int, int]]

    @classmethod
    def from_trace(cls, trace: Trace) -> "StageFigures":
        """Count the nodes of a stage's trace."""
        kinds = Counter(NodeType(kind).name.removeprefix("COMM_") for kind in trace.type_N.tolist())
        count: Counter[str] = Counter()
        operations: Counter[str] = Counter()
        cost_N = trace.integers("num_ops")[0].tolist()
        name_N, named_N = trace.texts("op_type")
        for row in np.flatnonzero(named_N).tolist():
            count[name_N[row]] += 1
            operations[name_N[row]] += cost_N[row]
        operators = {
            "nodes": trace.num_nodes,
            "types": dict(kinds),
            "data_deps": int(trace.data_deps.ptr_N1[-1]),
            "comp_by_op_type": dict(count),
            "num_ops_by_op_type": dict(operations),
            "num_ops": sum(operations.values()),
            "tensor_size_elems": int(trace.integers("tensor_size")[0].sum()),
        }
        return cls(operators, _communication(trace))

    def of_rank(self, group: dict[str, str], peer: list[int]) -> dict[str, Any]:
        """Return all figures of one rank, which has a group of each degree and a peer a stage."""
        count, elements = {}, {}
        for (kind, place), (nodes, size) in self.communication.items():
            whom = f"{kind}{peer[place] if isinstance(place, int) else group[place]}"
            count[whom], elements[whom] = nodes, size
        return self.operators | {"comm_count": count, "comm_elems": elements}


def _communication(trace: Trace) -> dict[tuple[str, str | int], tuple[int, int]]:
    found: dict[tuple[str, str | int], tuple[int, int]] = {}
    size, kind, source, target = (
        trace.integers(name)[0].tolist()
        for name in ("comm_size", "comm_type", "comm_src", "comm_dst")
    )
    degree_N, _ = trace.texts("pg_name")
    for row in np.flatnonzero(trace.type_N >= NodeType.COMM_SEND).tolist():
        whom: tuple[str, str | int]
        if trace.type_N[row] == NodeType.COMM_SEND:
            whom = ("SEND->", target[row])
        elif trace.type_N[row] == NodeType.COMM_RECV:
            whom = ("RECV<-", source[row])
        else:
            whom = (f"{CollectiveType(kind[row]).name}@pg", degree_N[row])
        count, elements = found.get(whom, (0, 0))
        found[whom] = count + 1, elements + size[row]
    return found


@final
@dataclass(frozen=True)
class StageJob:
    """One training step as STAGE describes it.

    Sizes are numbers of elements, not bytes; a multiply-accumulate counts one operation.
    """

    flags: StageFlags

    @cached_property
    def stages(self) -> tuple[Trace, ...]:
        """The trace of each pipeline stage; groups are degrees, peers are stages."""
        return traces_of_stages(self.flags)

    @cached_property
    def figures(self) -> tuple[StageFigures, ...]:
        """Figures of one rank of each stage."""
        return tuple(StageFigures.from_trace(trace) for trace in self.stages)

    @property
    def nodes(self) -> int:
        """Nodes of all ranks."""
        return self.flags.ranks_per_stage * sum(trace.num_nodes for trace in self.stages)

    def workload(self) -> Workload:
        """Return the traces of all ranks with their groups; each is made when it is asked for."""
        flags = self.flags
        stage_R = np.arange(flags.ranks) // flags.ranks_per_stage
        traces = RankTraces(self.stages, stage_R, groups(flags), peers(flags))
        return Workload(traces, traces.groups, f"STAGE's {flags.model_type}")

    def summary(self, file: str = "w.%d.et") -> dict[str, Any]:
        """Return the figures of all ranks, which are found without making their traces.

        Those of one rank are under the name of its ``file``; groups are under their numbers.
        """
        flags = self.flags
        number_R = {degree: found.tolist() for degree, found in group_numbers(flags).items()}
        peer_R = [ranks.tolist() for ranks in peers(flags)]
        per_rank = {}
        for rank in range(flags.ranks):
            group = {degree: str(number[rank]) for degree, number in number_R.items()}
            found = self.figures[rank // flags.ranks_per_stage]
            per_rank[file.replace("%d", str(rank))] = found.of_rank(
                group, [ranks[rank] for ranks in peer_R]
            )
        return {
            "flags": asdict(flags),
            "ranks": flags.ranks,
            "nodes": self.nodes,
            "comm_groups": {name: list(ranks) for name, ranks in self.workload().groups.items()},
            "per_rank": per_rank,
        }


def rank_grid(flags: StageFlags) -> np.ndarray:
    """Return all ranks, int64 (pp, *degrees); the first degree is that of neighbors."""
    sizes = tuple(flags.degrees.values())
    ranks = np.arange(flags.ranks).reshape(flags.pp, *reversed(sizes))
    return ranks.transpose(0, *range(len(sizes), 0, -1))


def groups(flags: StageFlags) -> dict[str, np.ndarray]:
    """Return the groups of each degree, int64 (groups, members), in the order of their numbers.

    Within a degree the stage varies slowest, then the other degrees in their order; degrees of one
    have groups of one rank.
    """
    grid = rank_grid(flags)
    found = {}
    for axis, (degree, size) in enumerate(flags.degrees.items(), 1):
        found[degree] = np.moveaxis(grid, axis, -1).reshape(-1, size)
    return found


def peers(flags: StageFlags) -> list[np.ndarray]:
    """Return each rank's partner in each stage, int64 (R,): the one at its own place there."""
    position_R = np.arange(flags.ranks) % flags.ranks_per_stage
    return [stage * flags.ranks_per_stage + position_R for stage in range(flags.pp)]


def group_numbers(flags: StageFlags) -> dict[str, np.ndarray]:
    """Return the number of each rank's group of each degree, int64 (R,); the first is 1."""
    found: dict[str, np.ndarray] = {}
    first = 1
    for degree, rank_GM in groups(flags).items():
        found[degree] = np.zeros(flags.ranks, dtype=np.int64)
        found[degree][rank_GM] = first + np.arange(len(rank_GM))[:, None]
        first += len(rank_GM)
    return found
