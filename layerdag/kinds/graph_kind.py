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

    Attributes:
        constraints: "observed": nodes have the neighbors and attributes that several training
            graphs have; "unlimited": any.
        edge_types: The same for the types of the edges into a node.
        encodes_sizes: Whether the nodes and layers to come are encoded, if they are conditions.
        draws_out_degrees: Whether the number of children of a node is drawn.
    """

    constraints: Literal["observed", "unlimited"]
    edge_types: Literal["observed", "unlimited"]
    encodes_sizes: bool
    draws_out_degrees: bool


@dataclass(frozen=True)
class Card:
    """Words for pages about a set of samples, and their files.

    Attributes:
        title: What the samples are; ``graphs`` is the same beside a number of them.
        encoding: Format of their files.
        target: What a surrogate predicts.
        label: Meaning of the column of labels.
        files: Description of their files.
        pattern: Names of their files in the folder of samples.
        media_type: Of a file.
    """

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

    Attributes:
        name: In schemas and checkpoints.
        plural: For messages.
        has_traces: Whether a graph is a job, which unfolds into one trace per rank.
        has_steps: Whether it is a program, with a table of sizes among its conditions, from which
            training steps are derived.
        known_words: Attributes and conditions whose words are public.
        largest_number: Upper bound of the numbers of a node.
        models: Defaults of models.
        formats: Formats of a sample's files, the usual one first.
        row_format: The one of about the size of a row in a table.
        caution: What samples cannot guarantee; "" for nothing.
        card: For pages about samples.
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
