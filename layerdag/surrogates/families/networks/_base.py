"""What the networks among the surrogates have in common: settings, predictions, their parts.

Shape letters: B graphs, T targets.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch_geometric.data import Batch, Data

from layerdag._runtime import wait_briefly
from layerdag.datasets import columns_to_pyg
from layerdag.errors import DataError
from layerdag.graph import DAG, GraphSizes
from layerdag.surrogates.families import SurrogateModel, TargetScale
from layerdag.surrogates.families.networks._network import GraphNetwork

NODES_A_BATCH = 20_000


@dataclass(frozen=True)
class NetworkSettings:
    """How to build and train the network.

    Attributes:
        width: Number of features of a node.
        rounds: Number of message-passing rounds.
        epochs: Passes over the training graphs.
        batch_size: Graphs per step.
        learning_rate: Peak of the one-cycle schedule.
        weight_decay: Of AdamW.
        validation_fraction: Fraction of graphs held back to choose the best epoch.
        ranking_weight: Weight of the ranking loss beside the Huber loss; 0 leaves it out.
    """

    width: int = 48
    rounds: int = 3
    epochs: int = 30
    batch_size: int = 16
    learning_rate: float = 3e-3
    weight_decay: float = 1e-2
    validation_fraction: float = 0.15
    ranking_weight: float = 0.0


@dataclass(frozen=True, eq=False)
class NetworkSurrogate(SurrogateModel):
    """A trained network with all that is needed to rebuild it.

    Attributes:
        sizes: Codes that the graphs may have.
        scale: Scale of the target.
        settings: How it was built and trained.
        network: The trained network, a module that takes PyG batches.
        outputs: Targets that share the network, one for each of its outputs in this order; none
            where it has one target.
        output: Which of these is predicted.
    """

    sizes: GraphSizes
    scale: TargetScale
    settings: NetworkSettings
    network: GraphNetwork
    outputs: tuple[str, ...] = ()
    output: int = 0

    @staticmethod
    @abstractmethod
    def build(sizes: GraphSizes, settings: Any, outputs: int = 1) -> GraphNetwork:
        """Return a network with initial weights, an output for each target."""

    def predict(self, dags: Sequence[DAG]) -> np.ndarray:
        """Return one prediction per graph, float64 (B,)."""
        if not dags:
            return np.zeros(0)
        data = [self.network.prepared(known_data(dag, self.sizes)) for dag in dags]
        standard_B = standard_predictions(self.network, data)[:, self.output]
        return self.scale.restore(standard_B.double().numpy())

    def shares_arrays(self, other: SurrogateModel) -> bool:
        """Return whether the other one predicts by another output of the same network."""
        return isinstance(other, NetworkSurrogate) and other.network is self.network

    def config(self) -> Mapping[str, object]:
        """Return sizes, scale and settings, and which output of a shared network it is."""
        shared = {"outputs": list(self.outputs), "output": self.output} if self.outputs else {}
        return {
            "sizes": asdict(self.sizes),
            "scale": asdict(self.scale),
            "settings": asdict(self.settings),
            **shared,
        }

    def arrays(self) -> Mapping[str, np.ndarray]:
        """Return the weights."""
        return {name: value.numpy() for name, value in self.network.state_dict().items()}


def known_data(dag: DAG, sizes: GraphSizes) -> Data:
    """Return the graph as PyG ``Data`` whose codes the network has embeddings for.

    Raises:
        DataError: If codes do not fit ``sizes``.
    """
    limits_A = torch.tensor(sizes.attributes)
    if dag.x_NA.shape[1] != limits_A.numel():
        raise DataError(
            f"A graph has {dag.x_NA.shape[1]} node attributes but the surrogate knows "
            f"{limits_A.numel()}; encode it with the schema the surrogate was fitted with."
        )
    outside = bool(((dag.x_NA < 0) | (dag.x_NA >= limits_A)).any())
    if outside or bool(((dag.edge_type_E < 0) | (dag.edge_type_E >= sizes.edge_types)).any()):
        raise DataError(
            "A graph has a code that the surrogate does not know; encode it with the schema the "
            "surrogate was fitted with."
        )
    return columns_to_pyg(dag, 0.0)


def standard_predictions(network: GraphNetwork, data: list[Data]) -> Float[Tensor, "B T"]:
    """Return standardized predictions of at least one graph, in batches of bounded size."""
    wait_briefly()
    network.eval()
    ends = np.cumsum([one.num_nodes for one in data]) // NODES_A_BATCH
    cuts = [0, *(np.flatnonzero(np.diff(ends)) + 1).tolist(), len(data)]
    with torch.inference_mode():
        parts = [
            network(Batch.from_data_list(data[first:last]))
            for first, last in pairwise(cuts)
            if last > first
        ]
    return torch.cat(parts).reshape(len(data), -1)
