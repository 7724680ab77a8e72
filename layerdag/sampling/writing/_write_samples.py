"""Samples as a folder or file each, with a manifest."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from layerdag._runtime import require_few_bytes
from layerdag.datasets.schema import GraphSchema
from layerdag.models import DAGModel
from layerdag.sampling import (
    GeneratedGraph,
    GenerationSettings,
    checkpoint_schema,
    generate,
    sample_name,
)
from layerdag.sampling.files import SampleFiles
from layerdag.sampling.writing._folder import MANIFEST, filling
from layerdag.sampling.writing._request import (
    request_facts,
    run_facts,
    sample_entry,
    settled_format,
    volume_of,
)
from layerdag.training import LoadedCheckpoint


def write_samples(
    checkpoint: LoadedCheckpoint,
    settings: GenerationSettings,
    out: str | Path,
    *,
    file_format: str = "auto",
    overwrite: bool = False,
    on_each: Callable[[], object] = lambda: None,
) -> Path:
    """Sample and write into the folder ``out``; return the path of the manifest.

    Until all are finished they lie in ``<out>.partial``. If the run is stopped, the same call goes
    on from there and ends with the same files as one that was not stopped.

    Traces are written as ``<name>/<name>.<rank>.et`` with communicator groups beside them, other
    graphs as ``<name>.graphml`` or ``<name>.json``.

    Args:
        checkpoint: What to sample from.
        settings: What to sample.
        out: Folder.
        file_format: One of ``FORMATS``; "auto" is "et" for traces and "graphml" otherwise.
        overwrite: Whether samples that lie in ``out`` may be replaced; nothing else ever is.
        on_each: Called after each graph, those of a stopped run included, for progress bars.

    Raises:
        UsageError: If the format is unknown or does not fit the checkpoint, the model cannot do
            what is asked for, something stands at ``out`` that may not be replaced, another process
            is sampling into ``out``, or more is to be written than the limits allow.
        CheckpointError: If schema and model of the checkpoint do not belong together.
    """
    schema = checkpoint_schema(checkpoint)
    settings = settings.settled(checkpoint.model, schema)
    volume_of(checkpoint, settings, file_format)
    file_format = settled_format(file_format, schema.kind, settings.ranks)
    facts = run_facts(checkpoint, settings, file_format)
    request = {**facts, **request_facts(checkpoint, settings)}
    with filling(Path(out), request, settings.num, overwrite=overwrite) as folder:
        done = len(folder.entries)
        size = 0
        for _ in range(done):
            on_each()
        for i, sample in enumerate(_rest(checkpoint.model, schema, settings, done), start=done):
            named = replace(sample, name=sample_name(i))
            sample_files = SampleFiles.of(named.graph, file_format, settings.ranks, settings.limits)
            size += sample_files.num_bytes
            require_few_bytes(size, settings.limits, f"The samples up to {named.name}")
            extra = sample_files.write(folder.path)
            folder.add(sample_entry(named, extra))
            on_each()
        folder.install({**facts, "samples": folder.entries}, overwrite=overwrite)
    return Path(out) / MANIFEST


def _rest(
    model: DAGModel, schema: GraphSchema, settings: GenerationSettings, done: int
) -> Iterator[GeneratedGraph]:
    """Yield the samples after the first ``done`` ones."""
    if done < settings.num:
        rest = replace(settings, seed=settings.seed + done, num=settings.num - done)
        yield from generate(model, schema, rest)
