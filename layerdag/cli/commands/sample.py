"""``layerdag sample`` and ``sample.py``: synthetic workloads or graphs from a checkpoint."""

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from layerdag.cli.printing import JSON, print_json
from layerdag.errors import DataError, UsageError

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from layerdag.sampling.parts import PartSettings
    from layerdag.sampling.settings import GenerationSettings
    from layerdag.training.checkpoint import LoadedCheckpoint


_MAX_PROCESSES = 8
# A process takes as long to start as about 16 samples do.
_SAMPLES_PER_PROCESS = 16
_PROCESS_BYTES = 2_000_000_000
"""Of a process that draws 32 jobs of some thousand nodes side by side."""


def main(overrides: Sequence[str]) -> int:
    """Run ``sample`` with flags and overrides."""
    from layerdag.cli.compose import run

    task = partial(_task, as_json=JSON in overrides)
    return run("sample", task, [word for word in overrides if word != JSON])


def _task(config: "DictConfig", *, as_json: bool) -> None:
    """Sample once and say where the samples are."""
    import torch
    from omegaconf import OmegaConf
    from tqdm import tqdm

    from layerdag.cli.main import resume_gc
    from layerdag.cli.sample_settings import sample_config
    from layerdag.runtime.terminal import plain_stream
    from layerdag.sampling.failed_samples import failed_samples
    from layerdag.sampling.folder import write_samples
    from layerdag.sampling.output_size import volume_of
    from layerdag.sampling.parts import volume_of_parts, write_parts
    from layerdag.sampling.summary import (
        after_parts,
        after_sampling,
        before_parts,
        reached_numbers,
    )
    from layerdag.schema.schema import out_of_range_conditions
    from layerdag.schema.size_tables import DEPTH
    from layerdag.training.batches import local_device
    from layerdag.training.checkpoint import checkpoint_path, load_checkpoint, read_schema

    asked = sample_config(config)
    settings, parts = asked.generation, asked.parts
    folder = checkpoint_path(asked.checkpoint)
    schema, known = read_schema(folder), dict(settings.conditions)
    if schema.kind.has_steps:
        known.pop(DEPTH, None)  # deeper programs repeat units of those that the model draws
    for warning in out_of_range_conditions(schema, known):
        sys.stderr.write(f"layerdag: warning: {warning}\n")
    if asked.dry_run:
        sys.stdout.write(OmegaConf.to_yaml(config, resolve=True))
        return
    if asked.threads:
        torch.set_num_threads(asked.threads)
    # Graphs of jobs are too small for a GPU: it draws them more slowly than one processor.
    device = "cpu" if asked.device == "auto" else asked.device
    checkpoint = load_checkpoint(folder, local_device(device))
    settings = replace(settings, processes=_processes(checkpoint, settings, parts))
    resume_gc()
    if parts is None:
        volume, count, further = volume_of(checkpoint, settings, asked.format), settings.num, "\n"
    else:
        volume, shard = volume_of_parts(checkpoint, settings, parts), parts.assigned
        count = -(-settings.num // shard.count)
        of = f", of which this is shard {shard.index} of {shard.count}" if shard.count > 1 else ""
        further = f"{of}\n{before_parts(settings.num, parts)}"
    sys.stderr.write(f"{volume.describe()} in {asked.out}{further}")
    tqdm.monitor_interval = 0  # no thread of its own, beside which no process can be copied
    hidden, stream = not sys.stderr.isatty(), plain_stream(sys.stderr)
    write = (
        partial(write_samples, checkpoint, settings, asked.out, file_format=asked.format)
        if parts is None
        else partial(write_parts, checkpoint, settings, asked.out, parts)
    )
    with tqdm(total=count, desc="sampling", disable=hidden, file=stream) as bar:
        manifest = write(overwrite=asked.overwrite, on_each=bar.update)
    summary = {"manifest": str(manifest), "num": settings.num, "seed": settings.seed}
    if as_json:
        print_json(summary)
        sys.stdout.flush()
    sys.stderr.write(after_sampling(manifest) if parts is None else after_parts(manifest.parent))
    if parts is None:
        sys.stderr.write("".join(f"{line}\n" for line in reached_numbers(manifest)))
    missing = failed_samples(manifest, settings.num)
    if missing:
        raise DataError(missing)


def _processes(
    checkpoint: "LoadedCheckpoint", settings: "GenerationSettings", parts: "PartSettings | None"
) -> int:
    """Return how many processes draw: unless asked for, one for as many processors as threads.

    Samples in parts are shared out among processes by ``shard``, and an accelerator is one device.
    """
    import torch

    from layerdag.runtime.reading import available_memory

    device = next(checkpoint.model.parameters()).device.type
    if device != "cpu":
        if (settings.processes or 1) > 1:
            raise UsageError(
                f"processes={settings.processes} draw on a CPU, and the device is {device}; leave "
                "it out, or ask for device=cpu."
            )
        return 1
    if settings.processes is not None:
        return settings.processes
    if parts is not None:
        return 1
    room = available_memory() // _PROCESS_BYTES
    processors = (os.cpu_count() or 1) // torch.get_num_threads()
    worth = settings.num // _SAMPLES_PER_PROCESS
    return max(1, min(processors, _MAX_PROCESSES, room, worth))
