"""What is written down of a run of samples and of each sample, and how much it will be."""

from collections.abc import Mapping
from typing import Any

from layerdag._runtime import require_few_bytes, require_few_ranks
from layerdag._version import __version__
from layerdag.codec import AttributedGraph
from layerdag.errors import UsageError
from layerdag.graph import graph_hash
from layerdag.sampling import (
    GeneratedGraph,
    GenerationSettings,
    checkpoint_fingerprint,
    checkpoint_schema,
    conditions_for_model,
    given_layers,
    unrolled_sizes,
)
from layerdag.sampling.files import Volume, expected_volume, job_ranks
from layerdag.training import LoadedCheckpoint

FORMATS = ("auto", "et", "graphml", "json")
# Number of graphs whose conditions are used to estimate the total size.
_LOOKED_AT = 1000


def volume_of(
    checkpoint: LoadedCheckpoint, settings: GenerationSettings, file_format: str = "auto"
) -> Volume:
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


def require_allowed(volume: Volume, settings: GenerationSettings) -> None:
    """Raise UsageError if more is to be written than the limits allow."""
    require_few_ranks(volume.most_ranks, settings.limits, "A job")
    require_few_bytes(volume.bytes, settings.limits, volume.describe())


def estimated_volume(
    checkpoint: LoadedCheckpoint, settings: GenerationSettings, file_format: str
) -> Volume:
    """Return what ``volume_of`` does, whatever the limits allow."""
    schema = checkpoint_schema(checkpoint)
    settings = settings.settled(checkpoint.model, schema)
    seeds = [settings.seed + i for i in range(min(settings.num, _LOOKED_AT))]
    given = given_layers(settings, schema)
    known = settings.conditions if given is None else given.known(settings.conditions)
    statistics = checkpoint.spec.statistics
    rows = conditions_for_model(schema, known, seeds)
    return expected_volume(
        unrolled_sizes(schema, statistics, rows, known),
        statistics,
        num=settings.num,
        ranks=settings.ranks,
        max_nodes=settings.max_nodes,
        file_format=settled_format(file_format, schema.kind, settings.ranks),
    )


def run_facts(
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
        **({"redraws": settings.redraws} if settings.redraws else {}),
        **_prefix_facts(checkpoint, settings),
    }


def request_facts(checkpoint: LoadedCheckpoint, settings: GenerationSettings) -> dict[str, Any]:
    """Return what else determines each sample."""
    return {
        "seed": settings.seed,
        "conditions": dict(settings.conditions),
        "ranks": settings.ranks,
        "max_nodes": settings.max_nodes,
        "device": next(checkpoint.model.parameters()).device.type,
    }


def _prefix_facts(checkpoint: LoadedCheckpoint, settings: GenerationSettings) -> dict[str, Any]:
    """Return what identifies given layers, if there are any."""
    given = given_layers(settings, checkpoint_schema(checkpoint))
    if given is None:
        return {}
    prefix, gap = given.prefix, given.gap
    facts = {"prefix": {"graph": graph_hash(prefix.dag), "layers": prefix.num_layers}}
    if gap is not None:
        layers = gap.dag.num_layers - gap.end_layer
        facts["suffix"] = {"graph": graph_hash(gap.dag), "layers": layers}
    return facts


def settled_format(file_format: str, kind: str, ranks: int | None) -> str:
    """Return the format to write, after checking that it fits the kind of graph and the ranks."""
    if file_format not in FORMATS:
        raise UsageError(f"There is no format '{file_format}'; known: {', '.join(FORMATS)}.")
    if file_format == "auto":
        file_format = "et" if kind == "trace" else "graphml"
    _require_jobs(ranks, file_format)
    if file_format == "et" and kind != "trace":
        raise UsageError(
            "This checkpoint samples flow graphs, which are no execution traces; "
            "ask for format=graphml or format=json."
        )
    return file_format


def _require_jobs(ranks: int | None, file_format: str) -> None:
    """Refuse ranks where no trace is written."""
    if ranks is not None and file_format != "et":
        raise UsageError(
            f"'ranks' is the number of trace files per job, and format={file_format} writes one "
            "graph; leave ranks out, or ask for format=et."
        )


def sample_entry(sample: GeneratedGraph, extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return the manifest's line of one sample."""
    return {
        "name": sample.name,
        "seed": sample.seed,
        "conditions": dict(sample.dag.conditions),
        "nodes": sample.dag.num_nodes,
        "edges": sample.dag.num_edges,
        "truncated": sample.truncated,
        **extra,
    }


def table_row(
    sample: GeneratedGraph, settings: GenerationSettings
) -> tuple[Mapping[str, Any], AttributedGraph]:
    """Return what is noted of a sample in a table, and its graph.

    Raises:
        UsageError: If it is a job of more ranks than the limits allow.
    """
    is_job = sample.schema.kind == "trace"
    ranks = job_ranks(sample.graph, settings.ranks, settings.limits) if is_job else None
    return sample_entry(sample, {} if ranks is None else {"ranks": ranks}), sample.graph
