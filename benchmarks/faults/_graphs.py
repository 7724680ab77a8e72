"""Faults inside a graph: wiring, attributes and repeated blocks.

Each takes a graph in layer order, the fraction of it to spoil, and a generator of random numbers,
and returns a valid DAG in layer order.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch

from layerdag.dag.dag import DAG
from layerdag.dag.graph_set import GraphSet
from layerdag.evaluation.metrics.repeated_blocks import repeated_blocks
from layerdag.schema.attributes import NumericAttribute

GraphFault = Callable[[DAG, float, np.random.Generator], DAG]
TRIES = 30
"""Draws for each edge to be rewired; small or dense graphs have few pairs left."""


def rewired_keeping_degrees(dag: DAG, fraction: float, rng: np.random.Generator) -> DAG:
    """Swap the targets of pairs of edges: every in- and out-degree stays."""
    edge_index_2E = dag.edge_index_2E.numpy().copy()
    known = set(map(tuple, edge_index_2E.T.tolist()))
    wanted, swapped = round(fraction * dag.num_edges / 2), 0
    for first, second in _edge_pairs(rng, dag.num_edges, wanted):
        (a, b), (c, d) = edge_index_2E[:, first].tolist(), edge_index_2E[:, second].tolist()
        if swapped == wanted:
            break
        # Nodes stand in layer order, so that edges to later nodes never close a cycle.
        if a < d and c < b and a != c and b != d and not {(a, d), (c, b)} & known:
            known -= {(a, b), (c, d)}
            known |= {(a, d), (c, b)}
            edge_index_2E[1, [first, second]] = d, b
            swapped += 1
    return _with_edges(dag, edge_index_2E)


def rewired(dag: DAG, fraction: float, rng: np.random.Generator) -> DAG:
    """Put edges between nodes drawn at random, the earlier one first."""
    edge_index_2E = dag.edge_index_2E.numpy().copy()
    known = set(map(tuple, edge_index_2E.T.tolist()))
    for edge in rng.permutation(dag.num_edges)[: round(fraction * dag.num_edges)]:
        for _ in range(TRIES):
            pair = tuple(np.sort(rng.integers(0, dag.num_nodes, 2)).tolist())
            if pair[0] < pair[1] and pair not in known:
                known.remove(tuple(edge_index_2E[:, edge].tolist()))
                known.add(pair)
                edge_index_2E[:, edge] = pair
                break
    return _with_edges(dag, edge_index_2E)


def attributes_shuffled(dag: DAG, fraction: float, rng: np.random.Generator) -> DAG:
    """Let nodes exchange all their attributes: the same nodes at other places."""
    return _exchanged(dag, _drawn(dag.num_nodes, fraction, rng), slice(None))


def numbers_shuffled(columns: Sequence[int]) -> GraphFault:
    """Let nodes exchange some columns: the same numbers at other operators."""

    def fault(dag: DAG, fraction: float, rng: np.random.Generator) -> DAG:
        return _exchanged(dag, _drawn(dag.num_nodes, fraction, rng), list(columns))

    return fault


def durations_scaled(column: int, attribute: NumericAttribute) -> GraphFault:
    """Make every duration longer by the fraction."""

    def fault(dag: DAG, fraction: float, rng: np.random.Generator) -> DAG:
        del rng
        factor_N = np.full(dag.num_nodes, 1 + fraction)
        return dag if fraction == 0 else multiplied(dag, column, attribute, factor_N)

    return fault


def multiplied(dag: DAG, column: int, attribute: NumericAttribute, factor_N: np.ndarray) -> DAG:
    """Return the graph with other numbers in one column."""
    x_NA, u_NA = dag.x_NA.clone(), dag.u_NA.clone()
    value_N = attribute.decode(x_NA[:, column].numpy(), u_NA[:, column].numpy())
    code_N, position_N = attribute.encode(value_N * factor_N)
    x_NA[:, column], u_NA[:, column] = torch.from_numpy(code_N), torch.from_numpy(position_N)
    return dag.with_columns(x_NA, u_NA)


def blocks_not_repeating(dag: DAG, fraction: float, rng: np.random.Generator) -> DAG:
    """Let the nodes of copies of a repeated block exchange their attributes, each copy for itself.

    Operators, edges and sizes of every copy stay; only that it is a copy is lost.
    """
    layer_N = dag.layer_N.numpy()
    copies = [
        np.flatnonzero((layer_N >= start) & (layer_N < start + block.length))
        for block in repeated_blocks(GraphSet.from_dags([dag]))
        for start in range(block.first, block.first + block.count * block.length, block.length)
    ]
    chosen = _drawn(len(copies), fraction, rng)
    for copy in chosen:
        dag = _exchanged(dag, rng.permutation(copies[copy]), slice(None))
    return dag


def edited(dag: DAG, fraction: float, rng: np.random.Generator, donors: Sequence[DAG]) -> DAG:
    """Rewire a fraction of the edges; give a fraction of the nodes attributes of other graphs."""
    dag = rewired_keeping_degrees(dag, fraction, rng)
    x_NA, u_NA = dag.x_NA.clone(), dag.u_NA.clone()
    for node in rng.permutation(dag.num_nodes)[: max(round(fraction * dag.num_nodes), 1)]:
        donor = donors[int(rng.integers(len(donors)))]
        row = int(rng.integers(donor.num_nodes))
        x_NA[node], u_NA[node] = donor.x_NA[row], donor.u_NA[row]
    return dag.with_columns(x_NA, u_NA)


def _drawn(count: int, fraction: float, rng: np.random.Generator) -> np.ndarray:
    """Return a fraction of the numbers below ``count``, in random order."""
    return rng.permutation(count)[: round(fraction * count)]


def _exchanged(dag: DAG, nodes: np.ndarray, columns: slice | list[int]) -> DAG:
    """Return the graph in which each of some nodes has the columns of the one before it."""
    x_NA, u_NA = dag.x_NA.numpy().copy(), dag.u_NA.numpy().copy()
    for values_NA in (x_NA, u_NA):
        part = values_NA[nodes]
        part[:, columns] = np.roll(part, 1, axis=0)[:, columns]
        values_NA[nodes] = part
    return dag.with_columns(torch.from_numpy(x_NA), torch.from_numpy(u_NA))


def _edge_pairs(rng: np.random.Generator, edges: int, wanted: int) -> list[list[int]]:
    """Return pairs of different edges to try."""
    if edges < 2:
        return []
    first_T = rng.integers(0, edges, TRIES * wanted)
    second_T = (first_T + rng.integers(1, edges, TRIES * wanted)) % edges
    found: list[list[int]] = np.stack([first_T, second_T], axis=1).tolist()
    return found


def _with_edges(dag: DAG, edge_index_2E: np.ndarray) -> DAG:
    """Return the graph with other edges of the same types, in layer order."""
    changed = DAG.build(
        dag.x_NA,
        torch.from_numpy(edge_index_2E),
        edge_type_E=dag.edge_type_E,
        u_NA=dag.u_NA,
        conditions=dag.conditions,
    )
    return changed.in_layer_order()
