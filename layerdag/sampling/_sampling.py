"""From a checkpoint to files: complete the request, sample, decode, write with a manifest."""

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from layerdag._runtime import require_few_bytes, require_few_ranks
from layerdag._version import __version__
from layerdag.codec import NUM_NODES
from layerdag.datasets import encode_batch
from layerdag.datasets.schema import LABEL, GraphSchema
from layerdag.errors import CheckpointError, UsageError
from layerdag.graph import Condition, graph_hash
from layerdag.models import DAGModel, SampleRequest
from layerdag.sampling._completion import GivenLayers
from layerdag.sampling._finite import finite_sample
from layerdag.sampling._folder import MANIFEST, filling, sample_name
from layerdag.sampling._generated import GeneratedGraph
from layerdag.sampling._repeats import (
    conditions_for_model,
    unrolled_sizes,
    with_blocks,
    with_copies,
)
from layerdag.sampling._sample_files import SampleFiles
from layerdag.sampling._settings import PREDICTED, GenerationSettings
from layerdag.sampling._volume import Volume, expected_volume
from layerdag.sampling.numbers import NumberAssigner
from layerdag.training import LoadedCheckpoint

FORMATS = ("auto", "et", "graphml", "json")
# Number of graphs whose conditions are used to estimate the total size.
_LOOKED_AT = 1000


def generate(
    model: DAGModel, schema: GraphSchema, settings: GenerationSettings
) -> Iterator[GeneratedGraph]:
    """Yield sampled graphs in order of their seeds; open conditions are drawn for each.

    Raises:
        VocabularyError: If a wanted condition is unknown to the schema.
    """
    seeds = [settings.seed + i for i in range(settings.num)]
    given = _given(settings, schema)
    if given is None:
        rows = conditions_for_model(schema, settings.conditions, seeds)
    else:
        rows = given.likely_conditions(model, settings.conditions, seeds)
    wanted = settings.conditions
    for row, graph in zip(rows, sample_like(model, schema, rows, settings), strict=True):
        again = partial(_sample_one, model, schema, row, settings)
        yield with_copies(with_blocks(graph, wanted, again), wanted)


def _sample_one(
    model: DAGModel,
    schema: GraphSchema,
    row: Mapping[str, Condition],
    settings: GenerationSettings,
    seed: int,
) -> GeneratedGraph:
    """Return the graph of one row of conditions with a seed."""
    (graph,) = sample_like(model, schema, [row], replace(settings, seed=seed))
    return graph


def sample_like(
    model: DAGModel,
    schema: GraphSchema,
    rows: Sequence[Mapping[str, Condition]],
    settings: GenerationSettings,
) -> Iterator[GeneratedGraph]:
    """Yield one graph for each row of conditions, graph i with seed ``settings.seed + i``.

    Args:
        model: In evaluation mode.
        schema: Of the model.
        rows: Conditions in their own units; missing ones are unknown to the model.
        settings: Steps, guidance, prefix, limits and batch size; its ``num`` and conditions are
            not used.

    Raises:
        VocabularyError: If a condition or category is unknown to the schema.
        UsageError: If the model cannot do what the settings ask for.
    """
    settings = settings.settled(model, schema)
    assert settings.best_of is not None
    assert settings.guidance is not None
    assert settings.temperature is not None
    device = next(model.parameters()).device
    assigner = NumberAssigner(schema) if schema.costs else None
    given = _given(settings, schema)
    for start in range(0, len(rows), settings.batch_size):
        part = rows[start : start + settings.batch_size]
        numeric_BC, category_BM = schema.encode_conditions(part)
        seeds = tuple(settings.seed + start + i for i in range(len(part)))
        request = SampleRequest(
            numeric_BC=numeric_BC.to(device),
            category_BM=category_BM.to(device),
            seeds=seeds,
            max_nodes=settings.max_nodes,
            steps=settings.steps,
            guidance=settings.guidance,
            temperature=settings.temperature,
            best_of=settings.best_of,
            prefix=None if given is None else given.prefix,
            nodes_B=torch.tensor([float(row.get(NUM_NODES, math.nan)) for row in part]),
        )
        result = finite_sample(model, schema, request)
        dags = [dag.to("cpu") for dag in result.dags]
        graphs = [
            GeneratedGraph(
                sample_name(start + i), seeds[i], dag.with_conditions(part[i]), cut, schema
            )
            for i, (dag, cut) in enumerate(zip(dags, result.truncated, strict=True))
        ]
        if assigner is not None:
            kept = None if given is None else given.numbers
            graphs = [g.with_numbers(assigner.numbers(g.dag, g.seed, kept)) for g in graphs]
        elif given is not None:
            graphs = [given.kept_in(graph) for graph in graphs]
        if settings.labels == PREDICTED:
            graphs = _with_predicted_labels(model, schema, graphs)
        yield from graphs


