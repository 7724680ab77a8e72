"""Train the teacher on private graphs, and the student on its samples.

The student: a model of the published samples alone, whose weights may be published with them.

Its weights are a function of the published files, of the public weights that it starts from, of
public graphs if there are some (``--public``), and of seeds. Nothing that the files do not hold can
therefore be read from the weights, whatever attack is run (post-processing); what they make is
convenience: further samples without another release.
"""

import shutil
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from layerdag.datasets.dataset import GraphDataset
from layerdag.errors import CheckpointError, DataError
from layerdag.graph.attributed_graph import AttributedGraph, Split
from layerdag.models.base import DAGModel, ModelSpec, build_model
from layerdag.publication.drawing import published_graphs
from layerdag.publication.settings import (
    STUDENT,
    TRAINING,
    PrivateWorkspace,
    ReleaseSettings,
    read_jobs,
)
from layerdag.runtime.rng import derive_seed, numpy_generator
from layerdag.sampling.generated import GeneratedGraph
from layerdag.training.checkpoint import (
    BEST,
    InitialWeights,
    LoadedCheckpoint,
    load_checkpoint,
)
from layerdag.training.loop import train
from layerdag.training.run import (
    LearningRateSchedule,
    OptimizerConfig,
    TrainingRun,
    TrainResult,
    TrainSettings,
    assemble,
)
from layerdag.training.weight_transfer import PRETRAINED, spec_for, warm_start

MOST_PUBLIC = 400


def public_graphs(settings: ReleaseSettings) -> tuple[AttributedGraph, ...]:
    """Return at most ``MOST_PUBLIC`` graphs of the folder of public ones; none without a folder.

    Args:
        settings: Of the release; its seed draws the graphs, where there are more.

    Raises:
        DataError: If nothing in the folder can be read.
    """
    if settings.public is None:
        return ()
    found = read_jobs(replace(settings, traces=settings.public, public=None, labels=None)).graphs
    rng = numpy_generator(settings.seed, "public graphs")
    return tuple(found[i] for i in sorted(rng.permutation(len(found))[:MOST_PUBLIC].tolist()))


def with_public(samples: GraphDataset, public: Sequence[AttributedGraph]) -> GraphDataset:
    """Return samples with public graphs to train on, of each kind about as many.

    Schema and validation stay those of the samples. Public graphs with a word that no sample has
    are left out. Samples are repeated where there are fewer of them.

    Args:
        samples: What a student learns from.
        public: In words and numbers.
    """
    coded = GraphDataset.with_schema("public", samples.schema, {"train": public})
    if not coded.graphs["train"]:
        return samples
    own = samples.graphs["train"]
    times = max(round(len(coded.graphs["train"]) / len(own)), 1)
    graphs = (*tuple(own) * times, *coded.graphs["train"])
    names = (*samples.names["train"] * times, *coded.names["train"])
    return samples.replaced(
        graphs={**samples.graphs, "train": graphs},
        names={**samples.names, "train": names},
    )


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
    return assemble(
        data,
        folder,
        spec or spec_for(data, "fast", {"width": WIDTH}),
        start=start,
        run_config={"release": True, "seed": settings.seed},
        overwrite=True,
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


def train_or_reuse(
    settings: ReleaseSettings,
    data: GraphDataset,
    work: PrivateWorkspace,
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
    try:
        result = train(run, plan, resume_from=run.last)
    except CheckpointError:  # there is nothing to go on with, or it is damaged
        result = train(run, plan)
    if not result.is_finished:
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


VALIDATION_FRACTION = 0.15
LEAST_SAMPLES = 8
"""Samples below which no student is trained."""


def student_data(samples: Sequence[GeneratedGraph], seed: int) -> GraphDataset:
    """Return the published samples as a data set with a schema of its own.

    Args:
        samples: What is published; none is a copy of a real graph.
        seed: Of the split into training and validation.

    Raises:
        DataError: If there are too few.
    """
    graphs = list(published_graphs(samples))
    if len(graphs) < LEAST_SAMPLES:
        raise DataError(
            f"{len(graphs)} samples are published, and a student needs at least {LEAST_SAMPLES}; "
            "ask for more with --num."
        )
    order = sorted(range(len(graphs)), key=lambda i: derive_seed(seed, "student split", str(i)))
    held = max(round(VALIDATION_FRACTION * len(graphs)), 1)
    parts: dict[Split, list[AttributedGraph]] = {
        "train": [graphs[i] for i in sorted(order[held:])],
        "val": [graphs[i] for i in sorted(order[:held])],
    }
    return GraphDataset.build("samples", samples[0].schema.kind, parts)


def train_student(
    settings: ReleaseSettings,
    data: GraphDataset,
    work: PrivateWorkspace,
    seconds: float,
    public: Sequence[AttributedGraph] = (),
) -> LoadedCheckpoint:
    """Return the best checkpoint of a student; see ``trained_once``.

    Args:
        settings: Of the release.
        data: The published samples.
        work: The private folder.
        seconds: Most seconds that training may take.
        public: Public graphs that it learns beside them.
    """
    data = with_public(data, public)
    return train_or_reuse(settings, data, work, seconds, stage="student", folder=STUDENT)


TRAINING_FRACTION = 0.35
"""Of the budget."""


def train_teacher(
    settings: ReleaseSettings, data: GraphDataset, work: PrivateWorkspace, seconds: float
) -> LoadedCheckpoint:
    """Return the best checkpoint of the teacher; see ``trained_once``.

    Args:
        settings: Of the release.
        data: The split real graphs.
        work: The private folder.
        seconds: Most seconds that training may take.
    """
    return train_or_reuse(settings, data, work, seconds, stage="train", folder=TRAINING)
