"""``layerdag sample`` and ``sample.py``: synthetic workloads or graphs from a checkpoint."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from omegaconf import DictConfig, OmegaConf
from tqdm import tqdm

from layerdag.cli.output import after_sampling
from layerdag.cli.settings import run, sample_config
from layerdag.cli.verbs.models._train import pick_device
from layerdag.datasets.schema import outside_training
from layerdag.sampling import (
    checkpoint_schema,
    pretrained_checkpoint,
    volume_of,
    write_samples,
)
from layerdag.training import load_checkpoint

PRETRAINED = "pretrained"


def main(words: Sequence[str]) -> int:
    """Run ``sample`` with Hydra overrides."""
    return run("sample", _task, words)


def _task(config: DictConfig) -> None:
    """Sample once and print where the manifest is."""
    asked = sample_config(config)
    settings = asked.generation()
    if asked.dry_run:
        sys.stdout.write(OmegaConf.to_yaml(config, resolve=True))
        return
    if asked.threads:
        torch.set_num_threads(asked.threads)
    checkpoint = load_checkpoint(checkpoint_path(asked.checkpoint), pick_device(asked.device))
    for warning in outside_training(checkpoint_schema(checkpoint), settings.conditions):
        sys.stderr.write(f"layerdag: warning: {warning}\n")
    volume = volume_of(checkpoint, settings, asked.format)
    sys.stderr.write(f"{volume.describe()} in {asked.out}\n")
    with tqdm(total=settings.num, desc="sampling", disable=not sys.stderr.isatty()) as bar:
        manifest = write_samples(
            checkpoint,
            settings,
            asked.out,
            file_format=asked.format,
            overwrite=asked.overwrite,
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
