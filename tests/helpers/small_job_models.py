"""Small trained models and data sets of jobs."""

from collections.abc import Sequence
from dataclasses import replace

from random_jobs import random_job

from layerdag.dag.statistics import GraphStatistics
from layerdag.datasets.dataset import GraphDataset
from layerdag.graph.attributed_graph import AttributedGraph
from layerdag.models.spec import ModelSpec
from layerdag.schema.schema import GraphSchema

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


def spec_of(
    schema: GraphSchema, graphs: Sequence[AttributedGraph], name: str = "fast", **arguments: object
) -> ModelSpec:
    """Return a tiny model for these graphs."""
    sizes = schema.sizes()
    statistics = GraphStatistics.measure([schema.encode(graph) for graph in graphs], sizes)
    return ModelSpec(name, sizes, statistics, {**TINY[name], **arguments})
