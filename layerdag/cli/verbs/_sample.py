"""``layerdag sample`` and ``sample.py``: synthetic workloads or graphs from a checkpoint."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from tqdm import tqdm

from layerdag._runtime import Limits
from layerdag.cli.output import after_sampling
from layerdag.cli.settings import as_plain, run
from layerdag.cli.verbs._train import pick_device
from layerdag.datasets.schema import outside_training
from layerdag.errors import ConfigError
from layerdag.graph import Condition
from layerdag.sampling import (
    GenerationSettings,
    checkpoint_schema,
    pretrained_checkpoint,
    volume_of,
    write_samples,
)
from layerdag.training import load_checkpoint

PRETRAINED = "pretrained"
_WHOLE = ("num", "seed", "max_nodes", "batch_size", "max_ranks", "max_bytes")
_WHOLE_OR_NULL = ("ranks", "steps", "best_of")


def main(words: Sequence[str]) -> int:
    """Run ``sample`` with Hydra overrides."""
    return run("sample", _task, words)


def _task(config: DictConfig) -> None:
    """Sample once and print where the manifest is."""
    if config.dry_run:
        sys.stdout.write(OmegaConf.to_yaml(config, resolve=True))
        return
    if config.threads:
        torch.set_num_threads(int(config.threads))
    settings = generation_settings(config)
    checkpoint = load_checkpoint(
        checkpoint_path(str(config.checkpoint)), pick_device(config.device)
    )
    for warning in outside_training(checkpoint_schema(checkpoint), settings.conditions):
        sys.stderr.write(f"layerdag: warning: {warning}\n")
    volume = volume_of(checkpoint, settings, config.format)
    sys.stderr.write(f"{volume.told()} in {config.out}\n")
    with tqdm(total=settings.num, desc="sampling", disable=not sys.stderr.isatty()) as bar:
        manifest = write_samples(
            checkpoint,
            settings,
            str(config.out),
            file_format=config.format,
            overwrite=bool(config.overwrite),
            on_each=bar.update,
        )
    summary = {"manifest": str(manifest), "num": settings.num, "seed": settings.seed}
    sys.stdout.write(json.dumps(summary) + "\n")
    sys.stdout.flush()
    sys.stderr.write(after_sampling(manifest))


def checkpoint_path(name: str) -> Path:
    """Return the folder of a checkpoint; "pretrained" is the one inside the package.

    Raises:
        ConfigError: If the package was built without it.
    """
    return pretrained_checkpoint() if name == PRETRAINED else Path(name)


def generation_settings(config: DictConfig) -> GenerationSettings:
    """Return what to sample from the settings of ``sample.yaml``.

    Raises:
        ConfigError: If a value has the wrong type.
        UsageError: If a value is out of bounds.
    """
    plain = as_plain(config)
    wanted: dict[str, Condition] = dict(plain["conditions"])
    if plain["label"] is not None:
        wanted["label"] = plain["label"]
    _require_whole_numbers(plain)
    return GenerationSettings(
        num=plain["num"],
        seed=plain["seed"],
        conditions=wanted,
        ranks=plain["ranks"],
        steps=plain["steps"],
        guidance=float(plain["guidance"]),
        best_of=plain["best_of"],
        labels=str(plain["labels"]),
        max_nodes=plain["max_nodes"],
        batch_size=plain["batch_size"],
        limits=Limits(plain["max_ranks"], plain["max_bytes"]),
    )


def _require_whole_numbers(plain: Mapping[str, Any]) -> None:
    """Refuse numbers of things that are no whole numbers."""
    for name in (*_WHOLE, *_WHOLE_OR_NULL):
        value = plain[name]
        if value is None and name in _WHOLE_OR_NULL:
            continue
        if not isinstance(value, int) or isinstance(value, bool):
            raise ConfigError(f"'{name}' must be a whole number, found {value!r}.")
