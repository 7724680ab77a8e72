"""Who took part? An attacker who sees the tuned weights and knows everything but the coins.

Shape letters: M canaries, P tuned parameters, U units.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from layerdag.training.private._canaries import Canaries
from layerdag.training.private._gradients import Decisions, clipped
from layerdag.training.private._lower_bound import LowerBound, guess_half, lower_bound
from layerdag.training.private._privacy import Privacy

_FLOOR = 1e-4
"""Added to the variance of every parameter, over the mean variance: some vary in no graph."""


@dataclass(eq=False)
class Attack:
    """A regression of what tuning changed on the gradients of the canaries.

    Differential privacy bounds attackers who know all other units. This one removes what those do
    to the weights, as far as it lies in the directions of their gradients before and after tuning,
    and weighs each direction by how far coins of other units and noise move it.

    Attributes:
        canaries: Who may have taken part.
        decisions: Of all units, canaries last.
        privacy: Settings of the tuning.
        multiplier: Standard deviation of the noise over the clipping norm.
        before_P: The parameters before tuning.
        known_UP: The other units' gradients before tuning.
    """

    canaries: Canaries
    decisions: Decisions
    privacy: Privacy
    multiplier: float
    before_P: Float[Tensor, " P"]
    known_UP: Float[Tensor, "U P"]

    @classmethod
    def begun(
        cls, canaries: Canaries, decisions: Decisions, privacy: Privacy, multiplier: float
    ) -> "Attack":
        """Take note of what is known before tuning."""
        before_P = decisions.adapters.flat()
        known_UP = _others(canaries, decisions, privacy.clip)
        return cls(canaries, decisions, privacy, multiplier, before_P, known_UP)

    def lower_bound(self, delta: float) -> LowerBound:
        """Guess coins by the parameters that the adapters have now; return what that refutes."""
        clip, rate = self.privacy.clip, self.privacy.sampling_rate
        parts = (self.known_UP, _others(self.canaries, self.decisions, clip))
        others_2P = torch.stack([part.sum(0) for part in parts]).numpy()
        moved_PP = torch.stack([part.T @ part for part in parts]).mean(0)
        noise_PP = rate * (1 - rate) * moved_PP + (self.multiplier * clip) ** 2 * torch.eye(
            len(moved_PP), dtype=torch.float64
        )
        change_P = (self.decisions.adapters.flat() - self.before_P).numpy()
        gradient_MP = clipped(torch.from_numpy(self.canaries.gradient_MP), clip).numpy()
        # Half of what taking part adds in all steps, in units of the noise of one.
        pull_MP = 0.5 * rate * self.privacy.steps**0.5 * gradient_MP
        score_M = scores(pull_MP, change_P, others_2P, noise_PP.numpy())
        guesses, right = guess_half(score_M, self.canaries.took_part_M)
        return lower_bound(len(score_M), guesses, right, delta)


def scores(
    pull_MP: np.ndarray, change_P: np.ndarray, others: np.ndarray, noise_PP: np.ndarray
) -> np.ndarray:
    """Return how much each canary seems to have taken part, float64 (M,).

    The scores are the best linear guess of coins of variance 1 from their pull plus noise: ridge
    regression in coordinates where the noise is white.

    Args:
        pull_MP: What taking part adds, against a mean coin.
        change_P: Tuned parameters less those before; its unit does not matter.
        others: Directions that count for nothing, a row each.
        noise_PP: Covariance of the noise.
    """
    count = len(noise_PP)
    floor = _FLOOR * np.trace(noise_PP) / count
    factor_PP = np.linalg.cholesky(noise_PP + floor * np.eye(count))
    known = np.vstack([pull_MP.mean(axis=0), others])
    columns = np.linalg.solve(factor_PP, np.vstack([pull_MP, -change_P, known]).T)
    white_PM, white_P, white_known = np.split(columns, [len(pull_MP), len(pull_MP) + 1], axis=1)
    basis, _ = np.linalg.qr(white_known)
    white_PM = white_PM - basis @ (basis.T @ white_PM)
    gram_MM = white_PM.T @ white_PM
    return np.linalg.solve(gram_MM + np.eye(len(gram_MM)), white_PM.T @ white_P[:, 0])


def _others(canaries: Canaries, decisions: Decisions, clip: float) -> Float[Tensor, "U P"]:
    """Return the clipped gradient of each unit but canaries, at the present weights."""
    count = len(decisions.nodes_U) - int(canaries.took_part_M.sum())
    is_other_U = np.arange(len(decisions.nodes_U)) < count
    gradient_UP, _ = decisions.gradients(is_other_U)
    return clipped(gradient_UP[:count], clip)
