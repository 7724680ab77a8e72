"""How the networks among the surrogates are trained, whatever their architecture.

Shape letters: B graphs, P pairs, T targets.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader

from layerdag._runtime import derive_seed, numpy_generator, track, wait_briefly
from layerdag.graph import DAG, GraphSizes
from layerdag.surrogates.families.networks._base import (
    NetworkSettings,
    known_data,
    standard_predictions,
)
from layerdag.surrogates.families.networks._network import GraphNetwork

Fitted = TypeVar("Fitted", bound=GraphNetwork)


def train_network(
    build: Callable[[], Fitted],
    dags: Sequence[DAG],
    standard_BT: np.ndarray,
    sizes: GraphSizes,
    settings: NetworkSettings,
    seed: int,
) -> Fitted:
    """Train a network; the weights of the epoch with the least validation loss are kept.

    Its initial weights depend on ``seed`` alone; the global random stream is left as is.

    Args:
        build: Makes the network, with an output for each target.
        dags: The graphs.
        standard_BT: Standardized targets, NaN where a graph has none.
        sizes: Codes that the graphs may have.
        settings: Of the training.
        seed: Of weights and order.

    Raises:
        DataError: If a code lies outside ``sizes``.
    """
    wait_briefly()
    data = [known_data(dag, sizes) for dag in dags]
    for one, standard_T in zip(data, standard_BT, strict=True):
        one.y = torch.from_numpy(standard_T).float()[None]
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
    return network


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
            predicted_BT = network(batch).reshape(batch.y.shape)
            loss = loss_of(predicted_BT, batch.y, settings.ranking_weight)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        loss_now = _validation_loss(network, validation)
        if loss_now <= best:
            best = loss_now
            best_weights = {name: value.clone() for name, value in network.state_dict().items()}
    network.load_state_dict(best_weights)


def loss_of(
    predicted_BT: Float[Tensor, "B T"], target_BT: Float[Tensor, "B T"], ranking_weight: float = 0.0
) -> Float[Tensor, ""]:
    """Return the sum over targets of Huber and ranking loss, each over graphs that have it.

    Args:
        predicted_BT: Standardized predictions.
        target_BT: Standardized targets, NaN where a graph has none.
        ranking_weight: Weight of the ranking loss; 0 leaves it out.
    """
    loss = predicted_BT.new_zeros(())
    for predicted_B, target_B in zip(predicted_BT.T, target_BT.T, strict=True):
        known_B = target_B.isfinite()
        if not known_B.any():
            continue
        loss = loss + nn.functional.huber_loss(predicted_B[known_B], target_B[known_B])
        if ranking_weight:
            loss = loss + ranking_weight * ranking_loss(predicted_B[known_B], target_B[known_B])
    return loss


def ranking_loss(
    predicted_B: Float[Tensor, " B"], target_B: Float[Tensor, " B"]
) -> Float[Tensor, ""]:
    """Return the mean logistic loss of the order of each pair (RankNet; Burges et al., ICML 2005).

    Pairs of equal targets have no order; without any other pair the loss is 0.
    """
    above_BB = target_B[:, None] > target_B[None, :]
    margin_BB = predicted_B[:, None] - predicted_B[None, :]
    return nn.functional.softplus(-margin_BB[above_BB]).sum() / above_BB.sum().clamp(min=1)


def _validation_loss(network: GraphNetwork, data: list[Data]) -> float:
    """Return the validation loss; 0 without validation graphs, so that the last epoch is kept."""
    if not data:
        return 0.0
    y_BT = torch.cat([one.y for one in data])
    return float(loss_of(standard_predictions(network, data), y_BT))
