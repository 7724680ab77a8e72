"""Interface of every generative model of DAGs: losses and samples.

Shape letters: A node attributes, B graphs, C numeric conditions, F feature columns, M categorical
conditions, R rows, X selected graphs.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from layerdag.dag.dag import DAG, DAGBatch
from layerdag.errors import UsageError


@dataclass(frozen=True)
class LossTerm:
    """A loss as a sum and the number of decisions in it, so that batches can be combined."""

    total: Float[Tensor, ""]  # scalar tensor, nats summed over ``count`` decisions
    count: Float[Tensor, ""] | Int[Tensor, ""] | float  # decisions; a number where it is known

    def __add__(self, other: "LossTerm") -> "LossTerm":
        return LossTerm(self.total + other.total, self.count + other.count)

    def mean(self) -> Float[Tensor, ""]:
        """Return the mean in nats per decision."""
        if isinstance(self.count, Tensor):
            return self.total / self.count.clamp(min=1)
        return self.total / max(self.count, 1)


@dataclass(frozen=True, eq=False)
class JointCodeMasks:
    """The codes that nodes of samples can have by the meaning of the codes, not by training."""

    pairs_FF: Bool[Tensor, "F F"]  # which codes of all attributes one node can have together
    graph_BF: Bool[Tensor, "B F"]  # which codes the nodes of each graph can have


Faults = Callable[[Sequence[DAG]], Sequence[float]]
"""How much is wrong with each of some finished graphs, the candidates of a graph in a row."""


class PartialCheck(ABC):
    """Tells while graphs are drawn, node by node, which of them can still become valid.

    One row per graph; a sampler adds a node to every row, and copies rows.
    """

    @abstractmethod
    def start(self, rows: int) -> None:
        """Begin with so many empty graphs."""

    @abstractmethod
    def add(
        self,
        x_BA: Int[Tensor, "B A"],
        row_X: Int[Tensor, " X"],
        parent_X: Int[Tensor, " X"],
        type_X: Int[Tensor, " X"],
    ) -> Bool[Tensor, " B"]:
        """Add a node to every graph and return which of them can still become valid.

        Parents are numbered in the order in which nodes were added; there is one row, parent and
        type for each edge.
        """

    @abstractmethod
    def may_end(self) -> Bool[Tensor, " B"]:
        """Return which graphs are valid as they are."""

    @abstractmethod
    def select(self, row_R: Int[Tensor, " R"]) -> None:
        """Keep the rows ``row_R``, each as often as it is named."""


@dataclass(frozen=True, eq=False)
class SampleRequest:
    """What to sample: one row of conditions and one seed per graph."""

    numeric_BC: Float[Tensor, "B C"]  # float32 standardized conditions; NaN is unknown
    category_BM: Int[Tensor, "B M"]  # int64 condition codes; -1 is unknown
    # one seed per graph; a graph depends only on its own seed and conditions
    seeds: tuple[int, ...]
    max_nodes: int = 10_000  # largest number of nodes; a graph that would exceed it is truncated
    max_layers: int = 2_000  # largest number of layers, likewise
    steps: int | None = None  # denoising steps of `reference`; None takes those of training
    guidance: float = 1.0  # weight of classifier-free guidance; 1 is plain conditioning
    # Of every decision, after guidance: logits are divided by it. 1 is the model's own
    # distribution, less is sharper; `reference` knows no other than 1.
    temperature: float = 1.0
    # Graphs drawn for each one that is kept, by how well it fits its conditions and the neighbors
    # that training shows; `reference` draws one.
    best_of: int = 1
    # float32 number of nodes that each graph is to have; NaN, or None for all, asks for none.
    # `fast` counts them down and chooses candidates by it, `reference` takes none.
    nodes_B: Float[Tensor, " B"] | None = None
    layers_B: Float[Tensor, " B"] | None = None  # likewise of layers; `fast` counts them down
    possible: JointCodeMasks | None = None  # what is ruled out while `fast` samples
    faults: Faults | None = None  # what counts against candidates beside the model's score
    # Which graphs can still become valid while `fast` draws them; particles that cannot are
    # replaced by others, and a graph of which none is left is truncated.
    check: PartialCheck | None = None

    @property
    def sizes_B2(self) -> Float[Tensor, "B 2"]:
        """Numbers of nodes and of layers that each graph is to have; NaN asks for none."""
        unknown_B = torch.full((len(self.seeds),), torch.nan)
        sizes = (self.nodes_B, self.layers_B)
        return torch.stack([unknown_B if s_B is None else s_B.float().cpu() for s_B in sizes], 1)

    def of_graphs(self, graphs: Sequence[int]) -> "SampleRequest":
        """Return the request for some of the graphs, each as often as it is named."""
        rows, possible = list(graphs), self.possible
        return replace(
            self,
            numeric_BC=self.numeric_BC[rows],
            category_BM=self.category_BM[rows],
            seeds=tuple(self.seeds[row] for row in rows),
            nodes_B=None if self.nodes_B is None else self.nodes_B[rows],
            layers_B=None if self.layers_B is None else self.layers_B[rows],
            possible=possible and replace(possible, graph_BF=possible.graph_BF[rows]),
        )


@dataclass(frozen=True, eq=False)
class SampleResult:
    """Sampled graphs in the order of the request's seeds, nodes in layer order."""

    dags: tuple[DAG, ...]  # the graphs; without conditions, which the caller has
    truncated: tuple[bool, ...]  # true where a limit of the request cut the graph short


