"""How every model of a release is trained, so that shadow models are made as their target was."""

import shutil
from dataclasses import asdict, replace
from pathlib import Path

from layerdag.api import PRETRAINED, warm_start
from layerdag.api.publication import ReleaseSettings, Work
from layerdag.datasets import GraphDataset
from layerdag.errors import CheckpointError
from layerdag.models import DAGModel, ModelSpec, build_model, spec_for
from layerdag.training import (
    BEST,
    LOG,
    META,
    InitialWeights,
    LearningRateSchedule,
    LoadedCheckpoint,
    OptimizerConfig,
    TrainingRun,
    TrainResult,
    TrainSettings,
    clear_run,
    held_run,
    load_checkpoint,
    train,
)
from layerdag.training.monitoring import JsonlLogger

WIDTH = 128
RANDOM = "random weights"
OTHER_START = "another checkpoint"


def run_of(
    settings: ReleaseSettings, data: GraphDataset, folder: Path, spec: ModelSpec | None = None
) -> TrainingRun:
    """Return what is trained.

    Jobs start from the checkpoint that ``settings.init`` names, flow graphs from random weights,
    for the shipped checkpoint knows nothing of them.

    Args:
        settings: Of the release.
        data: The split graphs.
        folder: Of the run.
        spec: Of a model of random weights; None is the usual one for the data.
    """
    start = None
    if settings.init is not None and data.schema.kind == "trace":
        warm = warm_start(settings.init, data, seed=settings.seed)
        spec, start = warm.spec, warm.start
        if settings.init != PRETRAINED:  # a folder's name is nobody else's business
            start = replace(start, origin=replace(start.origin, name=OTHER_START))
    return TrainingRun(
        spec=spec or spec_for(data, "fast", {"width": WIDTH}),
        start=start,
        train=data.batch("train"),
        validation=data.batch("val"),
        directory=folder,
        schema=data.schema.to_dict(),
        run_config={"release": True, "seed": settings.seed},
        data_fingerprint=data.fingerprint,
        split=data.split,
    )


def start_model(run: TrainingRun, seed: int) -> DAGModel:
    """Return the model that a run starts from, in evaluation mode.

    Args:
        run: What is trained.
        seed: Of random weights, if it starts from those.
    """
    model = build_model(run.spec, seed)
    if run.start is not None:
        model.load_state_dict(dict(run.start.weights))
    return model.eval()


def start_of(run: TrainingRun) -> str:
    """Return what a run starts from, in words."""
    return RANDOM if run.start is None else run.start.origin.name


def trained_once(
    settings: ReleaseSettings,
    data: GraphDataset,
    work: Work,
    seconds: float,
    *,
    stage: str,
    folder: str,
) -> LoadedCheckpoint:
    """Return the best checkpoint of a run in the private folder, trained now if need be.

    What an earlier call trained on the same data is taken, or gone on with; a run on other data,
    which stands there no longer, is discarded.

    Args:
        settings: Of the release.
        data: What is learned from.
        work: The private folder.
        seconds: Most seconds that training may take.
        stage: Under which the run is noted there.
        folder: Of the run, inside of it.

    Raises:
        KeyboardInterrupt: If the run was stopped; what was learned is kept.
        TrainingError: If training diverged.
    """
    path = work.path / folder
    noted = work.stages.get(stage, {})
    if noted.get("fingerprint") != data.fingerprint:
        shutil.rmtree(path, ignore_errors=True)
    elif "steps" in noted:
        return load_checkpoint(path / BEST)
    work.note(stage, {"fingerprint": data.fingerprint})
    run = run_of(settings, data, path)
    result = train_or_resume(run, settings, seconds)
    best = load_checkpoint(result.best)
    work.note(
        stage,
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


def train_or_resume(run: TrainingRun, settings: ReleaseSettings, seconds: float) -> TrainResult:
    """Train, from where an earlier call was stopped if it was.

    Args:
        run: What is trained, and where.
        settings: Of the release.
        seconds: Most seconds that it may take.

    Raises:
        KeyboardInterrupt: If the run was stopped; what was learned is kept.
        TrainingError: If training diverged.
    """
    plan = training_settings(settings, seconds, start=run.start)
    run = replace(run, run_config={**run.run_config, "training": asdict(plan)})
    with held_run(run.directory):
        going_on = (run.last / META).is_file()
        if not going_on:
            clear_run(run.directory)
        logger = JsonlLogger(run.directory / LOG)
        try:
            result = train(run, plan, loggers=[logger], resume_from=run.last if going_on else None)
        except CheckpointError:
            if not going_on:
                raise
            clear_run(run.directory)  # what a killed run left cannot be used: from the beginning
            result = train(run, plan, loggers=[logger])
        finally:
            logger.close()
    if result.reason not in ("budget", "patience"):
        raise KeyboardInterrupt(
            f"training stopped at step {result.step}; the same command goes on from there."
        )
    return result


def training_settings(
    settings: ReleaseSettings, seconds: float, start: InitialWeights | None
) -> TrainSettings:
    """Return how to train: few steps and an early end, for what is overfitted gives away.

    Args:
        settings: Of the release.
        seconds: Most seconds.
        start: Trained weights are tuned for fewer steps and more gently than random ones.
    """
    tunes = start is not None
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
