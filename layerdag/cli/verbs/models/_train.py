"""``layerdag train`` and ``train.py``: one training run from a composed config."""

import contextlib
import json
import math
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from tqdm import tqdm

from layerdag._runtime import write_text
from layerdag.api import WarmStart, private_run, require_private, too_few_held_out, warm_start
from layerdag.cli import Terminated
from layerdag.cli.output import (
    CARD,
    Watch,
    after_training,
    after_tuning,
    announcement,
    before_tuning,
    privacy_card,
)
from layerdag.cli.settings import (
    TrainConfig,
    as_plain,
    given_model,
    public_config,
    run,
    run_file_if_taken_up,
    train_config,
    warn,
    with_own_settings,
    write_run_file,
)
from layerdag.datasets import GraphDataset, load_config
from layerdag.errors import ConfigError, UsageError
from layerdag.models import ModelSpec, spec_for
from layerdag.training import (
    LAST,
    LOG,
    PICTURES,
    RUN_FILE,
    InitialWeights,
    TrainingRun,
    TrainResult,
    clear_run,
    held_run,
    joined_world,
    local_device,
    require_free,
    require_resumable,
    run_of,
    train,
)
from layerdag.training.monitoring import (
    DISABLED,
    ConsoleLogger,
    JsonlLogger,
    Logger,
    LoggerSettings,
    WandbLogger,
)
from layerdag.training.private import tune

# How a run ends that was not stopped.
ENDINGS = ("budget", "patience")


def main(overrides: Sequence[str]) -> int:
    """Run ``train`` with Hydra overrides; with ``resume=RUN`` on top of that run's settings."""
    return run("train", _task, with_own_settings(overrides))


def _task(config: DictConfig) -> float | None:
    """Train once; the return value is what a sweeper minimizes."""
    asked = train_config(config)
    if asked.dry_run:
        sys.stdout.write(OmegaConf.to_yaml(config, resolve=True))
        return None
    if asked.threads:
        torch.set_num_threads(asked.threads)
    if asked.resume and asked.init:
        raise UsageError(
            f"init={asked.init} is for a new run, and resume={asked.resume} goes on with the "
            "weights of an old one; leave one of them out."
        )
    directory = run_of(asked.resume) if asked.resume else asked.out
    if asked.resume and not directory.is_dir():
        require_resumable(directory)
    # Under torchrun one process holds the folder for all.
    with held_run(directory) if _is_first() else contextlib.nullcontext():
        if _is_first() and asked.resume:
            require_resumable(directory)
        elif _is_first():
            require_free(directory, overwrite=asked.overwrite)
        make = _tuned if asked.privacy.is_on else _trained
        resumed = _is_first() and asked.resume
        with run_file_if_taken_up(directory) if resumed else contextlib.nullcontext():
            result = make(config, asked, directory)
    return sum(result.metrics.values()) if result.metrics else math.inf


def _renamings(data: GraphDataset) -> list[str]:
    """Return one sentence for each attribute or condition with words that were renamed."""
    return [
        f"{len(table)} words of '{name}' are not public and were renamed, such as {min(table)}; "
        f"{RUN_FILE} in the run's folder says which is which, data.public_words=all keeps them."
        for name, table in data.renamed.items()
    ]


def _is_first() -> bool:
    """Return whether this is the first or only process of a run, before they have met."""
    return int(os.environ.get("RANK", "0")) == 0


def _trained(config: DictConfig, asked: TrainConfig, directory: Path) -> TrainResult:
    """Load the data, train, and print the outcome.

    Raises:
        KeyboardInterrupt: If a signal ended the run; says how to go on.
    """
    data, logging = load_config(asked.data), asked.logger
    if asked.conditions is not None:
        data = data.conditioned_on(asked.conditions)
    device = pick_device(asked.device)
    warm = _warm_start(config, data)
    spec = spec_for(data, asked.model.name, asked.model.config) if warm is None else warm.spec
    training = make_run(config, data, directory, spec, None if warm is None else warm.start)
    with joined_world(device) as world:
        quiet = world.rank != 0
        if not quiet:
            _begin(config, data, directory)
            if warm is not None:
                print(f"layerdag: {warm}", file=sys.stderr)
            if logging.console:
                sys.stderr.write(announcement(data, training.spec, device))
        record = training.run_config
        loggers = [] if quiet else open_loggers(logging, directory, record, asked.resume)
        watch = Watch(data, directory / PICTURES, logging.sample_graphs)
        try:
            result = train(
                training,
                asked.training,
                device=device,
                world=world,
                loggers=loggers,
                callback=watch if logging.sample_graphs and not quiet else None,
                resume_from=training.last if asked.resume else None,
            )
        except KeyboardInterrupt as stop:
            raise type(stop)(_how_to_go_on(directory)) from None
        finally:
            for logger in loggers:
                logger.close()
        if not quiet:
            sys.stdout.write(json.dumps(describe(result), allow_nan=False) + "\n")
            sys.stdout.flush()
            if logging.console and result.reason in ENDINGS:
                sys.stderr.write(after_training(result))
    if result.reason not in ENDINGS:
        stopped = KeyboardInterrupt if result.reason == "SIGINT" else Terminated
        raise stopped(f"{result.step} steps are saved. " + _how_to_go_on(directory))
    return result


