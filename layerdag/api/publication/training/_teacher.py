"""The model that learns from the real graphs, and that samples are drawn from."""

from layerdag.api.publication import TRAINING, ReleaseSettings, Work
from layerdag.api.publication.training._recipe import run_of, start_of, train_or_resume
from layerdag.datasets import GraphDataset
from layerdag.training import LoadedCheckpoint, load_checkpoint

TRAINING_FRACTION = 0.35
"""Of the budget."""


def trained_teacher(
    settings: ReleaseSettings, data: GraphDataset, work: Work, seconds: float
) -> LoadedCheckpoint:
    """Return the best checkpoint of a run in the private folder, trained now if need be.

    Args:
        settings: Of the release.
        data: The split graphs.
        work: The private folder.
        seconds: Most seconds that training may take.

    Raises:
        KeyboardInterrupt: If the run was stopped; what was learned is kept.
        TrainingError: If training diverged.
    """
    folder = work.path / TRAINING
    if "train" in work.stages:
        return load_checkpoint(folder / "best")
    run = run_of(settings, data, folder)
    result = train_or_resume(run, settings, seconds)
    best = load_checkpoint(result.best)
    work.note(
        "train",
        {
            "steps": result.step,
            "best_step": best.meta.step,
            "seconds": round(result.seconds, 1),
            "reason": result.reason,
            "start": start_of(run),
            "fingerprint": data.fingerprint,
        },
    )
    return best
