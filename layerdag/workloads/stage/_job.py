"""A job: STAGE's flags, its ranks and groups, the traces of all ranks, their figures."""

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, final

import numpy as np

from layerdag.traces import Trace, Workload
from layerdag.workloads.ranks import RankTraces
from layerdag.workloads.stage._figures import StageFigures
from layerdag.workloads.stage._flags import StageFlags
from layerdag.workloads.stage._programs import stage_programs


@final
@dataclass(frozen=True)
class StageJob:
    """One training step as STAGE describes it.

    Sizes are numbers of elements, not bytes; a multiply-accumulate counts one operation.

    Attributes:
        flags: The model and how it is split.
    """

    flags: StageFlags

    @cached_property
    def stages(self) -> tuple[Trace, ...]:
        """The program of each pipeline stage; groups are degrees, peers are stages."""
        return stage_programs(self.flags)

    @cached_property
    def figures(self) -> tuple[StageFigures, ...]:
        """What one rank of each stage does."""
        return tuple(StageFigures.of(program) for program in self.stages)

    @property
    def nodes(self) -> int:
        """Nodes of all ranks."""
        return self.flags.ranks_per_stage * sum(trace.num_nodes for trace in self.stages)

    def workload(self) -> Workload:
        """Return the traces of all ranks with their groups; each is made when it is asked for."""
        flags = self.flags
        traces = RankTraces(self.stages, stage_of_rank(flags), groups(flags), peers(flags))
        return Workload(traces, traces.groups, f"STAGE's {flags.model_type}")

    def summary(self, file: str = "w.%d.et") -> dict[str, Any]:
        """Return the figures of all ranks, which are found without making their traces.

        Args:
            file: Name of a rank's file, by which its figures are found.

        Returns:
            "flags", "ranks", "nodes", "comm_groups" (ranks by number of the group) and
            "per_rank": nodes, types, dependencies, operators, operations, elements,
            communication.
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


def stage_of_rank(flags: StageFlags) -> np.ndarray:
    """Return the pipeline stage of each rank, int64 (R,)."""
    return np.arange(flags.ranks) // flags.ranks_per_stage
