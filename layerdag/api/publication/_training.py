"""Training within the budget, from the shipped checkpoint; a stopped run goes on."""

from layerdag.api import PRETRAINED, warm_start
from layerdag.api.publication._folder import TRAINING, Work
from layerdag.api.publication._settings import ReleaseSettings
from layerdag.datasets import GraphDataset
from layerdag.errors import CheckpointError
from layerdag.models import spec_for
from layerdag.training import (
    LOG,
    META,
    LearningRateSchedule,
    LoadedCheckpoint,
    OptimizerConfig,
    TrainingRun,
    TrainSettings,
    clear_run,
    held_run,
    load_checkpoint,
    train,
)
from layerdag.training.monitoring import JsonlLogger

SHARE = 0.35
"""Of the budget."""
_WIDTH = 128


def trained_model(
    settings: ReleaseSettings, data: GraphDataset, work: Work, seconds: float
) -> LoadedCheckpoint:
    """Return the best checkpoint of a run in the private folder, trained now if need be.

    Jobs start from the shipped checkpoint; flow graphs, which it knows nothing of, from random
    weights.

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
    run = _run_of(settings, data, work)
    with held_run(folder):
        going_on = (run.last / META).is_file()
        if not going_on:
            clear_run(folder)
        logger = JsonlLogger(folder / LOG)
        try:
            result = train(
                run,
                _training(settings, seconds, tunes=run.start is not None),
                loggers=[logger],
                resume_from=run.last if going_on else None,
            )
        except CheckpointError:
            if not going_on:
                raise
            clear_run(folder)  # what a killed run left cannot be used: from the beginning
            result = train(
                run,
                _training(settings, seconds, tunes=run.start is not None),
                loggers=[logger],
            )
        finally:
            logger.close()
    if result.reason not in ("budget", "patience"):
        raise KeyboardInterrupt(
            f"training stopped at step {result.step}; the same command goes on from there."
        )
    best = load_checkpoint(result.best)
    work.note(
        "train",
        {
            "steps": result.step,
            "best_step": best.meta.step,
            "seconds": round(result.seconds, 1),
            "reason": result.reason,
            "start": PRETRAINED if run.start is not None else "random weights",
            "fingerprint": data.fingerprint,
        },
    )
    return best


def _run_of(settings: ReleaseSettings, data: GraphDataset, work: Work) -> TrainingRun:
    """Return what is trained."""
    spec, start = None, None
    if data.schema.kind == "trace":
        warm = warm_start(PRETRAINED, data, seed=settings.seed)
        spec, start = warm.spec, warm.start
    return TrainingRun(
        spec=spec or spec_for(data, "fast", {"width": _WIDTH}),
        start=start,
        train=data.batch("train"),
        validation=data.batch("val"),
        directory=work.path / TRAINING,
        schema=data.schema.to_dict(),
        run_config={"release": True, "seed": settings.seed},
        data_fingerprint=data.fingerprint,
        split=data.split,
    )


def _training(settings: ReleaseSettings, seconds: float, *, tunes: bool) -> TrainSettings:
    """Return how to train: few steps and an early end, for what is overfitted gives away."""
    return TrainSettings(
        seed=settings.seed,
        max_steps=settings.steps if tunes else 10 * settings.steps,
        max_seconds=max(seconds, 1.0),
        batch_nodes=3000,
        optimizer=OptimizerConfig(learning_rate=1e-3 if tunes else 2e-3, weight_decay=0.05),
        lr_schedule=LearningRateSchedule("cosine", 5 if tunes else 50),
        ema_decay=0.9 if tunes else 0.98,
        evaluate_every=10 if tunes else 50,
        patience=3 if tunes else 5,
        precision="auto",
    )
