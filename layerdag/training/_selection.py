"""Selection and early stopping: each objective on its own where no parameter is shared."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from layerdag.models import DAGModel
from layerdag.training.optimization import copy_weights


@dataclass(eq=False)
class Track:
    """Objectives that are judged together, and the best weights they have had.

    Attributes:
        name: The objective's name, or "total" for several.
        objectives: Names of the loss terms.
        parameters: The parameters they train, by name in the model.
        best: Lowest validation likelihood so far, nats per graph.
        best_step: Step at which it was reached.
        stale: Validations since then.
        stopped: Whether training of these parameters is over.
    """

    name: str
    objectives: tuple[str, ...]
    parameters: dict[str, nn.Parameter]
    best: float = math.inf
    best_step: int = 0
    stale: int = 0
    stopped: bool = False
    weights: dict[str, Tensor] = field(default_factory=dict)

    def judge(self, score: float, step: int, weights: Mapping[str, Tensor], patience: int) -> bool:
        """Take in one validation; return whether it is the best so far.

        Args:
            score: Nats a graph, lower is better.
            step: Optimizer steps done.
            weights: The averaged weights of the whole model by name.
            patience: Stop after this many validations without a better one; 0 never stops.
        """
        # The first one counts whatever it is: a run always leaves weights behind.
        if score < self.best or not self.weights:
            self.best, self.best_step, self.stale = score, step, 0
            self.weights = {name: weights[name].detach().clone() for name in self.parameters}
            return True
        self.stale += 1
        if patience and self.stale >= patience:
            self.stop()
        return False

    def stop(self) -> None:
        """Freeze the parameters."""
        self.stopped = True
        for parameter in self.parameters.values():
            parameter.requires_grad_(False)
            parameter.grad = None

    def state_dict(self) -> dict[str, Any]:
        """Return what resuming needs."""
        plain = {k: getattr(self, k) for k in ("best", "best_step", "stale", "stopped")}
        return {**plain, "weights": self.weights}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a ``state_dict``."""
        self.best, self.best_step = float(state["best"]), int(state["best_step"])
        self.stale = int(state["stale"])
        self.weights = dict(state["weights"])
        if state["stopped"]:
            self.stop()


def tracks_of(model: DAGModel) -> list[Track]:
    """Return one track for each group of objectives that share parameters."""
    groups = model.objective_parameters()
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    covered = {id(p) for parameters in groups.values() for p in parameters}
    assert covered == set(names), "objective_parameters() must name every parameter of the model"
    return [
        Track(
            objectives[0] if len(objectives) == 1 else "total",
            objectives,
            {names[id(p)]: p for p in parameters},
        )
        for objectives, parameters in groups.items()
    ]


def best_weights(model: DAGModel, tracks: list[Track]) -> dict[str, Tensor]:
    """Return the state dict of ``model`` with each track at its best."""
    state = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    with torch.no_grad():
        for track in tracks:
            copy_weights({name: state[name] for name in track.weights}, track.weights)
    return state
