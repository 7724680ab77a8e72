"""The model that learns from the real graphs, and that samples are drawn from."""

from layerdag.api.publication import TRAINING, ReleaseSettings, Work
from layerdag.api.publication.training._recipe import trained_once
from layerdag.datasets import GraphDataset
from layerdag.training import LoadedCheckpoint

TRAINING_FRACTION = 0.35
"""Of the budget."""


def trained_teacher(
    settings: ReleaseSettings, data: GraphDataset, work: Work, seconds: float
) -> LoadedCheckpoint:
    """Return the best checkpoint of the teacher; see ``trained_once``.

    Args:
        settings: Of the release.
        data: The split real graphs.
        work: The private folder.
        seconds: Most seconds that training may take.
    """
    return trained_once(settings, data, work, seconds, stage="train", folder=TRAINING)
