"""A model with its loss, as a user has one."""

import torch
from torch import Tensor, nn


class Step(nn.Module):
    """A perceptron with its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 8))

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return nn.functional.cross_entropy(self.body(x), target)


def make_step() -> tuple[Step, list[Tensor]]:
    """Return the model with its inputs."""
    return Step(), [torch.randn(32, 64), torch.zeros(32, dtype=torch.long)]
