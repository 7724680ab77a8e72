"""What a training run shows of its model at each validation: samples, validity, speed."""

import time
from pathlib import Path

import numpy as np

from layerdag.datasets.schema import GraphSchema
from layerdag.evaluation.rules import check_structure
from layerdag.models import DAGModel
from layerdag.sampling import GenerationSettings, generate
from layerdag.training import CallbackResult
from layerdag.viz import write_picture


class Watch:
    """Samples a few graphs with fixed seeds, so that pictures of one run can be compared.

    Args:
        schema: Of the data set.
        folder: Where the pictures go.
        num_graphs: Graphs a validation.
    """

    def __init__(self, schema: GraphSchema, folder: Path, num_graphs: int) -> None:
        self._schema, self._folder = schema, folder
        self._settings = GenerationSettings(
            num=max(num_graphs, 1), seed=0, guidance=1.0, best_of=1, max_nodes=1000
        )

    def __call__(self, model: DAGModel, step: int) -> CallbackResult:
        """Sample, check and draw."""
        was_training = model.training
        model.eval()
        start = time.perf_counter()
        samples = list(generate(model, self._schema, self._settings))
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
