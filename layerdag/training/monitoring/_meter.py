"""Means of the training losses between two log lines."""

from collections.abc import Mapping

import torch
from torch import Tensor


class Meter:
    """Mean of the losses, and the speed, between two log lines; never waits for the device."""

    def __init__(self, seconds: float) -> None:
        self.note = ""
        self._losses: dict[str, list[Tensor]] = {}
        self._graphs = 0
        self._since = seconds

    def add(self, losses: Mapping[str, Tensor], graphs: int) -> None:
        """Take the losses of one micro-batch by objective."""
        self._graphs += graphs
        for name, loss in losses.items():
            self._losses.setdefault(name, []).append(loss)

    def flush(self, seconds: float) -> dict[str, float]:
        """Return the mean losses and graphs per second since the last call, and start anew.

        Args:
            seconds: Of the run until now.
        """
        means = {name: float(torch.stack(rows).mean()) for name, rows in self._losses.items()}
        self.note = " " + " ".join(f"{name} {mean:.3f}" for name, mean in means.items())
        speed = self._graphs / max(seconds - self._since, 1e-9)
        self._losses, self._graphs, self._since = {}, 0, seconds
        figures = {f"train/{name}": mean for name, mean in means.items()}
        return {**figures, "train/graphs_per_second": speed, "seconds": seconds}
