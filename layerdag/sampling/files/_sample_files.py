"""The files of one sample: the traces of a job, one per rank, or one file of a flow graph."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from layerdag._runtime import Limits, require_few_ranks, written_bytes
from layerdag.codec import AttributedGraph, Unfolded, fitting_ranks, unfold_sampled
from layerdag.datasets.files import encode_graphml, encode_json, write_graphml, write_json
from layerdag.sampling.files._volume import asked_ranks
from layerdag.traces import encode_workload, write_workload


def as_workload(
    graph: AttributedGraph, ranks: int | None = None, limits: Limits | None = None
) -> Unfolded:
    """Return the traces of a job's graph, on ``ranks`` or as many as the graph's condition says.

    Without ``ranks`` the condition "world_size" decides. A job that cannot run on so many ranks
    gets the next number on which it can, which counts as a repair.

    Raises:
        DataError: If it is not the graph of a job, or its world size is no number.
        UsageError: If it has more ranks than ``limits`` (by default the usual ones) allow.
    """
    wanted = asked_ranks(graph.conditions, ranks)
    fitting = job_ranks(graph, ranks, limits)
    unfolded = unfold_sampled(graph, fitting)
    if fitting == wanted:
        return unfolded
    return replace(unfolded, repairs={**unfolded.repairs, "ranks_raised": fitting - wanted})


def job_ranks(
    graph: AttributedGraph, ranks: int | None = None, limits: Limits | None = None
) -> int:
    """Return the number of ranks of ``as_workload``, which raises the same errors."""
    fitting = fitting_ranks(graph, asked_ranks(graph.conditions, ranks))
    require_few_ranks(fitting, limits or Limits(), graph.name)
    return fitting


@dataclass(frozen=True, eq=False)
class SampleFiles:
    """One sample before it is written.

    Attributes:
        graph: Its names and numbers.
        file_format: "et", "graphml" or "json".
        unfolded: The traces, in the format "et".
    """

    graph: AttributedGraph
    file_format: str
    unfolded: Unfolded | None

    @classmethod
    def of(
        cls, graph: AttributedGraph, file_format: str, ranks: int | None, limits: Limits
    ) -> "SampleFiles":
        """Return the files of a graph. Raises as ``as_workload``."""
        is_job = file_format == "et"
        return cls(graph, file_format, as_workload(graph, ranks, limits) if is_job else None)

    @property
    def num_bytes(self) -> int:
        """About how large the files are together."""
        nodes = self.graph.num_nodes
        if self.unfolded is not None:
            nodes = sum(trace.num_nodes for trace in self.unfolded.workload.traces)
        return written_bytes(nodes, self.file_format)

    def encoded(self) -> tuple[Mapping[str, object], list[tuple[str, bytes]]]:
        """Return what the entry says of them, and name and content of each file."""
        name = self.graph.name
        if self.unfolded is not None:
            return self._facts(self.unfolded), encode_workload(self.unfolded.workload, name)
        encode = encode_graphml if self.file_format == "graphml" else encode_json
        file = f"{name}.{self.file_format}"
        return {"file": file}, [(file, encode(self.graph))]

    def write(self, folder: Path) -> Mapping[str, object]:
        """Write them into ``folder`` and return what the manifest says of them."""
        name = self.graph.name
        if self.unfolded is not None:
            (folder / name).mkdir()
            write_workload(self.unfolded.workload, folder / name / name)
            return self._facts(self.unfolded)
        path = folder / f"{name}.{self.file_format}"
        (write_graphml if self.file_format == "graphml" else write_json)(path, self.graph)
        return {"file": path.name}

    @staticmethod
    def _facts(unfolded: Unfolded) -> Mapping[str, object]:
        """Return what the manifest says of the traces of a job."""
        return {
            "ranks": unfolded.workload.num_ranks,
            "repairs": dict(unfolded.repairs),
            "completions": dict(unfolded.completions),
        }
