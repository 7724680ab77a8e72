"""Graphs whose label can be computed for any graph: the time that two workers take for it."""

from dataclasses import replace

import numpy as np

from layerdag.dag.dag import DAG
from layerdag.datasets.dataset import GraphDataset
from layerdag.datasets.latent_preferential import load_latent_preferential
from layerdag.datasets.settings import LatentPreferentialConfig
from layerdag.graph.attributed_graph import LABEL
from layerdag.schema.conditions import NO_TABLE, NumericCondition

from ._parts import labels_of

WORKERS, COSTS = 2, (1.0, 3.0)


def makespan(dag: DAG) -> float:
    """Return when the last node ends, where each in turn starts on the worker that is free first.

    Nodes are taken layer by layer; a node waits for its predecessors.
    """
    free_at = np.zeros(WORKERS)
    end_N = np.zeros(dag.num_nodes)
    source_E, target_E = dag.edge_index_2E.numpy()
    for node in np.argsort(dag.layer_N.numpy(), kind="stable").tolist():
        parents = source_E[target_E == node]
        worker = int(free_at.argmin())
        start = max(free_at[worker], end_N[parents].max(initial=0.0))
        end_N[node] = free_at[worker] = start + COSTS[int(dag.x_NA[node, 0])]
    return float(end_N.max())


def scheduled(train: int) -> GraphDataset:
    """Return latent-preferential graphs labeled with the time that two workers take for them."""
    data = load_latent_preferential(
        LatentPreferentialConfig(num_train=train, num_val=train // 10, num_test=train // 10)
    )
    labeled = {
        part: tuple(dag.with_conditions({**dag.conditions, LABEL: makespan(dag)}) for dag in dags)
        for part, dags in data.graphs.items()
    }
    label = NumericCondition.fit(LABEL, labels_of(labeled["train"]).tolist())
    known = (*data.schema.numeric_conditions, label)
    schema = replace(data.schema, numeric_conditions=known, condition_table=NO_TABLE)
    return data.replaced(graphs=labeled, schema=schema)