def require_request(request: object) -> None:
    """Raise UsageError if a network is asked for a number of graphs, as its generator is."""
    if not isinstance(request, SampleRequest):
        raise UsageError(
            f"A network samples a SampleRequest, found {request!r:.40}; call generator.sample(num)."
        )


class DAGModel(nn.Module, ABC):
    """A layerwise generative model of attributed DAGs."""

    def derived(self, batch: DAGBatch) -> DAGBatch:
        """Return a batch of the host with the indices and sizes that ``losses`` needs of it.

        This one adds nothing. ``losses`` derives what a batch does not carry. It may depend on the
        graphs alone: other threads call it while weights change.
        """
        return batch

    @property
    def pads_batches(self) -> bool:
        """Whether batches can be padded to given sizes, so that a GPU can record steps.

        If so, the model has the three methods that follow, for batches that ``derived`` returned.
        """
        return False

    def padded_sizes(self, derived: DAGBatch) -> Mapping[str, int]:
        """Return the sizes of a batch by name, "nodes" among them."""
        raise NotImplementedError

    def padded(self, derived: DAGBatch, sizes: Mapping[str, int]) -> DAGBatch:
        """Return a batch of these sizes, none below its own, with the same losses."""
        raise NotImplementedError

    def decisions(self, derived: DAGBatch) -> Mapping[str, float]:
        """Return the number of decisions of a batch by objective."""
        raise NotImplementedError

    @property
    def is_sum_over_graphs(self) -> bool:
        """Whether ``losses`` are sums over graphs that threads may compute side by side.

        Then all noise comes from the generator, and nothing of a batch is kept in the model.
        """
        return False

    def prepared(self, batch: DAGBatch) -> DAGBatch:
        """Return a batch of the host on the model's device, with what is derived from it.

        It may depend on the graphs alone, as ``derived``.
        """
        return self.derived(batch).to(next(self.parameters()).device)

    @abstractmethod
    def losses(self, batch: DAGBatch, generator: torch.Generator) -> dict[str, LossTerm]:
        """Return a term per objective ("layer_size", "node", ...); noise from ``generator``.

        With the same batch, weights and generator state the result is the same, which makes
        validation likelihood deterministic when the trainer reseeds the generator.
        """

    @abstractmethod
    def objective_parameters(self) -> dict[tuple[str, ...], list[nn.Parameter]]:
        """Return the parameters by the objectives that train them, every parameter once.

        Objectives of one key share parameters and are selected together; others are independent.
        """

    def posterior_objectives(self) -> tuple[str, ...]:
        """Return the objectives of p(conditions | graph), which do not affect sampled graphs.

        Every checkpoint holds their parameters at the best validation likelihood. For generators
        likelihood is a poor measure of sample quality (docs/explanation/fast-model.md).
        """
        return ()

    @property
    def has_temperature(self) -> bool:
        """Whether sampling can have another temperature than 1."""
        return False

    @property
    def default_best_of(self) -> int:
        """Graphs drawn for each one kept where nothing else is asked for."""
        return 1

    @property
    def default_batch_size(self) -> int | None:
        """Graphs drawn side by side where nothing else is asked for; None is whatever suits."""
        return None

    def require_options(self, *, steps: int | None, best_of: int, temperature: float = 1.0) -> None:
        """Refuse options of sampling that this model cannot honor.

        Raises:
            UsageError: Names the option and what to do.
        """
        if temperature != 1.0:
            raise UsageError(
                "This model draws by denoising, which has no temperature, so "
                f"temperature={temperature:g} cannot be done; leave it out."
            )
        if best_of != 1:
            raise UsageError(
                "This model has nothing to choose among several graphs by, so "
                f"best_of={best_of} cannot be done; leave best_of out, or ask for best_of=1."
            )

    @abstractmethod
    def sample(self, request: SampleRequest) -> SampleResult:
        """Sample one graph per seed; acyclic and layer-consistent by construction.

        Raises:
            UsageError: As ``require_options``.
        """

    def log_posterior(self, batch: DAGBatch) -> Float[Tensor, " B"] | None:
        """Return log p(conditions | graph) of each graph under the posterior, nats, shape (B,).

        None if the model has no posterior p(conditions | graph).
        """
        return None

    def predict_numeric_conditions(self, batch: DAGBatch) -> Float[Tensor, "B C"] | None:
        """Return the predicted numeric conditions of each graph, standardized, shape (B, C).

        None if the model has no posterior p(conditions | graph).
        """
        return None
