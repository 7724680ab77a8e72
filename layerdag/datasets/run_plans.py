"""The plans of the embedded corpus' training runs, in the words of ``layerdag.capture_model``."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from layerdag.schema.plan_tables import SINGLE, PlannedStep, Setting
from layerdag.traces.chakra.corpus import INDEX, RunRecord, read_index

OPTIMIZERS: Mapping[str, str] = {
    "sgd": "sgd-forloop",
    "momentum": "sgd-momentum-foreach",
    "adam": "adam-forloop",
    "adamw_foreach": "adamw-foreach",
    "adamw_fused": "adamw-fused",
    "adagrad": "adagrad-forloop",
    "rmsprop": "rmsprop-foreach",
}
"""Optimizers of the corpus by the names of ``layerdag.capturing.optimizers``."""
_DEGREES: Mapping[str, str] = {"ddp": "data", "fsdp2": "fsdp", "tp": "tensor", "pp": "pipeline"}
"""Strategies of the corpus and the degree of each; of others no step can be derived."""
_CLIP = 1.0
_STRATEGIES = {degree: strategy for strategy, degree in _DEGREES.items()}


def corpus_strategy(strategy: str) -> str:
    """Return how a corpus calls the strategy of a plan: "ddp" for "data", "tp" for "tensor"."""
    return "+".join(_STRATEGIES.get(part, part) for part in strategy.split("+"))


def run_plans(corpus: Path) -> dict[str, PlannedStep]:
    """Return the plan of each training run of a corpus and of its further runs, by name.

    Runs that exchange experts or embeddings are left out, as no step derives them. A folder without
    an index has none.
    """
    folders = [folder for folder in (corpus, corpus / "further") if (folder / INDEX).is_file()]
    return {
        record.run: plan
        for folder in folders
        for record in read_index(folder)
        if record.phase == "training" and (plan := _plan(record)) is not None
    }


def _plan(record: RunRecord) -> PlannedStep | None:
    """Return the plan of a run; None if no step of it can be derived."""
    if record.strategy == "single":
        return PlannedStep(record.family, SINGLE, dict(_settings(record)))
    degree = _DEGREES.get(record.strategy)
    if degree is None:
        return None
    settings = {degree: record.world_size, **dict(_settings(record))}
    return PlannedStep(record.family, degree, settings)


def _settings(record: RunRecord) -> Iterator[tuple[str, Setting]]:
    """Yield the settings of a run's step."""
    hyper = record.hyper
    # Runs of the corpus were collected before the setting got its American spelling.
    yield "optimizer", OPTIMIZERS[str(hyper.get("optimizer", hyper.get("optimiser")))]
    yield "clip", _CLIP if hyper["clip"] else 0
    if record.strategy == "pp":
        yield "schedule", str(hyper["schedule"])
        yield "micro_batches", int(hyper["microbatches"])
    else:
        yield "accumulate", int(hyper["accumulate"])
    if record.strategy == "ddp":
        yield "bucket_bytes", int(float(hyper["bucket_mb"]) * 2**20)
