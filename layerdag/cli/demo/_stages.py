"""The stages of ``layerdag demo``: plain results in and out; the verb puts them in order."""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch

from layerdag._runtime import track
from layerdag.api import WarmStart
from layerdag.api.stages import begin_beside
from layerdag.cli.demo._folder import MARK, TRAINING
from layerdag.datasets import GraphDataset
from layerdag.datasets.schema import GraphSchema
from layerdag.graph import Condition
from layerdag.models import DAGModel, spec_for
from layerdag.sampling import GeneratedGraph, GenerationSettings, sample_like
from layerdag.training import (
    LOG,
    LearningRateSchedule,
    LoadedCheckpoint,
    OptimizerConfig,
    TrainingRun,
    TrainResult,
    TrainSettings,
    clear_run,
    load_checkpoint,
    train,
)
from layerdag.training.monitoring import JsonlLogger


def _usual_processes() -> int:
    """Return 2, or 1 where there is a single processor."""
    return min(os.cpu_count() or 1, 2)


@dataclass(frozen=True)
class DemoSettings:
    """How large the demo is.

    Attributes:
        data: Corpus folder.
        out: Folder of everything it writes.
        seed: Of training and sampling.
        max_nodes: Larger jobs of the corpus are left out.
        tuning_steps: Optimizer steps after a start from the shipped checkpoint. No limit of time is
            set beside them, so that the same model comes out on a slow machine as on a fast one.
        train_steps: Optimizer steps from random weights, where the shipped checkpoint may not be
            used.
        width: Of a model from random weights.
        samples: Number of graphs sampled, conditions taken from training graphs.
        surrogate_seeds: Seeds of the surrogate fits.
        families: Families of surrogates.
        processes: 2 to sample in two processes, and to fit surrogates beside the evaluation; what
            comes out is the same as with 1.
    """

    data: Path
    out: Path
    seed: int = 0
    max_nodes: int = 600
    tuning_steps: int = 40
    train_steps: int = 600
    width: int = 128
    samples: int = 192
    surrogate_seeds: tuple[int, ...] = (0,)
    families: tuple[str, ...] = ("boosting", "message_passing")
    processes: int = field(default_factory=_usual_processes)

    @classmethod
    def short(cls, data: Path, out: Path, seed: int) -> "DemoSettings":
        """Return the settings of a small version, for continuous integration."""
        return cls(
            data,
            out,
            seed,
            max_nodes=120,
            tuning_steps=10,
            train_steps=60,
            width=64,
            samples=48,
            surrogate_seeds=(0,),
            families=("boosting",),
            processes=1,
        )


def train_stage(
    settings: DemoSettings, data: GraphDataset, warm: WarmStart | None
) -> tuple[LoadedCheckpoint, TrainResult]:
    """Train a model; return its best checkpoint, and how far training came.

    Args:
        settings: Of the demo.
        data: The jobs.
        warm: What to start from; None for a small model from random weights.
    """
    arguments = {"width": settings.width, "predict_out_degree": False}
    folder = settings.out / TRAINING
    run = TrainingRun(
        spec=spec_for(data, "fast", arguments) if warm is None else warm.spec,
        start=None if warm is None else warm.start,
        train=data.batch("train"),
        validation=data.batch("val"),
        directory=folder,
        schema=data.schema.to_dict(),
        run_config={**MARK, "seed": settings.seed},
        data_fingerprint=data.fingerprint,
        split=data.split,
    )
    training = TrainSettings(
        seed=settings.seed,
        max_steps=steps_of(settings, warm),
        batch_nodes=3000,
        optimizer=OptimizerConfig(learning_rate=2e-3 if warm is None else 3e-4, weight_decay=0.05),
        lr_schedule=LearningRateSchedule("cosine", 50 if warm is None else 5),
        ema_decay=0.98 if warm is None else 0.9,
        evaluate_every=100 if warm is None else 20,
        patience=0,
        precision="auto",
    )
    clear_run(folder)
    logger = JsonlLogger(folder / LOG)
    try:
        result = train(run, training, loggers=[logger])
    finally:
        logger.close()
    return load_checkpoint(run.best), result


def steps_of(settings: DemoSettings, warm: WarmStart | None) -> int:
    """Return the number of optimizer steps that the demo means to make."""
    return settings.train_steps if warm is None else settings.tuning_steps


def sample_stage(
    settings: DemoSettings, data: GraphDataset, checkpoint: LoadedCheckpoint
) -> tuple[GeneratedGraph, ...]:
    """Sample one graph for each of several training graphs' conditions, as `layerdag sample`.

    They are spread evenly over the training graphs, whose order is that in which they were
    collected: the first ones are of few families.
    """
    train_dags, num = data.graphs["train"], settings.samples
    rows = [train_dags[i * len(train_dags) // num].conditions for i in range(num)]
    # All side by side: what a step of the sampler costs grows little with the number of graphs.
    plan = GenerationSettings(seed=settings.seed, max_nodes=2 * settings.max_nodes, batch_size=num)
    parts = [range(part, num, settings.processes) for part in range(settings.processes)]
    draws = [partial(_sampled, checkpoint.model, data.schema, rows, plan, part) for part in parts]
    waiting = [begin_beside(draw) for draw in draws[1:]]
    drawn = [draws[0](), *(wait() for wait in waiting)]
    return tuple(drawn[i % settings.processes][i // settings.processes] for i in range(num))


def _sampled(
    model: DAGModel,
    schema: GraphSchema,
    rows: Sequence[Mapping[str, Condition]],
    plan: GenerationSettings,
    numbers: range,
) -> list[GeneratedGraph]:
    """Sample the graphs with these numbers."""
    sampled = sample_like(model, schema, [rows[i] for i in numbers], plan, numbers)
    return list(track(sampled, "sampling", len(numbers)))


def timed(seconds: dict[str, float], name: str, start: float) -> float:
    """Note how long a stage took and return the time now."""
    now = time.perf_counter()
    seconds[name] = now - start
    return now


def hardware() -> str:
    """Return processor count and torch build in a few words."""
    import os
    import platform

    return f"{os.cpu_count()} {platform.machine()} cores, torch {torch.__version__}, CPU"
