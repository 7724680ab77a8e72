"""Jobs derived from sampled programs with the plan that was asked for, and written beside them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import final

from layerdag.graph.attributed_graph import LABEL
from layerdag.programs.targets import Targets, step_time_of
from layerdag.runtime.reading import NODE_BYTES, Limits, require_few_ranks
from layerdag.sampling.generated import GeneratedGraph
from layerdag.traces.chakra.workload import write_workload
from layerdag.traces.trace import Workload


@final
@dataclass(frozen=True, eq=False)
class JobFiles:
    """The traces of a step of a sampled program, before they are written.

    Attributes:
        name: Of the sample.
        workload: The traces of all ranks.
        targets: With the plan, and the cluster on which the step is simulated.
    """

    name: str
    workload: Workload
    targets: Targets

    @classmethod
    def of(
        cls, sample: GeneratedGraph, targets: Targets | None, limits: Limits
    ) -> "JobFiles | None":
        """Return the job of a sample; None where no plan was asked for.

        Raises:
            UsageError: If it has more ranks than the limits allow, or the plan does not fit.
        """
        if targets is None or not targets.plan:
            return None
        step = sample.program.step(**targets.plan)
        require_few_ranks(step.world.size, limits, sample.name)
        return cls(sample.name, step.workload(), targets)

    @property
    def num_bytes(self) -> int:
        """About how large the files are together."""
        nodes = sum(trace.num_nodes for trace in self.workload.traces)
        return int(nodes * NODE_BYTES["et"])

    def write(self, folder: Path) -> Mapping[str, object]:
        """Write the traces and return what the manifest says of them.

        The label is the time of the finished job, in seconds.
        """
        (folder / self.name).mkdir()
        write_workload(self.workload, folder / self.name / self.name)
        return {
            "ranks": self.workload.num_ranks,
            LABEL: step_time_of(self.workload, self.targets),
        }
