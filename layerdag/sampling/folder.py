"""Write samples to a folder with a manifest; resume where a run stopped."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from layerdag.errors import UsageError
from layerdag.graph.attributed_graph import AttributedGraph
from layerdag.kinds.graph_kind import GraphKind
from layerdag.plan import read_recorded
from layerdag.programs.targets import Targets, target_metadata
from layerdag.runtime.reading import Limits, require_few_bytes, require_few_ranks
from layerdag.samples.manifest import MANIFEST, sample_name
from layerdag.samples.writer import open_sample_folder
from layerdag.sampling.failed_samples import FailedSamples
from layerdag.sampling.generated import (
    EagerEncoder,
    GeneratedGraph,
    OutputSize,
    SampleFiles,
    expected_output_size,
    job_ranks,
)
from layerdag.sampling.generation import generate
from layerdag.sampling.settings import GenerationSettings
from layerdag.sampling.step_derivation import plan_generator
from layerdag.schema.schema import complete_conditions
from layerdag.schema.size_tables import FAMILY
from layerdag.training.checkpoint import LoadedCheckpoint, checkpoint_fingerprint, checkpoint_schema
from layerdag.version import __version__

FORMATS = ("auto", "et", "program", "graphml", "json")
# Number of graphs whose conditions are used to estimate the total size.
_LOOKED_AT = 1000


def volume_of(
    checkpoint: LoadedCheckpoint, settings: GenerationSettings, file_format: str = "auto"
) -> OutputSize:
    """Return about what ``write_samples`` writes; conditions of the first graphs speak for all.

    Raises:
        UsageError: If the format is unknown or does not fit, the model cannot do what is asked
            for, or it is more than the limits allow.
        CheckpointError: If schema and model of the checkpoint do not belong together.
        VocabularyError: If a wanted condition is unknown to the schema.
    """
    volume = estimated_volume(checkpoint, settings, file_format)
    require_allowed(volume, settings)
    return volume


def require_allowed(volume: OutputSize, settings: GenerationSettings) -> None:
    """Raise UsageError if more is to be written than the limits allow."""
    require_few_ranks(volume.most_ranks, settings.limits, "A job")
    require_few_bytes(volume.bytes, settings.limits, volume.describe())


def estimated_volume(
    checkpoint: LoadedCheckpoint, settings: GenerationSettings, file_format: str
) -> OutputSize:
    """Return what ``volume_of`` does, whatever the limits allow."""
    schema = checkpoint_schema(checkpoint)
    settings = settings.resolved(checkpoint.model, schema)
    seeds = [settings.seed + i for i in range(min(settings.num, _LOOKED_AT))]
    statistics = checkpoint.spec.statistics
    rows = complete_conditions(schema, settings.conditions, seeds)
    resolved = resolved_format(file_format, schema.kind, settings.ranks, settings.targets)
    if schema.kind.has_steps and resolved == "et":
        plans = [schema.plans.draw(str(r.get(FAMILY)), plan_generator(s))
                 for r, s in zip(rows, seeds, strict=True)]  # fmt: skip
        rows = [{**row, "world_size": p.ranks} for row, p in zip(rows, plans, strict=True)]
        resolved = "step"
    ranks = settings.ranks
    if not ranks and settings.targets is not None and settings.targets.plan:
        ranks = read_recorded(settings.targets.plan).plan.ranks
    return expected_output_size(
        rows,
        statistics,
        num=settings.num,
        ranks=ranks,
        max_nodes=settings.max_nodes,
        file_format=resolved,
    )


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
        **_caution(checkpoint_schema(checkpoint).kind),
        **({"redraws": settings.redraws} if settings.redraws else {}),
        **({"sizes": dict(settings.sizes)} if settings.sizes else {}),
        **({} if settings.targets is None else settings.targets.facts()),
    }


def _caution(kind: GraphKind) -> dict[str, str]:
    return {"caution": kind.caution} if kind.caution else {}


def request_metadata(checkpoint: LoadedCheckpoint, settings: GenerationSettings) -> dict[str, Any]:
    """Return what else determines each sample."""
    return {
        "seed": settings.seed,
        "conditions": dict(settings.conditions),
        "ranks": settings.ranks,
        "max_nodes": settings.max_nodes,
        "device": next(checkpoint.model.parameters()).device.type,
    }


def resolved_format(
    file_format: str, kind: GraphKind, ranks: int | None, targets: Targets | None = None
) -> str:
    """Return the format to write, after checking that it fits what is sampled and asked for."""
    planned = targets is not None and bool(
        targets.plan or (targets.compute is not None and targets.step_time is None)
    )
    if file_format == "auto" and planned:
        file_format = "et"
    if planned and file_format != "et":
        raise UsageError(
            f"A plan and 'compute' are of a step's traces, and format={file_format} holds none; "
            "leave them out, or ask for format=et."
        )
    if file_format not in FORMATS:
        raise UsageError(f"There is no format '{file_format}'; known: {', '.join(FORMATS)}.")
    if file_format == "auto":
        file_format = kind.formats[0]
    _require_jobs(ranks, file_format)
    if file_format in kind.formats:
        return file_format
    if file_format == "program":
        raise UsageError("This checkpoint samples no programs; leave format=auto.")
    raise UsageError(
        f"This checkpoint samples {kind.plural}, which are no execution traces; "
        "ask for format=graphml or format=json."
    )


def _require_jobs(ranks: int | None, file_format: str) -> None:
    """Refuse ranks where no trace is written."""
    if ranks is not None and file_format != "et":
        raise UsageError(
            f"'ranks' is the number of trace files per job, and format={file_format} writes one "
            "graph; leave ranks out, or ask for format=et."
        )


def sample_entry(sample: GeneratedGraph, extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return the manifest's line of one sample."""
    wanted = target_metadata(sample.reached)
    conditions = dict(sample.dag.conditions) | dict(extra.get("job", {}))
    return {
        "name": sample.name,
        "seed": sample.seed,
        "conditions": conditions,
        "nodes": sample.graph.num_nodes if sample.reached else sample.dag.num_nodes,
        "edges": len(sample.graph.edges) if sample.reached else sample.dag.num_edges,
        "truncated": sample.truncated,
        **({"wanted": wanted} if wanted else {}),
        **{name: value for name, value in extra.items() if name != "job"},
    }


