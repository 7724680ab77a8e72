"""Which attacks succeed where several are run at once.

Each attack alone is right about nothing being found in 39 of 40 cases where nothing leaks; of many
attacks some would be wrong far more often. Those by distance keep that level each, those that
learn, align or infer share it among them.
"""

from statistics import NormalDist

from layerdag.evaluation.metrics import NORMAL_95
from layerdag.evaluation.privacy import CHANCE, Attack
from layerdag.evaluation.privacy.attacks._inference import Inference

SHARING = ("calibrated_classifier", "unique_motifs", "reconstruction", "model", "properties")
WIDER = NormalDist().inv_cdf(1 - 0.025 / len(SHARING)) / NORMAL_95
"""How much wider an interval is that holds for all attacks of ``SHARING`` at once."""


def succeeds_among_all(found: Attack | Inference) -> bool:
    """Return whether an attack succeeds, those run beside it considered."""
    if not found.leaks:
        return False
    if isinstance(found, Inference):
        return found.advantage - WIDER * (found.advantage - found.interval.low) > 0
    wider = WIDER if found.name in SHARING else 1.0
    return found.auc - wider * (found.auc - found.interval.low) > CHANCE
