"""Fit the message-passing surrogate."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from layerdag.graph import DAG, GraphSizes
from layerdag.surrogates.families.networks._base import NetworkSettings, NetworkSurrogate
from layerdag.surrogates.families.networks._fitting import fit_one
from layerdag.surrogates.families.networks._network import MessagePassingNetwork


@dataclass(frozen=True, eq=False)
class MessagePassingSurrogate(NetworkSurrogate):
    """A trained message-passing network."""

    @property
    def family(self) -> str:
        """The name "message_passing"."""
        return "message_passing"

    @staticmethod
    def build(
        sizes: GraphSizes, settings: NetworkSettings, outputs: int = 1
    ) -> MessagePassingNetwork:
        """Return a network with initial weights."""
        return MessagePassingNetwork(sizes, settings.width, settings.rounds, outputs)


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
    return fit_one(MessagePassingSurrogate, dags, target_B, sizes, chosen, seed)
