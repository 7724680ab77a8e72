"""Who took part? An attacker who sees the tuned weights and knows everything but the coins.

Shape letters: M canaries, P tuned parameters.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from layerdag.training.private._canaries import Canaries
from layerdag.training.private._gradients import Decisions, clipped
from layerdag.training.private._lower_bound import LowerBound, guess_half, lower_bound

_RIDGE = 0.1
"""Of the regression, where the diagonal is 1."""


@dataclass(eq=False)
class Attack:
    """A regression of what tuning changed on the gradients of the canaries.

    Differential privacy bounds attackers who know all other units. This one removes what those do
    to the weights, as far as it lies in the directions of their gradients before and after tuning.

    Attributes:
        canaries: Who may have taken part.
        decisions: Of all units, canaries last.
        clip: Largest norm of a unit's gradient.
        before_P: The parameters before tuning.
        known_P: Sum of the other units' gradients before tuning.
    """

    canaries: Canaries
    decisions: Decisions
    clip: float
    before_P: Float[Tensor, " P"]
    known_P: Float[Tensor, " P"]

    @classmethod
    def begun(cls, canaries: Canaries, decisions: Decisions, clip: float) -> "Attack":
        """Take note of what is public before tuning."""
        before_P = decisions.adapters.flat()
        known_P = _sum(canaries, decisions, clip)
        return cls(canaries, decisions, clip, before_P, known_P)

    def lower_bound(self, delta: float) -> LowerBound:
        """Guess coins by the parameters that the adapters have now; return what that refutes."""
        others = [self.known_P, _sum(self.canaries, self.decisions, self.clip)]
        others_2P = torch.stack(others).numpy()
        change_P = (self.decisions.adapters.flat() - self.before_P).numpy()
        score_M = scores(self.canaries.gradient_MP, change_P, others_2P)
        guesses, right = guess_half(score_M, self.canaries.took_part_M)
        return lower_bound(len(score_M), guesses, right, delta)


def scores(gradient_MP: np.ndarray, change_P: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return how much each canary seems to have taken part, float64 (M,).

    Args:
        gradient_MP: Of each canary.
        change_P: Tuned parameters less those before.
        others: Directions that count for nothing, a row each.
    """
    mean_P = gradient_MP.mean(axis=0)
    basis, _ = np.linalg.qr(np.vstack([mean_P, others]).T)
    unique_MP = gradient_MP - (gradient_MP @ basis) @ basis.T
    norm_M1 = np.linalg.norm(unique_MP, axis=1, keepdims=True)
    unique_MP = unique_MP / norm_M1.clip(min=1e-12)
    gram_MM = unique_MP @ unique_MP.T
    return np.linalg.solve(gram_MM + _RIDGE * np.eye(len(gram_MM)), -unique_MP @ change_P)


def _sum(canaries: Canaries, decisions: Decisions, clip: float) -> Float[Tensor, " P"]:
    """Return the sum of the clipped gradients of all units but canaries, at the present weights."""
    count = len(decisions.nodes_U)
    is_other_U = np.arange(count) < count - int(canaries.took_part_M.sum())
    gradient_UP, _ = decisions.gradients(is_other_U)
    return clipped(gradient_UP, clip).sum(0)
