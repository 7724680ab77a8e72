"""From a checkpoint to graphs in memory: complete the request, sample, assign numbers."""

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from layerdag.codec import NUM_NODES
from layerdag.datasets import encode_batch
from layerdag.datasets.schema import LABEL, GraphSchema
from layerdag.errors import CheckpointError
from layerdag.graph import Condition
from layerdag.models import DAGModel, SampleRequest
from layerdag.sampling._completion import GivenLayers
from layerdag.sampling._finite import finite_sample
from layerdag.sampling._generated import GeneratedGraph, sample_name
from layerdag.sampling._repeats import (
    conditions_for_model,
    with_blocks,
    with_copies,
)
from layerdag.sampling._settings import PREDICTED, GenerationSettings
from layerdag.sampling.numbers import NumberAssigner
from layerdag.training import LoadedCheckpoint


def generate(
    model: DAGModel, schema: GraphSchema, settings: GenerationSettings
) -> Iterator[GeneratedGraph]:
    """Yield sampled graphs in order of their seeds; open conditions are drawn for each.

    Raises:
        VocabularyError: If a wanted condition is unknown to the schema.
    """
    seeds = [settings.seed + i for i in range(settings.num)]
    given = given_layers(settings, schema)
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
    given = given_layers(settings, schema)
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


def given_layers(settings: GenerationSettings, schema: GraphSchema) -> GivenLayers | None:
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
