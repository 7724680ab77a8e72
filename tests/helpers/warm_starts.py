"""Trained models and data sets with other words, for tests of warm starts."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from random_jobs import random_job

from layerdag.dag.dag import DAGBatch
from layerdag.dag.statistics import GraphStatistics
from layerdag.datasets.dataset import GraphDataset, encode_batch
from layerdag.graph.attributed_graph import AttributedGraph
from layerdag.models.base import ModelSpec, build_model
from layerdag.schema.attributes import CategoryAttribute
from layerdag.schema.schema import GraphSchema
from layerdag.training.weight_transfer import SourceModel

TINY: dict[str, dict[str, object]] = {
    "fast": {"width": 32, "depth": 1, "predict_out_degree": False},
    "reference": {
        "layer_size": {"width": 8, "rounds": 1},
        "node": {"width": 8, "rounds": 1, "heads": 2, "steps": 4},
        "edge": {"width": 8, "rounds": 1, "steps": 4},
    },
}


def jobs(count: int = 8, first: int = 0) -> list[AttributedGraph]:
    """Return random jobs with a label and a family."""
    return [_labeled(random_job(seed, 2, layers=4), seed) for seed in range(first, first + count)]


def _labeled(job: AttributedGraph, seed: int) -> AttributedGraph:
    family = ("gpt", "bert", "moe")[seed % 3]
    conditions = {**job.conditions, "label": 1.0 + seed % 5, "family": family}
    return replace(job, conditions=conditions)


def data_of(graphs: Sequence[AttributedGraph], held_out: int = 2) -> GraphDataset:
    """Return a data set of jobs, the last ones for validation."""
    parts = {"train": graphs[:-held_out], "val": graphs[-held_out:]}
    return GraphDataset.build("jobs", "trace", parts, num_bins=2)


def trained(
    schema: GraphSchema, graphs: Sequence[AttributedGraph], name: str = "fast", **arguments: object
) -> SourceModel:
    """Return a model with weights as if it had been trained: none of them zero."""
    spec = spec_of(schema, graphs, name, **arguments)
    model = build_model(spec, seed=1)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.05)
    return SourceModel(model.eval(), spec, schema)


def spec_of(
    schema: GraphSchema, graphs: Sequence[AttributedGraph], name: str = "fast", **arguments: object
) -> ModelSpec:
    """Return a tiny model for these graphs."""
    sizes = schema.sizes()
    statistics = GraphStatistics.measure([schema.encode(graph) for graph in graphs], sizes)
    return ModelSpec(name, sizes, statistics, {**TINY[name], **arguments})


def batch_of(schema: GraphSchema, graphs: Sequence[AttributedGraph]) -> DAGBatch:
    """Return the graphs in the codes of a schema, nodes in the same order whatever the schema."""
    return encode_batch(schema, [schema.encode(graph) for graph in graphs])


def shuffled(schema: GraphSchema, seed: int = 5) -> GraphSchema:
    """Return the schema with all words in another order; what they mean is the same."""
    rng = np.random.default_rng(seed)

    def mixed(words: tuple[str, ...]) -> tuple[str, ...]:
        order = np.roll(np.arange(len(words)), 1) if len(words) > 1 else np.zeros(1, int)
        rng.shuffle(order[1:])
        return tuple(words[i] for i in order)

    return replace(
        schema,
        attributes=tuple(
            replace(a, values=mixed(a.values)) if isinstance(a, CategoryAttribute) else a
            for a in schema.attributes
        ),
        edge_types=mixed(schema.edge_types),
        category_conditions=tuple(
            replace(c, values=mixed(c.values)) for c in schema.category_conditions
        ),
    )