def _given(settings: GenerationSettings, schema: GraphSchema) -> GivenLayers | None:
    """Return the layers that every sample begins with, if there are any."""
    if settings.prefix is None:
        return None
    return GivenLayers.of(settings.prefix, settings.prefix_layers, schema)


def _with_predicted_labels(
    model: DAGModel, schema: GraphSchema, graphs: Sequence[GeneratedGraph]
) -> list[GeneratedGraph]:
    """Return graphs with the label that the model's posterior predicts, in its own unit."""
    batch = encode_batch(schema, [graph.dag for graph in graphs])
    found_BC = model.predict_numeric_conditions(batch.to(next(model.parameters()).device))
    assert found_BC is not None
    column = [condition.name for condition in schema.numeric_conditions].index(LABEL)
    label = schema.numeric_conditions[column]
    return [
        replace(graph, dag=graph.dag.with_conditions({**graph.dag.conditions, LABEL: y}))
        for graph, y in zip(graphs, map(label.decode, found_BC[:, column].tolist()), strict=True)
    ]


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
    schema = checkpoint_schema(checkpoint)
    settings = settings.settled(checkpoint.model, schema)
    seeds = [settings.seed + i for i in range(min(settings.num, _LOOKED_AT))]
    given = _given(settings, schema)
    known = settings.conditions if given is None else given.known(settings.conditions)
    statistics = checkpoint.spec.statistics
    rows = conditions_for_model(schema, known, seeds)
    volume = expected_volume(
        unrolled_sizes(schema, statistics, rows, known),
        statistics,
        num=settings.num,
        ranks=settings.ranks,
        max_nodes=settings.max_nodes,
        file_format=_format(file_format, schema.kind, settings.ranks),
    )
    require_few_ranks(volume.most_ranks, settings.limits, "A job")
    require_few_bytes(volume.bytes, settings.limits, volume.describe())
    return volume


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
    file_format = _format(file_format, schema.kind, settings.ranks)
    facts = _facts(checkpoint, settings, file_format)
    request = {**facts, **_request(checkpoint, settings)}
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
            folder.add(_entry(named, extra))
            on_each()
        folder.install({**facts, "samples": folder.entries}, overwrite=overwrite)
    return Path(out) / MANIFEST


def _facts(
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
        **_prefix_facts(checkpoint, settings),
    }


def _request(checkpoint: LoadedCheckpoint, settings: GenerationSettings) -> dict[str, Any]:
    """Return what else determines each sample."""
    return {
        "seed": settings.seed,
        "conditions": dict(settings.conditions),
        "ranks": settings.ranks,
        "max_nodes": settings.max_nodes,
        "device": next(checkpoint.model.parameters()).device.type,
    }


def _prefix_facts(checkpoint: LoadedCheckpoint, settings: GenerationSettings) -> dict[str, Any]:
    """Return what identifies the prefix, if there is one."""
    given = _given(settings, checkpoint_schema(checkpoint))
    if given is None:
        return {}
    prefix = given.prefix
    return {"prefix": {"graph": graph_hash(prefix.dag), "layers": prefix.num_layers}}


def _rest(
    model: DAGModel, schema: GraphSchema, settings: GenerationSettings, done: int
) -> Iterator[GeneratedGraph]:
    """Yield the samples after the first ``done`` ones."""
    if done < settings.num:
        rest = replace(settings, seed=settings.seed + done, num=settings.num - done)
        yield from generate(model, schema, rest)


def checkpoint_schema(checkpoint: LoadedCheckpoint) -> GraphSchema:
    """Return the schema of a checkpoint.

    Raises:
        CheckpointError: If it cannot be read, or the model was built for another one.
    """
    schema = GraphSchema.from_dict(checkpoint.schema)
    if schema.sizes() != checkpoint.spec.sizes:
        raise CheckpointError(
            f"{checkpoint.path}: the schema has {schema.sizes()}, but the model was built "
            f"for {checkpoint.spec.sizes}; use a checkpoint as train wrote it."
        )
    return schema


def checkpoint_fingerprint(path: Path) -> str:
    """Return the SHA-256 of the weights file of a checkpoint."""
    return hashlib.sha256((path / "weights.safetensors").read_bytes()).hexdigest()


def _format(file_format: str, kind: str, ranks: int | None) -> str:
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


def _entry(sample: GeneratedGraph, extra: Mapping[str, Any]) -> dict[str, Any]:
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
