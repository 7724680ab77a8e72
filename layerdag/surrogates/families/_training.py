"""How the networks among the surrogates are trained and asked, whatever their architecture."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader

from layerdag._runtime import derive_seed, numpy_generator, takes_old_names, track, wait_briefly
from layerdag.datasets import columns_to_pyg
from layerdag.errors import DataError
from layerdag.graph import DAG, GraphSizes
from layerdag.surrogates.families._base import SurrogateModel, TargetScale
from layerdag.surrogates.families._network import GraphNetwork

NODES_A_BATCH = 20_000


@takes_old_names(validation_share="validation_fraction")
@dataclass(frozen=True)
class NetworkSettings:
    """How to build and train the network.

    Attributes:
        width: Number of features of a node.
        rounds: Number of message-passing rounds.
        epochs: Passes over the training graphs.
        batch_size: Graphs a step.
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
    """

    sizes: GraphSizes
    scale: TargetScale
    settings: NetworkSettings
    network: GraphNetwork

    def predict(self, dags: Sequence[DAG]) -> np.ndarray:
        """Return one prediction a graph, float64 (B,)."""
        data = [self.network.prepared(known_data(dag, self.sizes)) for dag in dags]
        return self.scale.restore(_evaluate(self.network, data).double().numpy())

    def config(self) -> Mapping[str, object]:
        """Return sizes, scale and settings."""
        return {
            "sizes": asdict(self.sizes),
            "scale": asdict(self.scale),
            "settings": asdict(self.settings),
        }

    def arrays(self) -> Mapping[str, np.ndarray]:
        """Return the weights."""
        return {name: value.numpy() for name, value in self.network.state_dict().items()}


Fitted = TypeVar("Fitted", bound=GraphNetwork)


def fit_network(
    build: Callable[[], Fitted],
    dags: Sequence[DAG],
    target_B: np.ndarray,
    sizes: GraphSizes,
    settings: NetworkSettings,
    seed: int,
) -> tuple[TargetScale, Fitted]:
    """Fit a network; the weights of the epoch with the least validation loss are kept.

    Its initial weights depend on ``seed`` alone; the global random stream is left as is.

    Raises:
        UsageError: If there are fewer than two graphs, or a target is not finite.
        DataError: If a code lies outside ``sizes``.
    """
    wait_briefly()
    target_B = np.asarray(target_B, dtype=float)
    scale = TargetScale.fit(target_B)
    standard_B = scale.standardize(target_B).tolist()
    data = [known_data(dag, sizes, y) for dag, y in zip(dags, standard_B, strict=True)]
    order = numpy_generator(seed, "split").permutation(len(data)).tolist()
    held_back = int(settings.validation_fraction * len(data))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed, "weights"))
        network = build()
        data = [network.prepared(one) for one in data]
        _train(
            network,
            [data[i] for i in order[held_back:]],
            [data[i] for i in order[:held_back]],
            settings,
            seed,
        )
    return scale, network


def known_data(dag: DAG, sizes: GraphSizes, target: float = 0.0) -> Data:
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
    return columns_to_pyg(dag, target)


def _train(
    network: GraphNetwork,
    train: list[Data],
    validation: list[Data],
    settings: NetworkSettings,
    seed: int,
) -> None:
    """Train in place with AdamW, a one-cycle schedule and a Huber loss; keep the best epoch."""
    generator = torch.Generator().manual_seed(derive_seed(seed, "order"))
    loader = DataLoader(train, settings.batch_size, shuffle=True, generator=generator)
    optimizer = torch.optim.AdamW(
        network.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, settings.learning_rate, total_steps=settings.epochs * len(loader) + 1
    )
    best, best_weights = float("inf"), network.state_dict()
    for _ in track(range(settings.epochs), "surrogate", settings.epochs):
        network.train()
        for batch in loader:
            predicted_B = network(batch)
            loss = nn.functional.huber_loss(predicted_B, batch.y[:, 0])
            if settings.ranking_weight:
                loss = loss + settings.ranking_weight * ranking_loss(predicted_B, batch.y[:, 0])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        loss_now = _loss(network, validation)
        if loss_now <= best:
            best = loss_now
            best_weights = {name: value.clone() for name, value in network.state_dict().items()}
    network.load_state_dict(best_weights)


def ranking_loss(
    predicted_B: Float[Tensor, " B"], target_B: Float[Tensor, " B"]
) -> Float[Tensor, ""]:
    """Return the mean logistic loss of the order of each pair (RankNet; Burges et al., ICML 2005).

    Pairs of equal targets have no order; without any other pair the loss is 0.
    """
    above_BB = target_B[:, None] > target_B[None, :]
    margin_BB = predicted_B[:, None] - predicted_B[None, :]
    return nn.functional.softplus(-margin_BB[above_BB]).sum() / above_BB.sum().clamp(min=1)


def _loss(network: GraphNetwork, data: list[Data]) -> float:
    """Return the validation loss; 0 without validation graphs, so that the last epoch is kept."""
    if not data:
        return 0.0
    y_B = torch.cat([one.y[:, 0] for one in data])
    return float(nn.functional.huber_loss(_evaluate(network, data), y_B))


def _evaluate(network: GraphNetwork, data: list[Data]) -> Float[Tensor, " B"]:
    """Return standardized predictions, in batches of bounded size."""
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
    return torch.cat(parts) if parts else torch.zeros(0)
