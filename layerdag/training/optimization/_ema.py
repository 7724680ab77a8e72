"""Exponential moving average of a model's weights."""

import contextlib
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn


class ExponentialMovingAverage:
    """Moving average of the parameters of ``model``; buffers are constants of the data and stay.

    The decay grows as (1 + n) / (10 + n) up to ``decay``, so that the first weights are forgotten.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self._parameters = dict(model.named_parameters())
        self._decay = decay
        self._updates = 0
        self._shadow = {name: p.detach().clone() for name, p in self._parameters.items()}

    @torch.no_grad()
    def update(self) -> None:
        """Move the average toward the present weights."""
        self._updates += 1
        decay = min(self._decay, (1 + self._updates) / (10 + self._updates))
        live = [p.detach() for p in self._parameters.values()]
        torch._foreach_lerp_(list(self._shadow.values()), live, 1 - decay)

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Let the model compute with the averaged weights inside the block."""
        live = {name: p.detach().clone() for name, p in self._parameters.items()}
        copy_weights(self._parameters, self._shadow)
        try:
            yield
        finally:
            copy_weights(self._parameters, live)

    def weights(self) -> dict[str, Tensor]:
        """Return the averaged weights by parameter name; the tensors change with ``update``."""
        return self._shadow

    def state_dict(self) -> dict[str, object]:
        """Return what resuming needs."""
        return {"updates": self._updates, "shadow": self._shadow}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Continue from a ``state_dict``."""
        updates, shadow = state["updates"], state["shadow"]
        assert isinstance(updates, int)
        assert isinstance(shadow, dict)
        self._updates = updates
        copy_weights(self._shadow, shadow)


@torch.no_grad()
def copy_weights(target: Mapping[str, Tensor], source: Mapping[str, Tensor]) -> None:
    """Copy the tensors of ``source`` into those of ``target`` with the same name."""
    for name, tensor in target.items():
        tensor.copy_(source[name])
