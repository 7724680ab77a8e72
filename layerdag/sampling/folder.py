"""Write samples to a folder with a manifest; resume where a run stopped."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from layerdag.errors import UsageError
from layerdag.runtime.reading import Limits, require_few_bytes
from layerdag.samples.manifest import MANIFEST, sample_name
from layerdag.samples.writer import open_sample_folder
from layerdag.sampling.failed_samples import FailedSamples
from layerdag.sampling.generated import EagerEncoder, GeneratedGraph
from layerdag.sampling.generation import generate
from layerdag.sampling.output_size import resolved_format, volume_of
from layerdag.sampling.sample_files import SampleFiles
from layerdag.sampling.settings import GenerationSettings
from layerdag.training.checkpoint import LoadedCheckpoint, checkpoint_fingerprint, checkpoint_schema
from layerdag.version import __version__


def run_metadata(
    checkpoint: LoadedCheckpoint, settings: GenerationSettings, file_format: str
) -> dict[str, Any]:
    """Return what the manifest says of all samples together."""
    return {
        "layerdag_version": __version__,
        "checkpoint": checkpoint.path.resolve().name,
        "checkpoint_sha256": checkpoint_fingerprint(checkpoint.path),
        "model": checkpoint.spec.name,
        "split": None if checkpoint.meta.split is None else checkpoint.meta.split.to_dict(),
        "data": checkpoint.data_settings,
        "format": file_format,
        "guidance": settings.guidance,
        "temperature": settings.temperature,
        "best_of": settings.best_of,
        "labels": settings.labels,
        "steps": settings.steps,
        **checkpoint_schema(checkpoint).kind.notice,
        **({"redraws": settings.redraws} if settings.redraws else {}),
        **({"sizes": dict(settings.sizes)} if settings.sizes else {}),
        **({} if settings.targets is None else settings.targets.facts()),
    }


def request_metadata(checkpoint: LoadedCheckpoint, settings: GenerationSettings) -> dict[str, Any]:
    """Return what else determines each sample."""
    return {
        "seed": settings.seed,
        "conditions": dict(settings.conditions),
        "ranks": settings.ranks,
        "max_nodes": settings.max_nodes,
        "device": next(checkpoint.model.parameters()).device.type,
    }


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
    on from there and ends with the same files as one that was not stopped. Traces are written as
    ``<name>/<name>.<rank>.et`` with communicator groups beside them, other graphs as
    ``<name>.graphml`` or ``<name>.json``. The format is one of ``FORMATS``: "auto" is "et" for jobs
    and programs, "graphml" for other graphs; "program" writes programs without a step. Only samples
    are ever replaced. ``on_each`` is called after each graph, those of a stopped run included.

    Raises:
        UsageError: If the format is unknown or does not fit the checkpoint, the model cannot do
            what is asked for, something stands at ``out`` that may not be replaced, another process
            is sampling into ``out``, or more is to be written than the limits allow.
        CheckpointError: If schema and model of the checkpoint do not belong together.
        DataError: If no seed gives a program with what is asked for. Those that give none beside
            others are in the manifest, under "missing".
    """
    schema = checkpoint_schema(checkpoint)
    settings = settings.resolved(checkpoint.model, schema)
    volume_of(checkpoint, settings, file_format)
    file_format = resolved_format(file_format, schema.kind, settings.ranks, settings.targets)
    facts = run_metadata(checkpoint, settings, file_format)
    request = {**facts, **request_metadata(checkpoint, settings)}
    with open_sample_folder(Path(out), request, settings.num, overwrite=overwrite) as folder:
        done = folder.done
        missing = FailedSamples(len(folder.entries), folder.missing)
        size = 0

        def files_of(sample: GeneratedGraph) -> SampleFiles:
            return sample.made_files(file_format, settings.ranks, settings.limits, settings.targets)

        for _ in range(done):
            on_each()
        ahead = EagerEncoder(file_format, settings.ranks, settings.limits, settings.targets, done)
        drawn: Iterable[GeneratedGraph] = ()
        if done < settings.num:
            rest = replace(settings, seed=settings.seed + done, num=settings.num - done)
            drawn = generate(checkpoint.model, schema, rest, ahead)
        for i, sample in enumerate(drawn, start=done):
            named = replace(sample, name=sample_name(i))
            sample_files = missing.made(named, files_of)
            if sample_files is None:
                folder.skip(missing.noted[-1])
            else:
                size += sample_files.num_bytes
                require_few_bytes(size, settings.limits, f"The samples up to {named.name}")
                folder.add(named.entry(sample_files.write(folder.path)))
            on_each()
        missing.require_some()
        folder.install(facts, overwrite=overwrite)
    return Path(out) / MANIFEST


def write_sample_list(
    samples: Sequence[GeneratedGraph], out: Path, *, file_format: str, overwrite: bool
) -> Path:
    """Write samples that are in memory as ``write_samples`` does; return the manifest's path.

    Raises UsageError if there is none, the format does not fit, or something stands at ``out``.
    """
    if not samples or not all(isinstance(sample, GeneratedGraph) for sample in samples):
        raise UsageError(
            "write_samples takes a generator or a list of samples; for other graphs call write."
        )
    file_format = resolved_format(file_format, samples[0].schema.kind, None)
    facts = {
        **{"layerdag_version": __version__, "checkpoint_sha256": "", "format": file_format},
        **samples[0].schema.kind.notice,
    }
    request = {**facts, "seeds": [sample.seed for sample in samples]}
    with open_sample_folder(out, request, len(samples), overwrite=overwrite) as folder:
        for i, sample in enumerate(samples[folder.done :], start=folder.done):
            named = replace(sample, name=sample_name(i))
            files = named.made_files(file_format, None, Limits())
            folder.add(named.entry(files.write(folder.path)))
        folder.install(facts, overwrite=overwrite)
    return out / MANIFEST
