"""One sampled graph: as codes, in names and numbers, and as traces."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from layerdag.codec import COMMUNICATION, NONE, OTHER, AttributedGraph
from layerdag.datasets.schema import CategoryAttribute, GraphSchema
from layerdag.graph import DAG
from layerdag.sampling.files import as_workload
from layerdag.traces import Workload


def sample_name(index: int) -> str:
    """Return the name of sample ``index`` of a run."""
    return f"sample-{index:05d}"


def knows_communication(schema: GraphSchema) -> bool:
    """Return whether some training job had a collective, in a group that it names."""
    groups = [
        a for a in schema.attributes if a.name == "group" and isinstance(a, CategoryAttribute)
    ]
    return any(set(attribute.values) - {NONE, OTHER} for attribute in groups)


@dataclass(frozen=True, eq=False)
class GeneratedGraph:
    """One sampled graph.

    Attributes:
        name: "sample-" and its number.
        seed: It was sampled with.
        dag: Codes, with the requested conditions; the label is predicted with ``labels=predicted``.
        truncated: Whether a limit cut it short.
        schema: What the codes mean.
        numbers: Values of numeric attributes, where they are known better than positions in bins
            tell: those of costs that programs have. float64 (N,), NaN for absent.
    """

    name: str
    seed: int
    dag: DAG
    truncated: bool
    schema: GraphSchema
    numbers: Mapping[str, np.ndarray] = field(default_factory=dict)

    @cached_property
    def graph(self) -> AttributedGraph:
        """The graph in names and numbers, with all copies of its blocks."""
        return self.schema.whole(self.decoded)

    @cached_property
    def decoded(self) -> AttributedGraph:
        """The graph in names and numbers, with the nodes of ``dag``."""
        graph = self.schema.decode(self.dag, self.name)
        return replace(graph, numbers={**graph.numbers, **self.numbers})

    @property
    def lacks_communication(self) -> bool:
        """Whether it is a job that was requested on several ranks, which exchange nothing."""
        if str(self.dag.conditions.get("world_size", "1")) == "1":
            return False
        types = self.decoded.categories.get("type", ())
        return bool(types) and COMMUNICATION.isdisjoint(types)

    def with_numbers(self, numbers: Mapping[str, np.ndarray]) -> "GeneratedGraph":
        """Return the graph with these numbers, in its codes and positions, too."""
        named = replace(self, numbers=numbers)
        coded = self.schema.codes(named.decoded)
        return replace(named, dag=self.dag.with_columns(coded.x_NA, coded.u_NA))

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
