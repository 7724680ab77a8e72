"""Are samples as near to real graphs in their last layers as in their first? Similarity by depth.

An autoregressive sampler builds on what it has sampled: its mistakes add up, and the deeper layers
drift away from real ones while figures of whole graphs still look well. So every graph is cut into
bins by depth, and each bin is compared with the same bin of real graphs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from layerdag.errors import UsageError
from layerdag.evaluation._graph_set import GraphSet
from layerdag.evaluation._similarity import comparison_of, row_of
from layerdag.evaluation.metrics import (
    AttributeView,
    DescriptorMetric,
    Items,
    SimilarityRow,
    descriptors,
)
from layerdag.graph import DAG

DEPTH_BINS = 5
BY_NODE = ("in_degree", "out_degree")
BY_LAYER = ("width",)


@dataclass(frozen=True)
class DepthSimilarity:
    """How far generated graphs are from real ones in one depth bin.

    Attributes:
        begin: Where it begins, as a fraction of the layers of a graph.
        end: Where it ends.
        nodes: Generated nodes in it.
        rows: Distances of the width of layers, the degrees of nodes and the first attribute; those
            of nodes and layers in the depth bin alone, with edges to and from anywhere.
    """

    begin: float
    end: float
    nodes: int
    rows: tuple[SimilarityRow, ...]

    @property
    def mean_ratio(self) -> float | None:
        """Mean of the ratios that there are."""
        ratios = [row.ratio for row in self.rows if row.ratio is not None]
        return float(np.mean(ratios)) if ratios else None


def compare_by_depth(
    train: Sequence[DAG],
    test: Sequence[DAG],
    generated: Sequence[DAG],
    attributes: Sequence[AttributeView],
    *,
    depth_bins: int = DEPTH_BINS,
    seed: int = 0,
    replicates: int = 50,
) -> tuple[DepthSimilarity, ...]:
    """Return the similarity figures of each depth bin, from the first layers on.

    Layer l of a graph with L layers lies in depth bin ``l * depth_bins // L``, so that a graph of
    fewer layers than bins leaves some of them empty.

    Args:
        train: Real graphs that the generator learned from.
        test: Real graphs that it never saw.
        generated: Its samples.
        attributes: Name and kind of each node attribute, in column order; the first is compared.
        depth_bins: Number of depth bins.
        seed: Seed of the bootstrap.
        replicates: Number of resamples.

    Raises:
        UsageError: If a set is empty, there is no bin, or ``attributes`` does not match the
            graphs.
        DataError: If graphs have different numbers of attributes.
        GraphError: If a graph has a cycle; check structure first.
    """
    if depth_bins < 1:
        raise UsageError(f"Depth is cut into at least one depth bin, found {depth_bins}.")
    comparison = comparison_of((train, test, generated), attributes, seed, replicates)
    names = (*BY_LAYER, *BY_NODE, f"attribute:{attributes[0].name}")
    compared = [metric for metric in descriptors(attributes) if metric.name in names]
    node_bin_N = _depth_bin_of_node(comparison.generated, depth_bins)
    return tuple(
        DepthSimilarity(
            begin=number / depth_bins,
            end=(number + 1) / depth_bins,
            nodes=int((node_bin_N == number).sum()),
            rows=tuple(
                row_of(_in_bin(metric, number, depth_bins), comparison) for metric in compared
            ),
        )
        for number in range(depth_bins)
    )


def _in_bin(descriptor: DescriptorMetric, number: int, depth_bins: int) -> DescriptorMetric:
    """Return the metric of the nodes, or layers, of one depth bin alone."""
    depth_bin_of = _depth_bin_of_layer if descriptor.name in BY_LAYER else _depth_bin_of_node

    def items(graphs: GraphSet) -> Iterator[Items]:
        here = depth_bin_of(graphs, depth_bins) == number
        for part in descriptor.items(graphs):
            yield Items(part.part, part.value[here], part.graph[here])

    return replace(descriptor, items=items)


def _depth_bin_of_node(graphs: GraphSet, depth_bins: int) -> np.ndarray:
    """Return the depth bin of each node."""
    return graphs.layer_N * depth_bins // graphs.layers_B[graphs.graph_N]


def _depth_bin_of_layer(graphs: GraphSet, depth_bins: int) -> np.ndarray:
    """Return the depth bin of each layer."""
    layer_L = np.arange(len(graphs.graph_L)) - graphs.layer_ptr[graphs.graph_L]
    return layer_L * depth_bins // graphs.layers_B[graphs.graph_L]
