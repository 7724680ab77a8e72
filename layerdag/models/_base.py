"""Interface of every generative model of DAGs: losses and samples.

Shape letters: B graphs, C numeric conditions, F feature columns (codes of all attributes), M
categorical conditions, N nodes.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from layerdag.errors import UsageError
from layerdag.graph import DAG, DAGBatch, Gap, Prefix

NO_PREFIX = (
    "This model samples whole graphs and completes no prefix; take a checkpoint of 'fast', such as "
    "the one that ships with the package."
)
"""What a model says that begins every graph itself."""


@dataclass(frozen=True)
class LossTerm:
    """A loss as a sum and the number of decisions in it, so that batches can be combined.

    Attributes:
        total: Scalar tensor, nats summed over ``count`` decisions.
        count: Scalar tensor, number of decisions.
    """

    total: Float[Tensor, ""]
    count: Float[Tensor, ""] | Int[Tensor, ""]

    def mean(self) -> Float[Tensor, ""]:
        """Return the mean in nats per decision."""
        return self.total / self.count.clamp(min=1)


@dataclass(frozen=True, eq=False)
class PossibleCodes:
    """The codes that nodes of samples can have by the meaning of the codes, not by training.

    Attributes:
        pairs_FF: Which codes, of all attributes end to end, one node can have together.
        graph_BF: Which codes the nodes of each graph can have.
    """

    pairs_FF: Bool[Tensor, "F F"]
    graph_BF: Bool[Tensor, "B F"]

    def repeated(self, times: int) -> "PossibleCodes":
        """Return the same with each graph so many times, one after another."""
        return PossibleCodes(self.pairs_FF, self.graph_BF.repeat_interleave(times, dim=0))


Faults = Callable[[Sequence[DAG]], Sequence[float]]
"""How much is wrong with each of some finished graphs, the candidates of a graph in a row."""


@dataclass(frozen=True, eq=False)
class SampleRequest:
    """What to sample: one row of conditions and one seed per graph.

    Attributes:
        numeric_BC: float32 standardized conditions; NaN is unknown.
        category_BM: int64 condition codes; -1 is unknown.
        seeds: One seed per graph; a graph depends only on its own seed and conditions.
        max_nodes: Largest number of nodes; a graph that would exceed it is truncated.
        max_layers: Largest number of layers, likewise.
        min_layers: Smallest number of layers: no graph ends before, unless it is truncated.
        steps: Denoising steps of `reference`; None takes those of training.
        guidance: Weight of classifier-free guidance; 1 is plain conditioning.
        temperature: Of every decision, after guidance: logits are divided by it. 1 is the model's
            own distribution, less is sharper; `reference` knows no other than 1.
        best_of: Graphs drawn for each one that is kept, by how well it fits its conditions and
            the neighbors that training shows; `reference` draws one.
        nodes_B: float32 number of nodes that each graph is to have; NaN, or None for all, asks for
            none. `fast` counts them down and chooses candidates by it, `reference` takes none.
        layers_B: float32 number of layers that each graph is to have, likewise; `fast` counts them
            down.
        prefix: First layers that every graph begins with; `reference` takes none.
        gap: Where layers that follow the drawn ones are given, too; the prefix is then its.
        possible: What is ruled out while `fast` samples; None rules out nothing.
        faults: What counts against candidates beside the model's own score; None is nothing.
    """

    numeric_BC: Float[Tensor, "B C"]
    category_BM: Int[Tensor, "B M"]
    seeds: tuple[int, ...]
    max_nodes: int = 10_000
    max_layers: int = 2_000
    min_layers: int = 0
    steps: int | None = None
    guidance: float = 1.0
    temperature: float = 1.0
    best_of: int = 1
    nodes_B: Float[Tensor, " B"] | None = None
    layers_B: Float[Tensor, " B"] | None = None
    prefix: Prefix | None = None
    gap: Gap | None = None
    possible: PossibleCodes | None = None
    faults: Faults | None = None

    @property
    def sizes_B2(self) -> Float[Tensor, "B 2"]:
        """Numbers of nodes and of layers that each graph is to have; NaN asks for none."""
        unknown_B = torch.full((len(self.seeds),), torch.nan)
        sizes = (self.nodes_B, self.layers_B)
        return torch.stack([unknown_B if s_B is None else s_B.float().cpu() for s_B in sizes], 1)


@dataclass(frozen=True, eq=False)
class SampleResult:
    """Sampled graphs in the order of the request's seeds, nodes in layer order.

    Attributes:
        dags: The graphs; without conditions, which the caller has.
        truncated: True where a limit of the request cut the graph short.
        log_weights: What a choice among the graphs adds to its own scores, nats; empty is nothing.
    """

    dags: tuple[DAG, ...]
    truncated: tuple[bool, ...]
    log_weights: tuple[float, ...] = ()


class DAGModel(nn.Module, ABC):
    """A layerwise generative model of attributed DAGs."""

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
    def usual_best_of(self) -> int:
        """Graphs drawn for each one kept where nothing else is asked for."""
        return 1

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

    def log_prefix_likelihood(
        self, batch: DAGBatch, out_degree_N: Int[Tensor, " N"] | None = None
    ) -> float:
        """Return log p(the graphs are the first layers of graphs | conditions), summed, nats.

        Args:
            batch: The graphs.
            out_degree_N: Children of each node in the whole graph; None: those that are there.

        Raises:
            UsageError: If the model completes no prefix.
        """
        del batch, out_degree_N
        raise UsageError(NO_PREFIX)

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
