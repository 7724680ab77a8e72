"""``layerdag train``: train a generator."""

import contextlib
import json
import math
import os
import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layerdag.cli.flags import STRICT
from layerdag.cli.printing import (
    JSON,
    left_out_lines,
    print_json,
    print_notes,
    require_plain_json,
    strict_code,
    unknown_share,
)
from layerdag.errors import ConfigError, DataError, UsageError

if TYPE_CHECKING:
    import torch
    from omegaconf import DictConfig

    from layerdag.cli.settings import TrainConfig
    from layerdag.datasets.dataset import GraphDataset
    from layerdag.dp.tuning import PrivateResult, PrivateRun
    from layerdag.models.base import DAGModel, ModelSpec
    from layerdag.runtime.notes import Note
    from layerdag.sampling.parts import PartSettings
    from layerdag.training.checkpoint import InitialWeights
    from layerdag.training.loggers import Logger, LoggerSettings
    from layerdag.training.run import CallbackResult, TrainingRun, TrainResult
    from layerdag.training.weight_transfer import WarmStart


CARD = "privacy.md"
"""Card in the folder of a run: it names nothing of the private graphs."""


def before_tuning(run: "PrivateRun") -> str:
    """Return what is about to be tuned: for the owner of the graphs alone."""
    unit, count = run.privacy.unit, run.units.count
    lines = [
        f"private: {run.units.graphs.num_graphs:,} graphs of {count:,} {unit}s, in the words, bins "
        f"and conditions of {run.start.origin.name}; validation and test graphs are not used"
    ]
    lines += left_out_lines(run.left_out)
    lines.append("figures below are for the owner of the graphs alone: they have no noise")
    return "\n".join(lines) + "\n"


def after_tuning(result: "PrivateResult") -> str:
    """Return the promise, the measured lower bound, and the command that samples."""
    guarantee, best = result.guarantee, shlex.quote(str(result.run.best))
    lines = [f"{guarantee.trained_parameters:,} parameters tuned: {guarantee}"]
    if guarantee.lower_bound is not None:
        lines.append(
            f"an attacker with the weights proves that epsilon is {guarantee.lower_bound:.2f} or "
            "more (95 % confidence); canaries took part, so share other weights"
        )
    lines.append(f"Sample from it: layerdag sample checkpoint={best}")
    return "\n".join(lines) + "\n"


def privacy_card(result: "PrivateResult") -> str:
    """Return the card, in Markdown."""
    guarantee = result.guarantee
    rows = [
        ("unit", guarantee.unit),
        ("epsilon", "none" if guarantee.epsilon is None else f"{guarantee.epsilon:g}"),
        ("delta", f"{guarantee.delta:g}"),
        ("neighbors", guarantee.neighbors),
        ("accountant", guarantee.accountant),
        ("noise over clipping norm", f"{guarantee.noise_multiplier:.4g}"),
        ("sampling", f"Poisson, rate {guarantee.sampling_rate:g}"),
        ("steps", str(guarantee.steps)),
        ("clipping norm", f"{guarantee.clip:g}"),
        ("tuned parameters", f"{guarantee.trained_parameters:,}"),
        ("noise", guarantee.noise),
        ("measured lower bound of epsilon",
         "not measured" if guarantee.lower_bound is None else f"{guarantee.lower_bound:.2f}"),
    ]  # fmt: skip
    table = "\n".join(f"| {name} | {value} |" for name, value in rows)
    return (
        f"# Differential privacy of these weights\n\n{guarantee}.\n\n"
        f"| | |\n|---|---|\n{table}\n\n"
        "The promise is about the runs that were tuned on, not about those of the checkpoint that "
        "tuning started from, and about one run of tuning: choosing among several by private "
        "graphs is not in it. Arithmetic is in floating point, which the proof ignores.\n"
    )


UNITS = "losses are nats per decision (per graph where the name ends in per_graph); lower is better"


def announcement(data: "GraphDataset", spec: "ModelSpec", device: "torch.device") -> str:
    """Return what is about to be trained on what, a line each."""
    counts = ", ".join(f"{len(dags)} {split}" for split, dags in data.graphs.items())
    lines = [f"data: {data.name}: {counts} graphs"]
    lines += left_out_lines(data.left_out)
    lines.append(f"model: {spec.name}, {_parameters(spec):,} parameters, on {device}")
    return "\n".join([*lines, UNITS]) + "\n"


