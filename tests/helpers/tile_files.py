"""Small data sets in the format of TPU Tile, and real graphs dressed up as samples."""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from random_graphs import random_dag

from layerdag.datasets.loading import read_dataset
from layerdag.graph.formats.graphml import write_graphml


def write_tile(
    folder: Path, rng: np.random.Generator, counts: Mapping[str, int], *, layers: int, codes: int
) -> Path:
    """Write random graphs, so many for each split; the runtime is the number of nodes."""
    folder.mkdir()
    for split, count in counts.items():
        dags = [random_dag(rng, rng.integers(1, 4, layers).tolist(), [codes]) for _ in range(count)]
        torch.save(
            {
                "src_list": [dag.edge_index_2E[0] for dag in dags],
                "dst_list": [dag.edge_index_2E[1] for dag in dags],
                "x_n_list": [dag.x_NA[:, 0] for dag in dags],
                "y_list": [float(dag.num_nodes) for dag in dags],
            },
            folder / f"{split}.pth",
        )
    return folder


def write_training_graphs_as_samples(tile: Path, folder: Path) -> Path:
    """Write the training graphs of a data set as ``layerdag sample`` writes samples."""
    folder.mkdir()
    data = read_dataset(tile)
    entries = []
    for i, dag in enumerate(data.graphs["train"]):
        write_graphml(folder / f"{i}.graphml", data.schema.decode(dag))
        entries.append({"name": str(i), "file": f"{i}.graphml", "conditions": dict(dag.conditions)})
    (folder / "manifest.json").write_text(json.dumps({"samples": entries}))
    return folder
