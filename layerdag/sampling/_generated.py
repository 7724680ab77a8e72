"""One sampled graph: as codes, in names and numbers, and as traces."""

from dataclasses import dataclass
from functools import cached_property

from layerdag.codec import AttributedGraph
from layerdag.datasets.schema import GraphSchema
from layerdag.graph import DAG
from layerdag.sampling._sample_files import as_workload
from layerdag.traces import Workload


@dataclass(frozen=True, eq=False)
class GeneratedGraph:
    """One sampled graph.

    Attributes:
        name: "sample-" and its number.
        seed: It was sampled with.
        dag: Codes, with the requested conditions; the label is predicted with ``labels=predicted``.
        truncated: Whether a limit cut it short.
        schema: What the codes mean.
    """

    name: str
    seed: int
    dag: DAG
    truncated: bool
    schema: GraphSchema

    @cached_property
    def graph(self) -> AttributedGraph:
        """The graph in names and numbers."""
        return self.schema.decode(self.dag, self.name)

    def workload(self, ranks: int | None = None) -> Workload:
        """Return the traces of the job, on ``ranks`` or as many as its condition "world_size" says.

        A job that cannot run on so many ranks gets the next number on which it can.

        Raises:
            DataError: If it is not the graph of a job.
        """
        return as_workload(self.graph, ranks).workload

    def __repr__(self) -> str:
        """Return name, seed and sizes, not the tensors."""
        cut = ", truncated" if self.truncated else ""
        return f"GeneratedGraph({self.name!r}, seed={self.seed}, {self.dag!r}{cut})"
