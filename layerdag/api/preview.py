"""A few samples of a model that is being trained, drawn at each validation."""

import time
from pathlib import Path

import numpy as np

from layerdag.datasets.dataset import GraphDataset
from layerdag.evaluation.validity import check_structure
from layerdag.models.base import DAGModel
from layerdag.sampling.generation import sample_once
from layerdag.sampling.settings import GenerationSettings
from layerdag.training.run import CallbackResult

MAX_NODES = 1000
"""No sample of a validation is larger: it is looked at, not measured."""


class SamplePreview:
    """Samples a few graphs with fixed seeds, so that pictures of one run can be compared.

    A model that has hardly been trained does not know when to end a graph, so a sample is cut at
    twice the nodes of the largest training graph.

    Args:
        data: The data set of the run.
        folder: Where the pictures go.
        num_graphs: Graphs per validation.
    """

    def __init__(self, data: GraphDataset, folder: Path, num_graphs: int) -> None:
        self._schema, self._folder, self._num = data.schema, folder, max(num_graphs, 1)
        largest = max(dag.num_nodes for dag in data.graphs["train"])
        self._max_nodes = min(2 * largest, MAX_NODES)

    def __call__(self, model: DAGModel, step: int) -> CallbackResult:
        """Sample, check and draw."""
        from layerdag.viz.drawing import write_picture  # loads matplotlib

        was_training = model.training
        model.eval()
        start = time.perf_counter()
        settings = GenerationSettings(
            num=self._num, seed=0, guidance=1.0, best_of=1, max_nodes=self._max_nodes
        )
        samples = sample_once(model, self._schema, settings)
        seconds = time.perf_counter() - start
        model.train(was_training)
        dags = [sample.dag for sample in samples]
        picture = self._folder / f"samples-{step:06d}.png"
        write_picture(picture, dags[:4], [sample.name for sample in samples[:4]])
        values = {
            "samples/valid_share": check_structure(dags).validity,
            "samples/graphs_per_s": len(dags) / seconds,
            "samples/mean_nodes": float(np.mean([dag.num_nodes for dag in dags])),
            "samples/truncated_share": float(np.mean([sample.truncated for sample in samples])),
        }
        return CallbackResult(values, {"samples": picture})
