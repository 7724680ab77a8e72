"""Fit the message-passing surrogate."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from layerdag.graph import DAG, GraphSizes
from layerdag.surrogates.families._network import MessagePassingNetwork
from layerdag.surrogates.families._training import NetworkSettings, NetworkSurrogate, fit_network


@dataclass(frozen=True, eq=False)
class MessagePassingSurrogate(NetworkSurrogate):
    """A trained message-passing network."""

    @property
    def family(self) -> str:
        """The name "message_passing"."""
        return "message_passing"


def fit_message_passing(
    dags: Sequence[DAG],
    target_B: np.ndarray,
    sizes: GraphSizes,
    *,
    seed: int = 0,
    settings: NetworkSettings | None = None,
) -> MessagePassingSurrogate:
    """Fit the network; the weights of the epoch with the least validation loss are kept.

    Raises:
        UsageError: If there are fewer than two graphs, or a target is not finite.
        DataError: If a code lies outside ``sizes``.
    """
    chosen = settings or NetworkSettings()

    def build() -> MessagePassingNetwork:
        return MessagePassingNetwork(sizes, chosen.width, chosen.rounds)

    scale, network = fit_network(build, dags, target_B, sizes, chosen, seed)
    return MessagePassingSurrogate(sizes, scale, chosen, network)
