"""Validation likelihood: the same noise every time, so that two evaluations can be compared."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from layerdag._runtime import derive_seed
from layerdag.graph import DAGBatch
from layerdag.models import DAGModel
from layerdag.training._batches import in_order, take_graphs
from layerdag.training._distributed import World


@dataclass(frozen=True)
class Evaluation:
    """Losses over a whole set of graphs.

    Attributes:
        totals: Nats by objective, summed over all graphs.
        counts: Decisions by objective.
        graphs: Number of graphs.
    """

    totals: Mapping[str, float]
    counts: Mapping[str, float]
    graphs: int

    def per_decision(self) -> dict[str, float]:
        """Return nats a decision by objective."""
        return {name: total / max(self.counts[name], 1) for name, total in self.totals.items()}

    def per_graph(self, objectives: tuple[str, ...]) -> float:
        """Return the nats per graph of several objectives together."""
        return sum(self.totals[name] for name in objectives) / self.graphs


@torch.no_grad()
def evaluate(
    model: DAGModel,
    data: DAGBatch,
    *,
    batch_graphs: int,
    batch_nodes: int,
    seed: int,
    world: World | None = None,
) -> Evaluation:
    """Return the losses of ``model`` over all graphs of ``data``.

    The noise of a batch depends on ``seed`` and the batch alone: the same weights give the same
    figures, however many processes share the work.
    """
    world = world or World()
    sizes_B = data.node_ptr.diff().cpu().numpy()
    batches = in_order(np.argsort(sizes_B, kind="stable"), sizes_B, batch_graphs, batch_nodes)
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    names = [name for objectives in model.objective_parameters() for name in objectives]
    sums_O2 = torch.zeros(len(names), 2, dtype=torch.float64, device=device)
    for number in range(world.rank, len(batches), world.size):
        generator = torch.Generator(device).manual_seed(derive_seed(seed, "validation", number))
        terms = model.losses(take_graphs(data, batches[number]).to(device), generator)
        for row, name in enumerate(names):
            sums_O2[row, 0] += terms[name].total
            sums_O2[row, 1] += terms[name].count
    model.train(was_training)
    rows = world.sum(sums_O2).tolist()
    return Evaluation(
        totals={name: row[0] for name, row in zip(names, rows, strict=True)},
        counts={name: row[1] for name, row in zip(names, rows, strict=True)},
        graphs=data.num_graphs,
    )