def _tuned(config: DictConfig, asked: TrainConfig, directory: Path) -> TrainResult:
    """Tune ``init`` under differential privacy, and print the promise.

    Raises:
        ConfigError: If something is asked for that is not done, or would break the promise.
    """
    name, options = given_model(config.model)
    refused = {"model": name, **options, "conditions": asked.conditions, "resume": asked.resume}
    require_private(asked.privacy, asked.init, asked.training, refused)
    if asked.logger.wandb != DISABLED or int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ConfigError(
            "privacy.epsilon tunes in one process, and its figures stay with their owner; leave "
            "torchrun and logger.wandb out."
        )
    assert asked.init is not None
    plain = as_plain(config)
    plain["privacy"]["epsilon"] = str(asked.privacy.epsilon)  # JSON has no infinity
    tuning = private_run(
        asked.data, asked.init, asked.privacy, directory, seed=asked.seed,
        run_config=public_config(plain),
    )  # fmt: skip
    clear_run(directory)
    write_run_file(directory, plain)
    sys.stderr.write(before_tuning(tuning))
    loggers = open_loggers(asked.logger, directory, {}, None)
    try:
        result = tune(tuning, device=pick_device(asked.device), loggers=loggers)
    finally:
        for logger in loggers:
            logger.close()
    write_text(directory / CARD, privacy_card(result))
    figures = {**describe(result.run), "privacy": result.guarantee.to_dict()}
    sys.stdout.write(json.dumps(figures, allow_nan=False) + "\n")
    sys.stderr.write(after_tuning(result))
    return result.run


def _begin(config: DictConfig, data: GraphDataset, directory: Path) -> None:
    """Make the run's folder ready, and warn of renamed words and of too few graphs."""
    if not config.resume:
        clear_run(directory)
    write_run_file(directory, as_plain(config), data.renamed)
    for sentence in _renamings(data):
        warn(sentence)
    if (advice := too_few_held_out(data)) is not None:
        warn(advice)


def _how_to_go_on(directory: Path) -> str:
    """Return the command that resumes a run."""
    if not (directory / LAST).is_dir():
        return "No checkpoint was written yet."
    return f"Go on with: layerdag train resume={shlex.quote(str(directory))}"


def _warm_start(config: DictConfig, data: GraphDataset) -> WarmStart | None:
    """Return what a run starts from, and put the settings of that model into the config."""
    if not config.init:
        return None
    name, options = given_model(config.model)
    warm = warm_start(str(config.init), data, name, options, seed=int(config.seed))
    config.model = {"name": warm.spec.name, **warm.spec.arguments}
    return warm


def make_run(
    config: DictConfig,
    data: GraphDataset,
    directory: Path,
    spec: ModelSpec,
    start: InitialWeights | None = None,
) -> TrainingRun:
    """Return the training run of a model on a data set, with the config on record.

    Raises:
        DataError: If the validation part is empty.
    """
    return TrainingRun(
        spec=spec,
        start=start,
        train=data.batch("train"),
        validation=data.batch("val"),
        directory=directory,
        schema=data.schema.to_dict(),
        run_config=public_config(as_plain(config)),
        data_fingerprint=data.fingerprint,
        split=data.split,
    )


def pick_device(name: str) -> torch.device:
    """Return the device that ``name`` means; "auto" is the GPU where there is one.

    Raises:
        ConfigError: If the device is unknown or not there.
    """
    try:
        device = local_device(name)
    except RuntimeError as error:
        raise ConfigError(f"There is no device '{name}'; use auto, cpu or cuda.") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device=cuda, but torch sees no GPU; use device=cpu.")
    return device


def open_loggers(
    settings: LoggerSettings, directory: Path, config: Mapping[str, Any], resume: Path | None
) -> list[Logger]:
    """Return the loggers of a run; the JSONL file goes on after a resumed step."""
    step = _resumed_step(directory) if resume else 0
    loggers: list[Logger] = [JsonlLogger(directory / LOG, step)]
    say = partial(tqdm.write, file=sys.stderr, end="")
    if settings.console:
        loggers.append(ConsoleLogger(say))
    if settings.wandb != DISABLED:
        loggers.append(WandbLogger(directory, settings.project, config, settings.wandb, say))
    return loggers


def _resumed_step(directory: Path) -> int:
    """Return the step of the run's last checkpoint, 0 if there is none."""
    meta = directory / LAST / "meta.json"
    return int(json.loads(meta.read_text())["step"]) if meta.is_file() else 0


def describe(result: TrainResult) -> dict[str, Any]:
    """Return the outcome as one JSON object for scripts."""
    return {
        "reason": result.reason,
        "step": result.step,
        "seconds": round(result.seconds, 1),
        "metrics": dict(result.metrics),
        "best": str(result.best) if result.best.is_dir() else None,
        "last": str(result.last) if result.last.is_dir() else None,
    }
