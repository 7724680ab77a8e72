from dataclasses import replace

import numpy as np
import torch

from layerdag.graph import graph_hash, random_dag


def test_hash_does_not_depend_on_node_order(rng: np.random.Generator) -> None:
    dag = random_dag(rng, [3, 5, 4], [4, 2], num_edge_types=2)
    shuffled = dag.permuted(torch.from_numpy(rng.permutation(dag.num_nodes)))
    assert graph_hash(shuffled) == graph_hash(dag)


def test_hash_sees_attributes_edge_types_and_direction(rng: np.random.Generator) -> None:
    dag = random_dag(rng, [3, 5, 4], [4, 2], num_edge_types=2)
    x_NA = dag.x_NA.clone()
    x_NA[0, 0] += 1
    variants = [
        replace(dag, x_NA=x_NA),
        replace(dag, edge_type_E=1 - dag.edge_type_E),
        replace(dag, edge_index_2E=dag.edge_index_2E.flip(0)),
    ]
    hashes = {graph_hash(variant) for variant in [dag, *variants]}
    assert len(hashes) == 4
