"""Selection and early stopping: each objective on its own where no parameter is shared."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from layerdag.models import DAGModel
from layerdag.training.optimization._ema import copy_weights


@dataclass(eq=False)
class ParameterGroup:
    """Parameters that are selected and stopped together, and the best weights they have had.

    Attributes:
        name: The objective's name, or "total" for several.
        objectives: Names of the loss terms.
        parameters: The parameters they train, by name in the model.
        best: Lowest validation likelihood so far, nats per graph.
        best_step: Step at which it was reached.
        num_bad_validations: Validations since then, which early stopping counts.
        stopped: Whether training of these parameters is over.
        weights: The parameters at the best step.
    """

    name: str
    objectives: tuple[str, ...]
    parameters: dict[str, nn.Parameter]
    best: float = math.inf
    best_step: int = 0
    num_bad_validations: int = 0
    stopped: bool = False
    weights: dict[str, Tensor] = field(default_factory=dict)

    def update(self, score: float, step: int, weights: Mapping[str, Tensor], patience: int) -> bool:
        """Take in one validation; return whether it is the best so far.

        Args:
            score: Nats per graph, lower is better.
            step: Optimizer steps done.
            weights: The averaged weights of the whole model by name.
            patience: Stop after this many validations without a better one; 0 never stops.
        """
        # The first one counts whatever it is: a run always leaves weights behind.
        if score < self.best or not self.weights:
            self.best, self.best_step, self.num_bad_validations = score, step, 0
            self.weights = {name: weights[name].detach().clone() for name in self.parameters}
            return True
        self.num_bad_validations += 1
        if patience and self.num_bad_validations >= patience:
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
        plain = {k: getattr(self, k) for k in ("best", "best_step", "stopped")}
        return {**plain, "stale": self.num_bad_validations, "weights": self.weights}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a ``state_dict``."""
        self.best, self.best_step = float(state["best"]), int(state["best_step"])
        self.num_bad_validations = int(state["stale"])
        self.weights = dict(state["weights"])
        if state["stopped"]:
            self.stop()


def parameter_groups(model: DAGModel) -> list[ParameterGroup]:
    """Return one group of parameters for the objectives that share them."""
    groups = model.objective_parameters()
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    covered = {id(p) for parameters in groups.values() for p in parameters}
    assert covered == set(names), "objective_parameters() must name every parameter of the model"
    return [
        ParameterGroup(
            objectives[0] if len(objectives) == 1 else "total",
            objectives,
            {names[id(p)]: p for p in parameters},
        )
        for objectives, parameters in groups.items()
    ]


def best_weights(model: DAGModel, groups: list[ParameterGroup]) -> dict[str, Tensor]:
    """Return the state dict of ``model`` with each group of parameters at its best."""
    state = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    with torch.no_grad():
        for group in groups:
            copy_weights({name: state[name] for name in group.weights}, group.weights)
    return state
