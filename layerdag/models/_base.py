"""The contract of every generative model of DAGs: losses for training, samples for use."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from layerdag.graph import DAG, DAGBatch


@dataclass(frozen=True)
class LossTerm:
    """A loss as a sum and the number of decisions it sums over, to be averaged anywhere.

    Attributes:
        total: Scalar tensor, nats summed over ``count`` decisions.
        count: Scalar tensor, number of decisions.
    """

    total: Tensor
    count: Tensor

    def mean(self) -> Tensor:
        """Return the mean in nats a decision."""
        return self.total / self.count.clamp(min=1)


@dataclass(frozen=True, eq=False)
class SampleRequest:
    """What to sample: one row of conditions and one seed per graph.

    Attributes:
        numeric_BC: float32 standardized conditions; NaN is "whatever the training data has".
        category_BM: int64 condition codes; -1 likewise.
        seeds: One seed per graph; the graph depends on its own seed and conditions alone.
        max_nodes: A graph that would exceed it is stopped and marked truncated.
        max_layers: Likewise for layers.
        steps: Denoising steps of a wide layer; None takes the model's own.
        guidance: Weight of classifier-free guidance; 1 is plain conditioning.
        candidates: Graphs drawn for each one that is kept, by how well it fits its conditions and
            the numbers of children that training shows; `reference` draws one.
    """

    numeric_BC: Tensor
    category_BM: Tensor
    seeds: tuple[int, ...]
    max_nodes: int = 10_000
    max_layers: int = 2_000
    steps: int | None = None
    guidance: float = 1.0
    candidates: int = 1


@dataclass(frozen=True, eq=False)
class SampleResult:
    """Sampled graphs in the order of the request's seeds, nodes in layer order.

    Attributes:
        dags: The graphs; conditions are left empty, the caller knows what it asked for.
        truncated: True where a limit of the request cut the graph short.
    """

    dags: tuple[DAG, ...]
    truncated: tuple[bool, ...]


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

    def judging_objectives(self) -> tuple[str, ...]:
        """Return the objectives that judge graphs and do not make them.

        Their validation likelihood says when they are at their best, and every checkpoint holds
        them so; how well a generator samples, its likelihood tells badly
        (docs/explanation/fast-model.md).
        """
        return ()

    @abstractmethod
    def sample(self, request: SampleRequest) -> SampleResult:
        """Sample one graph per seed; acyclic and layer-consistent by construction."""

    def judged_numbers(self, batch: DAGBatch) -> Tensor | None:
        """Return the numeric conditions that each graph speaks of, standardized, shape (B, C).

        None if the model cannot tell, as one that only goes from conditions to graphs.
        """
        return None