def _parameters(spec: "ModelSpec") -> int:
    from layerdag.models.base import build_without_weights

    return sum(parameter.numel() for parameter in build_without_weights(spec).parameters())


def after_training(result: "TrainResult") -> str:
    """Return how training ended and the command that samples from it."""
    best = shlex.quote(str(result.best))
    steps = "1 step" if result.step == 1 else f"{result.step} steps"
    return (
        f"trained {steps} in {result.seconds:.0f} s, until {_why(result.reason)}. "
        f"Sample from it: layerdag sample checkpoint={best}\n"
    )


def _why(reason: str) -> str:
    return {
        "budget": "its budget was spent",
        "patience": "validation improved no more",
    }.get(reason, reason)


def after_sampling(manifest: Path) -> str:
    """Return what was made, and how to look at it; ``manifest`` is that of the samples."""
    out, samples = manifest.parent, json.loads(manifest.read_text(encoding="utf-8"))["samples"]
    name = samples[0]["name"]
    first = shlex.quote(str(out / samples[0].get("file", f"{name}/{name}.0.et")))
    count = "1 sample" if len(samples) == 1 else f"{len(samples):,} samples"
    return (
        f"wrote {count} to {out}. Check all: layerdag validate {shlex.quote(str(out))}; "
        f"look at the first: layerdag view {first} --out sample.svg\n"
    )


def reached_numbers(manifest: Path) -> Iterator[str]:
    """Yield, for each number that was asked of programs, how near the samples come to it."""
    samples = json.loads(manifest.read_text(encoding="utf-8"))["samples"]
    for name in dict.fromkeys(name for sample in samples for name in sample.get("wanted", {})):
        asked, missing, found = 0.0, 0, {}
        for sample in samples:
            number = sample.get("wanted", {}).get(name)
            if number is None or number["reached"] is None:
                missing += 1
            else:
                asked, found[sample["name"]] = number["asked"], number["reached"]
        if not found:
            yield f"{name}: no sample has such a size"
            continue
        exact = sum(number == asked for number in found.values())
        text = f"{name}: {asked:,.6g} asked for, exact in {exact} of {len(samples)} samples"
        if exact < len(found):
            far = max(found, key=lambda each: abs(found[each] / asked - 1))
            text += f"; at most {found[far] / asked - 1:+.2%} off ({far} has {found[far]:,.6g})"
        yield f"{text}; {missing} have no such size" if missing else text


