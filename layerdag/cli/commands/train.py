"""``layerdag train``: train a generator."""

import contextlib
import math
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layerdag.cli.flags import STRICT
from layerdag.cli.printing import (
    JSON,
    left_out_lines,
    print_json,
    print_notes,
    strict_code,
    warn,
)
from layerdag.errors import ConfigError, DataError, UsageError

if TYPE_CHECKING:
    import torch
    from omegaconf import DictConfig

    from layerdag.cli.settings import TrainConfig
    from layerdag.datasets.dataset import GraphDataset
    from layerdag.dp.tuning import PrivateResult
    from layerdag.models.spec import ModelSpec
    from layerdag.runtime.notes import Note
    from layerdag.training.loggers import Logger
    from layerdag.training.run import TrainResult

CARD = "privacy.md"
"""Card in the folder of a run: it names nothing of the private graphs."""
UNITS = "losses are nats per decision (per graph where the name ends in per_graph); lower is better"


def main(overrides: Sequence[str]) -> int:
    """Run ``train`` with flags and overrides; with ``resume=RUN`` on top of its settings."""
    from layerdag.cli.compose import run

    task = partial(_task, strict=STRICT in overrides, as_json=JSON in overrides)
    return run("train", task, [word for word in overrides if word not in (STRICT, JSON)])


def _task(config: "DictConfig", *, strict: bool, as_json: bool) -> float | None:
    """Train once; the return value is what a sweeper minimizes."""
    import torch
    from omegaconf import OmegaConf

    from layerdag.cli.settings import train_config
    from layerdag.training.run_folder import require_free, require_resumable, run_of

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
    # Before the data are read; what may be resumed is known once the folder is held.
    if _is_first() and not asked.resume:
        require_free(directory, overwrite=asked.overwrite)
    elif _is_first() and not directory.is_dir():
        require_resumable(directory)
    make = _tuned if asked.privacy.is_on else _trained
    result = make(config, asked, directory, strict=strict, as_json=as_json)
    return sum(result.metrics.values()) if result.metrics else math.inf


def _is_first() -> bool:
    return int(os.environ.get("RANK", "0")) == 0


def _require_understood(notes: "Sequence[Note]", *, strict: bool) -> None:
    """Print what readers of the graphs did not understand; raise DataError if ``strict``."""
    if _is_first():
        print_notes(notes)
    if strict_code(notes, strict=strict):
        raise DataError(
            f"{notes[0].place}: was not understood in full (see the notes above); mend the graphs, "
            f"or leave {STRICT} out. Nothing was trained."
        )


def _trained(
    config: "DictConfig", asked: "TrainConfig", directory: Path, *, strict: bool, as_json: bool
) -> "TrainResult":
    """Load the data, train, and print the outcome."""
    from layerdag.api.preview import SamplePreview
    from layerdag.cli.compose import model_overrides, to_plain_dict
    from layerdag.cli.main import Terminated, resume_gc
    from layerdag.datasets.advice import advice_on, too_few_held_out
    from layerdag.datasets.loading import load_config
    from layerdag.training.batches import joined_world, local_device
    from layerdag.training.checkpoint import PICTURES
    from layerdag.training.loop import train
    from layerdag.training.model_spec import spec_for
    from layerdag.training.run import assemble
    from layerdag.training.run_file import public_config, run_record
    from layerdag.training.warm_start import warm_start

    resume_gc()
    data, logging, device = load_config(asked.data), asked.logger, local_device(asked.device)
    _require_understood(data.notes, strict=strict)
    data = data if asked.conditions is None else data.conditioned_on(asked.conditions)
    warm = None
    if asked.init:
        warm = warm_start(asked.init, data, *model_overrides(config.model))
        config.model = {"name": warm.spec.name, **warm.spec.arguments}
    plain = to_plain_dict(config)
    run = assemble(
        data,
        directory,
        spec_for(data, asked.model.name, asked.model.config) if warm is None else warm.spec,
        start=None if warm is None else warm.start,
        run_config=public_config(plain),
        record=run_record(directory, plain, data.renamed, data.notes),
        overwrite=asked.overwrite,
    )
    with joined_world(device) as world, contextlib.ExitStack() as stack:
        quiet = world.rank != 0
        if not quiet:
            for sentence in filter(None, (*advice_on(data), too_few_held_out(data))):
                warn(sentence)
            if warm is not None:
                print(f"layerdag: {warm}", file=sys.stderr)
            if logging.console:
                sys.stderr.write(announcement(data, run.spec, device))
        preview = SamplePreview(data, directory / PICTURES, logging.sample_graphs)
        try:
            result = train(
                run,
                asked.training,
                device=device,
                world=world,
                loggers=[] if quiet else _loggers(asked, directory, run.run_config, stack),
                callback=preview if logging.sample_graphs and not quiet else None,
                resume_from=run.last if asked.resume else None,
            )
        except KeyboardInterrupt as stop:
            raise type(stop)(_how_to_go_on(directory)) from None
        if not quiet and as_json:
            print_json(result.to_dict())
            sys.stdout.flush()
        if not quiet and logging.console and result.is_finished:
            sys.stderr.write(_ending(result))
    if not result.is_finished:
        stopped = KeyboardInterrupt if result.reason == "SIGINT" else Terminated
        raise stopped(f"{result.step} steps are saved. {_how_to_go_on(directory)}")
    return result


