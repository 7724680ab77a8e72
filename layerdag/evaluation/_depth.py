"""Are samples as near to real graphs in their last layers as in their first? Similarity by depth.

An autoregressive sampler builds on what it has sampled: its mistakes add up, and the deeper layers
drift away from real ones while figures of whole graphs still look well. So every graph is cut into
stretches of its depth, and each stretch is compared with the same stretch of real graphs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from layerdag.errors import UsageError
from layerdag.evaluation._bootstrap import Resampling
from layerdag.evaluation._graph_set import GraphSet
from layerdag.evaluation._similarity import SimilarityRow, check_attributes, descriptor_row
from layerdag.evaluation.metrics import AttributeView, Descriptor, Items, descriptors
from layerdag.graph import DAG

STRETCHES = 5
BY_NODE = ("in_degree", "out_degree")
BY_LAYER = ("width",)


@dataclass(frozen=True)
class DepthSimilarity:
    """How far generated graphs are from real ones in one stretch of their depth.

    Attributes:
        begin: Where it begins, as a share of the layers of a graph.
        end: Where it ends.
        nodes: Generated nodes in it.
        rows: Distances of the width of layers, the degrees of nodes and the first attribute; those
            of nodes and layers in the stretch alone, with edges to and from anywhere.
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
    stretches: int = STRETCHES,
    seed: int = 0,
    replicates: int = 50,
) -> tuple[DepthSimilarity, ...]:
    """Return the similarity figures of each stretch of the depth, from the first layers on.

    Layer l of a graph with L layers lies in stretch ``l * stretches // L``, so that a graph of
    fewer layers than stretches leaves some of them empty.

    Args:
        train: Real graphs that the generator learned from.
        test: Real graphs that it never saw.
        generated: Its samples.
        attributes: Name and kind of each node attribute, in column order; the first is compared.
        stretches: Number of stretches.
        seed: Seed of the bootstrap.
        replicates: Number of resamples.

    Raises:
        UsageError: If a set is empty, there is no stretch, or ``attributes`` does not match the
            graphs.
        DataError: If graphs have different numbers of attributes.
        GraphError: If a graph has a cycle; check structure first.
    """
    if stretches < 1:
        raise UsageError(f"Depth is cut into at least one stretch, found {stretches}.")
    sets = (GraphSet.of(train), GraphSet.of(test), GraphSet.of(generated))
    check_attributes(sets, attributes)
    sample = Resampling.draw(sets, seed, replicates)
    names = (*BY_LAYER, *BY_NODE, f"attribute:{attributes[0].name}")
    compared = [row for row in descriptors(attributes) if row.metric.name in names]
    node_stretch_N = _stretch_of_node(sets[2], stretches)
    return tuple(
        DepthSimilarity(
            begin=number / stretches,
            end=(number + 1) / stretches,
            nodes=int((node_stretch_N == number).sum()),
            rows=tuple(descriptor_row(_within(row, number, stretches), sample) for row in compared),
        )
        for number in range(stretches)
    )


def _within(descriptor: Descriptor, number: int, stretches: int) -> Descriptor:
    """Return the descriptor of the nodes, or layers, of one stretch alone."""
    place = _stretch_of_layer if descriptor.metric.name in BY_LAYER else _stretch_of_node

    def items(graphs: GraphSet) -> Iterator[Items]:
        here = place(graphs, stretches) == number
        for part in descriptor.items(graphs):
            yield Items(part.part, part.value[here], part.graph[here])

    return replace(descriptor, items=items)


def _stretch_of_node(graphs: GraphSet, stretches: int) -> np.ndarray:
    """Return the stretch of each node."""
    return graphs.layer_N * stretches // graphs.layers_B[graphs.graph_N]


def _stretch_of_layer(graphs: GraphSet, stretches: int) -> np.ndarray:
    """Return the stretch of each layer."""
    layer_L = np.arange(len(graphs.graph_L)) - graphs.layer_ptr[graphs.graph_L]
    return layer_L * stretches // graphs.layers_B[graphs.graph_L]