def table_row(
    sample: GeneratedGraph, settings: GenerationSettings
) -> tuple[Mapping[str, Any], AttributedGraph]:
    """Return what is noted of a sample in a table, and its graph.

    Raises:
        UsageError: If it is a job of more ranks than the limits allow.
        MissingSampleError: If it is to be a program, and none that runs.
    """
    if sample.schema.kind.has_steps:
        graph = SampleFiles.from_sample(sample, "program", None, settings.limits).graph
        return sample_entry(sample, {}), graph
    is_job = sample.schema.kind.has_traces
    ranks = job_ranks(sample.graph, settings.ranks, settings.limits) if is_job else None
    return sample_entry(sample, {} if ranks is None else {"ranks": ranks}), sample.graph


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
        file_format: One of ``FORMATS``; "auto" is "et" for jobs and programs, "graphml" for other
            graphs; "program" writes programs without a step.
        overwrite: Whether samples that lie in ``out`` may be replaced; nothing else ever is.
        on_each: Called after each graph, those of a stopped run included, for progress bars.

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
            return SampleFiles.from_sample(
                sample, file_format, settings.ranks, settings.limits, settings.targets
            )

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
                folder.add(sample_entry(named, sample_files.write(folder.path)))
            on_each()
        missing.require_some()
        folder.install(facts, overwrite=overwrite)
    return Path(out) / MANIFEST


def write_sample_list(
    samples: Sequence[GeneratedGraph], out: Path, *, file_format: str, overwrite: bool
) -> Path:
    """Write samples that are in memory as ``write_samples`` does; return the manifest's path.

    Raises:
        UsageError: If there is none, the format does not fit, or something stands at ``out``.
    """
    if not samples or not all(isinstance(sample, GeneratedGraph) for sample in samples):
        raise UsageError(
            "write_samples takes a generator or a list of samples; for other graphs call write."
        )
    file_format = resolved_format(file_format, samples[0].schema.kind, None)
    facts = {
        **{"layerdag_version": __version__, "checkpoint_sha256": "", "format": file_format},
        **_caution(samples[0].schema.kind),
    }
    request = {**facts, "seeds": [sample.seed for sample in samples]}
    with open_sample_folder(out, request, len(samples), overwrite=overwrite) as folder:
        for i, sample in enumerate(samples[folder.done :], start=folder.done):
            named = replace(sample, name=sample_name(i))
            files = SampleFiles.from_sample(named, file_format, None, Limits())
            folder.add(sample_entry(named, files.write(folder.path)))
        folder.install(facts, overwrite=overwrite)
    return out / MANIFEST