def _how_to_go_on(directory: Path) -> str:
    from layerdag.training.checkpoint import LAST

    if not (directory / LAST).is_dir():
        return "No checkpoint was written yet."
    return f"Go on with: layerdag train resume={shlex.quote(str(directory))}"


def _loggers(
    asked: "TrainConfig", directory: Path, config: Mapping[str, Any], stack: contextlib.ExitStack
) -> "list[Logger]":
    """Return the loggers beside the file, which are closed with the stack."""
    from tqdm import tqdm

    from layerdag.runtime.terminal import plain_stream
    from layerdag.training.loggers import open_loggers

    write = partial(tqdm.write, file=plain_stream(sys.stderr), end="")
    loggers = open_loggers(asked.logger, directory, config, write)
    for logger in loggers:
        stack.callback(logger.close)
    return loggers


def _tuned(
    config: "DictConfig", asked: "TrainConfig", directory: Path, *, strict: bool, as_json: bool
) -> "TrainResult":
    """Tune ``init`` under differential privacy, and print the promise."""
    from layerdag.cli.compose import model_overrides, to_plain_dict
    from layerdag.dp.private_run import private_run, require_private
    from layerdag.dp.tuning import tune_privately
    from layerdag.runtime.files import write_text
    from layerdag.training.batches import local_device
    from layerdag.training.loggers import DISABLED
    from layerdag.training.run_file import public_config, run_record

    name, options = model_overrides(config.model)
    refused = {"model": name, **options, "conditions": asked.conditions, "resume": asked.resume}
    require_private(asked.privacy, asked.init, asked.training, refused)
    if asked.logger.wandb != DISABLED or int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ConfigError(
            "privacy.epsilon tunes in one process, and its figures stay with their owner; leave "
            "torchrun and logger.wandb out."
        )
    assert asked.init is not None
    plain = to_plain_dict(config)
    plain["privacy"]["epsilon"] = str(asked.privacy.epsilon)  # JSON has no infinity
    run = private_run(
        asked.data, asked.init, asked.privacy, directory, seed=asked.seed,
        run_config=public_config(plain), overwrite=asked.overwrite,
    )  # fmt: skip
    _require_understood(run.notes, strict=strict)
    lines = [str(run), *left_out_lines(run.left_out)]
    lines.append("figures below are for the owner of the graphs alone: they have no noise")
    sys.stderr.write("\n".join(lines) + "\n")
    run = replace(run, record=run_record(directory, plain, notes=run.notes))
    with contextlib.ExitStack() as stack:
        loggers = _loggers(asked, directory, {}, stack)
        result = tune_privately(run, device=local_device(asked.device), loggers=loggers)
    write_text(directory / CARD, result.card())
    if as_json:
        print_json({**result.run.to_dict(), "privacy": asdict(result.guarantee)})
    sys.stderr.write(_promise(result))
    return result.run


def _promise(result: "PrivateResult") -> str:
    """Return the promise, the measured lower bound, and the command that samples."""
    guarantee = result.guarantee
    lines = [f"{guarantee.trained_parameters:,} parameters tuned: {guarantee}"]
    if guarantee.lower_bound is not None:
        lines.append(
            f"an attacker with the weights proves that epsilon is {guarantee.lower_bound:.2f} or "
            "more (95 % confidence); canaries took part, so share other weights"
        )
    best = shlex.quote(str(result.run.best))
    lines.append(f"Sample from it: layerdag sample checkpoint={best}")
    return "\n".join(lines) + "\n"


def announcement(data: "GraphDataset", spec: "ModelSpec", device: "torch.device") -> str:
    """Return what is about to be trained on what, a line each."""
    from layerdag.models.spec import build_without_weights

    parameters = sum(parameter.numel() for parameter in build_without_weights(spec).parameters())
    counts = ", ".join(f"{len(dags)} {split}" for split, dags in data.graphs.items())
    lines = [f"data: {data.name}: {counts} graphs"]
    lines += left_out_lines(data.left_out)
    lines.append(f"model: {spec.name}, {parameters:,} parameters, on {device}")
    return "\n".join([*lines, UNITS]) + "\n"


def _ending(result: "TrainResult") -> str:
    """Return how training ended and the command that samples from it."""
    best = shlex.quote(str(result.best))
    steps = "1 step" if result.step == 1 else f"{result.step} steps"
    why = {"budget": "its budget was spent", "patience": "validation improved no more"}
    return (
        f"trained {steps} in {result.seconds:.0f} s, until {why[result.reason]}. "
        f"Sample from it: layerdag sample checkpoint={best}\n"
    )
