"""``GraphKind``: what differs between jobs, programs and flow graphs below the sampler."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from layerdag.graph.attributed_graph import AttributedGraph

if TYPE_CHECKING:
    from layerdag.samples.stored import StoredSample


@dataclass(frozen=True)
class ModelDefaults:
    """Settings of a model that are left open, by the kind of its graphs.

    "observed" restricts neighbors and attributes of nodes (``constraints``), or types of the edges
    into a node, to those of several training graphs. ``encodes_sizes`` encodes the nodes and layers
    to come, if they are conditions; ``draws_out_degrees`` draws the number of a node's children.
    """

    constraints: Literal["observed", "unlimited"]
    edge_types: Literal["observed", "unlimited"]
    encodes_sizes: bool
    draws_out_degrees: bool


@dataclass(frozen=True)
class Card:
    """Words for pages about a set of samples: what they are, their files and their labels."""

    title: str
    graphs: str
    encoding: str
    target: str
    label: str
    files: str
    pattern: str
    media_type: str


class GraphKind(ABC):
    """A kind of graphs: how they are encoded, compared, checked, written and described.

    Jobs have traces, one per rank. Programs have steps: training steps are derived from them, and
    a table of sizes is among their conditions. ``known_words`` are the attributes and conditions
    whose words are public, ``formats`` those of a sample's files, the usual one first, of which
    ``row_format`` is about as large as a row in a table. ``caution`` is what samples cannot
    guarantee.
    """

    name: ClassVar[str]
    plural: ClassVar[str]
    has_traces: ClassVar[bool] = False
    has_steps: ClassVar[bool] = False
    known_words: ClassVar[tuple[str, ...]] = ()
    largest_number: ClassVar[float] = math.inf
    models: ClassVar[ModelDefaults]
    formats: ClassVar[tuple[str, ...]]
    row_format: ClassVar[str]
    caution: ClassVar[str] = ""
    card: ClassVar[Card]

    @property
    def notice(self) -> dict[str, str]:
        """The caution as an entry of a manifest, if there is one."""
        return {"caution": self.caution} if self.caution else {}

    def kept_as_read(self, graphs: Sequence[AttributedGraph]) -> Sequence[AttributedGraph]:
        """Return the graphs that a data set keeps beside their codes, which round numbers."""
        return ()

    @abstractmethod
    def describes(self, graph: AttributedGraph) -> bool:
        """Return whether a graph has the attributes of this kind."""

    def with_vocabularies(self, graph: AttributedGraph) -> AttributedGraph:
        """Return a graph with the vocabularies that all graphs of this kind have."""
        return graph

    def require_public(self, graphs: Sequence[AttributedGraph], source: str) -> None:
        """Raise DataError if too much of the graphs is private to be learned."""
        del graphs, source  # words of other graphs are renamed instead

    def stored_graph(self, sample: "StoredSample") -> AttributedGraph:
        """Return the graph of a stored sample that is compared with graphs of this kind."""
        return sample.graph

    def comparable(self, sample: Any) -> Any:
        """Return a sample of any kind as it is compared with graphs of this kind."""
        return sample

    def step_of(self, sample: Any) -> Any:
        """Return a sample of this kind as it is compared with jobs."""
        return sample

    def __repr__(self) -> str:
        """Return the name."""
        return self.name