def before_parts(num: int, parts: "PartSettings") -> str:
    """Return a warning if there are more shards than parts, so that some draw nothing; else ""."""
    shards, there = parts.assigned.count, -(-num // parts.part_size)
    if shards <= there:
        return ""
    fitting = max(num // shards, 1)
    return (
        f"layerdag: there is work for only {there:,} of {shards:,} shards, since {num:,} samples "
        f"are cut into parts of {parts.part_size:,}; part_size={fitting} gives each its share.\n"
    )


def after_parts(folder: Path) -> str:
    """Return which parts of a run of samples are there, and how to look at them."""
    from layerdag.codec.sample_files import SampleRun

    run = SampleRun.read(folder)
    there, where = run.count_parts(folder), shlex.quote(str(folder))
    if there < run.num_parts:
        return (
            f"{there:,} of {run.num_parts:,} parts are in {folder}; the same command writes what "
            f"is missing from its shard. Look at them: layerdag info {where}\n"
        )
    count = "1 sample" if run.num == 1 else f"{run.num:,} samples"
    return (
        f"{count} in {run.num_parts:,} parts are in {folder}. "
        f"Check all: layerdag validate {where}; look at them: layerdag info {where}\n"
    )


MAX_NODES = 1000
"""No sample of a validation is larger: it is looked at, not measured."""


class SamplePreview:
    """Samples a few graphs with fixed seeds, so that pictures of one run can be compared.

    A model that has hardly been trained does not know when to end a graph, so a sample is cut at
    twice the nodes of the largest training graph.

    Args:
        data: The data set of the run.
        folder: Where the pictures go.
        num_graphs: Graphs per validation.
    """

    def __init__(self, data: "GraphDataset", folder: Path, num_graphs: int) -> None:
        self._schema, self._folder, self._num = data.schema, folder, max(num_graphs, 1)
        largest = max(dag.num_nodes for dag in data.graphs["train"])
        self._max_nodes = min(2 * largest, MAX_NODES)

    def __call__(self, model: "DAGModel", step: int) -> "CallbackResult":
        """Sample, check and draw."""
        import numpy as np

        from layerdag.evaluation.validity import check_structure
        from layerdag.sampling.generation import sample_once
        from layerdag.sampling.settings import GenerationSettings
        from layerdag.training.run import CallbackResult
        from layerdag.viz.drawing import write_picture

        was_training = model.training
        model.eval()
        start = time.perf_counter()
        settings = GenerationSettings(
            num=self._num, seed=0, guidance=1.0, best_of=1, max_nodes=self._max_nodes
        )
        samples = sample_once(model, self._schema, settings)
        seconds = time.perf_counter() - start
        model.train(was_training)
        dags = [sample.dag for sample in samples]
        picture = self._folder / f"samples-{step:06d}.png"
        write_picture(picture, dags[:4], [sample.name for sample in samples[:4]])
        values = {
            "samples/valid_share": check_structure(dags).validity,
            "samples/graphs_per_s": len(dags) / seconds,
            "samples/mean_nodes": float(np.mean([dag.num_nodes for dag in dags])),
            "samples/truncated_share": float(np.mean([sample.truncated for sample in samples])),
        }
        return CallbackResult(values, {"samples": picture})


# How a run ends that was not stopped.
ENDINGS = ("budget", "patience")


def main(overrides: Sequence[str]) -> int:
    """Run ``train`` with flags and overrides; with ``resume=RUN`` on top of its settings."""
    from layerdag.cli.main import gc_disabled

    # No setting of a run: what is trained is the same, or nothing is.
    require_plain_json(overrides)
    task = partial(_task, strict=STRICT in overrides, as_json=JSON in overrides)
    with gc_disabled():
        from layerdag.cli.compose import in_hydras_words, run, with_own_settings

        words = in_hydras_words("train", [word for word in overrides if word not in (STRICT, JSON)])
        return run("train", task, with_own_settings(words))


def _task(config: "DictConfig", *, strict: bool, as_json: bool) -> float | None:
    """Train once; the return value is what a sweeper minimizes."""
    import torch
    from omegaconf import OmegaConf

    from layerdag.cli.compose import resumed_run_file
    from layerdag.cli.settings import train_config
    from layerdag.training.run import require_free, require_resumable, run_lock, run_of

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
    with run_lock(directory) if _is_first() else contextlib.nullcontext():
        if _is_first() and asked.resume:
            require_resumable(directory)
        elif _is_first():
            require_free(directory, overwrite=asked.overwrite)
        make = _tuned if asked.privacy.is_on else _trained
        resumed = _is_first() and asked.resume
        with resumed_run_file(directory) if resumed else contextlib.nullcontext():
            result = make(config, asked, directory, strict=strict, as_json=as_json)
    return sum(result.metrics.values()) if result.metrics else math.inf


def _renamings(data: "GraphDataset") -> list[str]:
    from layerdag.training.checkpoint import RUN_FILE

    return [
        f"{len(table)} words of '{name}' are not public and were renamed, such as {min(table)}; "
        f"{RUN_FILE} in the run's folder says which is which, data.public_words=all keeps them."
        for name, table in data.renamed.items()
    ]


_LOOKED_AT = 1000
"""Graphs at most that are looked at for words that were not known."""


def _unknown_operators(data: "GraphDataset") -> list[str]:
    """Return a sentence on the nodes of jobs whose operator is not known, where there are any."""
    from layerdag.datasets.folder import unknown_operators

    graphs = list(islice(data.graphs["train"], _LOOKED_AT))
    unknown = sum(unknown_operators(data.schema, dag) for dag in graphs)
    nodes = sum(dag.num_nodes for dag in graphs)
    return unknown_share(unknown, nodes, "data.public_words", "data.public_words=all")


def _is_first() -> bool:
    return int(os.environ.get("RANK", "0")) == 0


def _tell_notes(notes: Sequence["Note"], *, strict: bool) -> None:
    """Print what the readers of the graphs did not understand, before anything is written.

    Raises:
        DataError: If there is something, and that is not allowed.
    """
    if _is_first():
        print_notes(notes)
    if strict_code(notes, strict=strict):
        raise DataError(
            f"{notes[0].place}: was not understood in full (see the notes above); mend the graphs, "
            f"or leave {STRICT} out. Nothing was trained."
        )


def _read(asked: "TrainConfig", *, strict: bool) -> "GraphDataset":
    """Return the data set with the conditions that are asked for, once its notes are printed.

    Raises:
        DataError: As ``_tell_notes``, or if it cannot be read.
    """
    from layerdag.datasets.loading import load_config

    data = load_config(asked.data)
    _tell_notes(data.notes, strict=strict)
    return data if asked.conditions is None else data.conditioned_on(asked.conditions)


def _trained(
    config: "DictConfig", asked: "TrainConfig", directory: Path, *, strict: bool, as_json: bool
) -> "TrainResult":
    """Load the data, train, and print the outcome.

    Raises:
        DataError: If ``strict`` does not allow what was read.
        KeyboardInterrupt: If a signal ended the run; says how to go on.
    """
    from layerdag.cli.main import Terminated, resume_gc
    from layerdag.training.batches import joined_world
    from layerdag.training.checkpoint import PICTURES
    from layerdag.training.loop import train
    from layerdag.training.weight_transfer import spec_for

    resume_gc()
    data, logging = _read(asked, strict=strict), asked.logger
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
        watch = SamplePreview(data, directory / PICTURES, logging.sample_graphs)
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
            if as_json:
                print_json(describe(result))
                sys.stdout.flush()
            if logging.console and result.reason in ENDINGS:
                sys.stderr.write(after_training(result))
    if result.reason not in ENDINGS:
        stopped = KeyboardInterrupt if result.reason == "SIGINT" else Terminated
        raise stopped(f"{result.step} steps are saved. " + _how_to_go_on(directory))
    return result


def _tuned(
    config: "DictConfig", asked: "TrainConfig", directory: Path, *, strict: bool, as_json: bool
) -> "TrainResult":
    """Tune ``init`` under differential privacy, and print the promise.

    Raises:
        ConfigError: If something is asked for that is not done, or would break the promise.
    """
    from layerdag.api.generator import private_run, require_private
    from layerdag.cli.compose import model_overrides, public_config, to_plain_dict, write_run_file
    from layerdag.dp.tuning import tune_privately
    from layerdag.runtime.files import write_text
    from layerdag.training.loggers import DISABLED
    from layerdag.training.run import clear_run

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
    tuning = private_run(
        asked.data, asked.init, asked.privacy, directory, seed=asked.seed,
        run_config=public_config(plain),
    )  # fmt: skip
    _tell_notes(tuning.notes, strict=strict)
    clear_run(directory)
    write_run_file(directory, plain, notes=tuning.notes)
    sys.stderr.write(before_tuning(tuning))
    loggers = open_loggers(asked.logger, directory, {}, None)
    try:
        result = tune_privately(tuning, device=pick_device(asked.device), loggers=loggers)
    finally:
        for logger in loggers:
            logger.close()
    write_text(directory / CARD, privacy_card(result))
    if as_json:
        print_json({**describe(result.run), "privacy": result.guarantee.to_dict()})
    sys.stderr.write(after_tuning(result))
    return result.run


def _begin(config: "DictConfig", data: "GraphDataset", directory: Path) -> None:
    from layerdag.cli.compose import to_plain_dict, write_run_file
    from layerdag.cli.settings import warn
    from layerdag.privacy.auditing import too_few_held_out
    from layerdag.training.run import clear_run

    if not config.resume:
        clear_run(directory)
    write_run_file(directory, to_plain_dict(config), data.renamed, data.notes)
    for sentence in (*_renamings(data), *_unknown_operators(data)):
        warn(sentence)
    if (advice := too_few_held_out(data)) is not None:
        warn(advice)
    if data.schema.kind == "trace" and config.data.name == "folder":
        _tell_of_programs(Path(config.data.folder))


def _tell_of_programs(folder: Path) -> None:
    """Say that programs can be learned where traces state the arguments of their operators."""
    from layerdag.cli.settings import warn
    from layerdag.datasets.sources import find_sources

    found = find_sources(folder, most_files=None).found
    count = sum(bool(source.hosts) or source.program is not None for source in found)
    if count:
        warn(
            f"{folder}: {count} of {len(found)} jobs state the arguments of their operators. "
            "Samples of their programs run and keep the rules of real steps, which samples of jobs "
            f"do not always: layerdag program {shlex.quote(str(folder))} --out PROGRAMS, then "
            "train with data.folder=PROGRAMS."
        )


def _how_to_go_on(directory: Path) -> str:
    from layerdag.training.checkpoint import LAST

    if not (directory / LAST).is_dir():
        return "No checkpoint was written yet."
    return f"Go on with: layerdag train resume={shlex.quote(str(directory))}"


def _warm_start(config: "DictConfig", data: "GraphDataset") -> "WarmStart | None":
    from layerdag.cli.compose import model_overrides
    from layerdag.training.weight_transfer import warm_start

    if not config.init:
        return None
    name, options = model_overrides(config.model)
    warm = warm_start(str(config.init), data, name, options, seed=int(config.seed))
    config.model = {"name": warm.spec.name, **warm.spec.arguments}
    return warm


def make_run(
    config: "DictConfig",
    data: "GraphDataset",
    directory: Path,
    spec: "ModelSpec",
    start: "InitialWeights | None" = None,
) -> "TrainingRun":
    """Return the training run of a model on a data set, with the config on record.

    Raises:
        DataError: If the validation part is empty.
    """
    from layerdag.cli.compose import public_config, to_plain_dict
    from layerdag.training.run import assemble

    record = public_config(to_plain_dict(config))
    return assemble(data, directory, spec, start=start, run_config=record)


def pick_device(name: str) -> "torch.device":
    """Return the device that ``name`` means; "auto" is the GPU where there is one.

    Raises:
        ConfigError: If the device is unknown or not there.
    """
    import torch

    from layerdag.training.batches import local_device

    try:
        device = local_device(name)
    except RuntimeError as error:
        raise ConfigError(f"There is no device '{name}'; use auto, cpu or cuda.") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device=cuda, but torch sees no GPU; use device=cpu.")
    return device


def open_loggers(
    settings: "LoggerSettings", directory: Path, config: Mapping[str, Any], resume: Path | None
) -> "list[Logger]":
    """Return the loggers of a run; the JSONL file goes on after a resumed step."""
    from tqdm import tqdm

    from layerdag.runtime.terminal import plain_stream
    from layerdag.training.checkpoint import LOG
    from layerdag.training.loggers import DISABLED, ConsoleLogger, JsonlLogger, Logger, WandbLogger

    step = _resumed_step(directory) if resume else 0
    loggers: list[Logger] = [JsonlLogger(directory / LOG, step)]
    say = partial(tqdm.write, file=plain_stream(sys.stderr), end="")
    if settings.console:
        loggers.append(ConsoleLogger(say))
    if settings.wandb != DISABLED:
        loggers.append(WandbLogger(directory, settings.project, config, settings.wandb, say))
    return loggers


def _resumed_step(directory: Path) -> int:
    """Return the step of the run's last checkpoint, 0 if there is none."""
    from layerdag.training.checkpoint import LAST, META, read_meta

    return read_meta(directory / LAST).step if (directory / LAST / META).is_file() else 0


def describe(result: "TrainResult") -> dict[str, Any]:
    """Return the outcome as one JSON object for scripts."""
    return {
        "reason": result.reason,
        "step": result.step,
        "seconds": round(result.seconds, 1),
        "metrics": dict(result.metrics),
        "best": str(result.best) if result.best.is_dir() else None,
        "last": str(result.last) if result.last.is_dir() else None,
    }
