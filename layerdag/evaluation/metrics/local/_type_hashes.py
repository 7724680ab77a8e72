"""Type hashes of WfChef: what lies above and below a node, all the way.

Coleman, Casanova and Ferreira da Silva, "WfChef: Automated Generation of Accurate Scientific
Workflow Generators" (eScience 2021), as in WfCommons: the top-down hash of a node is that of its
type and the set of its parents' top-down hashes, the bottom-up hash that of its type and the set of
its children's; the type hash is both. With r_t and s_t the numbers of nodes of type hash t in a
real and a synthetic workflow, T all that occur in either and N the nodes of the real one, their
error is sqrt(sum_t (r_t - s_t)^2 / |T|) / N.

That compares two workflows of one size. Here sets are compared, so r_t / N and s_t / N become
r_t and s_t, the frequencies pooled over the graphs of a set, and the value is their total
variation. Squares suit frequencies badly of which most are those of a single node: |T| grows with
every hash that is new, and a few frequent hashes outweigh all others, so that errors fall where
samples are less alike. WfChef's error stands in the breakdown, as "rmse".
"""

from dataclasses import dataclass
from typing import final

import numpy as np

from layerdag.evaluation import GraphSet
from layerdag.evaluation.metrics import Comparison, Draws, Items, Metric, SimilarityRow
from layerdag.evaluation.metrics.local._frequencies import FrequencyDistances, frequency_distances
from layerdag.evaluation.metrics.local._hashes import MIX, distinct_pairs, mixed, operator_hashes
from layerdag.evaluation.metrics.local._layers import edges_by_layer
from layerdag.graph import longest_path_layers


@final
@dataclass(frozen=True)
class TypeHashDistance(Metric):
    """Total variation of the frequencies of type hashes, pooled over the graphs of a set."""

    def compute(self, comparison: Comparison) -> SimilarityRow:
        """Return the distance of generated and of training graphs from the test graphs.

        Raises:
            DataError: If a set has no nodes.
            GraphError: If there is a cycle.
        """
        items = [Items("", type_hashes(graphs), graphs.graph_N) for graphs in comparison.sets]
        generated, reference = frequency_distances(items, comparison)
        return SimilarityRow.of_draws(self, _draws(generated), _draws(reference))


def _draws(found: FrequencyDistances) -> Draws:
    """Return the figure under each row of weights, with the error of WfChef."""
    return found.total_variation_R, {"rmse": float(found.rmse_R[0])}


def type_hashes(graphs: GraphSet) -> np.ndarray:
    """Return the type hash of each node by its first attribute, uint64 (N,).

    Raises:
        GraphError: If there is a cycle.
    """
    operator_N = operator_hashes(graphs)
    flipped_2E = graphs.edge_index_2E[::-1]
    height_N = longest_path_layers(graphs.num_nodes, flipped_2E)
    top_down_N = _hashes_from_above(operator_N, graphs.edge_index_2E, graphs.layer_N)
    bottom_up_N = _hashes_from_above(operator_N, flipped_2E, height_N)
    return mixed(top_down_N * MIX + bottom_up_N)


def _hashes_from_above(
    operator_N: np.ndarray, edge_index_2E: np.ndarray, layer_N: np.ndarray
) -> np.ndarray:
    """Return the hash of each node's operator and of the set of its parents' hashes."""
    hash_N = mixed(operator_N)
    for source, target in edges_by_layer(edge_index_2E, layer_N):
        child, parent = distinct_pairs(target, hash_N[source])
        nodes, inverse = np.unique(child, return_inverse=True)
        parents = np.zeros(nodes.size, dtype=np.uint64)
        np.add.at(parents, inverse.ravel(), mixed(parent))
        hash_N[nodes] = mixed(operator_N[nodes] * MIX + mixed(parents))
    return hash_N
