"""Which graphs are of one program.

A program that was traced several times is one job: what it alone has must not look as if several
jobs shared it.
"""

import hashlib
from collections.abc import Sequence

import numpy as np

from layerdag.graph.attributed_graph import AttributedGraph

SHARED_BY = 5
"""Training graphs that stand behind every figure in a checkpoint, where there are as many."""

MEASURED = ("duration",)
"""Numeric attributes that differ from run to run of the same program."""

# Odd constants of MurmurHash3 and SplitMix64, which spread the bits of products modulo 2 ** 64.
_SPREAD = np.uint64(0x9E3779B97F4A7C15)

_MIX = np.uint64(0xFF51AFD7ED558CCD)


def program_numbers(graphs: Sequence[AttributedGraph]) -> np.ndarray:
    """Return the number of each graph's program, int64 (G,), by first occurrence.

    Graphs whose nodes and edges have the same words and numbers are of one program, in whatever
    order they list them; durations may differ. What tells programs apart are the words and numbers
    at both ends of edges, so that rare graphs which differ elsewhere count as one: rather too few
    are counted.
    """
    codes: dict[str, int] = {}
    seen: dict[bytes, int] = {}
    return np.array([seen.setdefault(_digest(g, codes), len(seen)) for g in graphs], np.int64)


def needed_programs(program_G: np.ndarray) -> int:
    """Return how many programs must share what the schema holds: all where there are few."""
    return min(SHARED_BY, len(np.unique(program_G)))


def condition_units(program_G: np.ndarray) -> np.ndarray:
    """Return what conditions are counted by: programs, or graphs where programs are too few.

    Of fewer programs than ``SHARED_BY`` nothing could be said else, such as of one program on many
    clusters.
    """
    few = len(np.unique(program_G)) < SHARED_BY
    return np.arange(len(program_G)) if few else program_G


def all_distinct(graphs: Sequence[AttributedGraph]) -> np.ndarray:
    """Return numbers that take each graph for a program of its own, int64 (G,)."""
    return np.arange(len(graphs))


def _digest(graph: AttributedGraph, codes: dict[str, int]) -> bytes:
    node_N = np.zeros(graph.num_nodes, np.uint64)
    with np.errstate(over="ignore"):
        for name in sorted(graph.categories):
            column = [codes.setdefault(word, len(codes)) for word in graph.categories[name]]
            node_N = _mixed(node_N, np.array(column, dtype=np.uint64))
        for name in sorted(set(graph.numbers) - set(MEASURED)):
            value_N = np.asarray(graph.numbers[name], dtype=np.float64)
            known_N = np.where(np.isnan(value_N), -1.0, value_N) + 0.0
            node_N = _mixed(node_N, known_N.view(np.uint64))
        kinds = [codes.setdefault(word, len(codes)) for word in graph.edge_type_names]
        kind_E = np.array(kinds, dtype=np.uint64)[graph.edge_type_E]
        source_E, target_E = graph.edge_index_2E
        edge_E = _mixed(_mixed(node_N[source_E], node_N[target_E]), kind_E)
    found = hashlib.blake2b(np.sort(node_N).tobytes(), digest_size=16)
    found.update(np.sort(edge_E).tobytes())
    return found.digest()


def _mixed(hash_N: np.ndarray, value_N: np.ndarray) -> np.ndarray:
    mixed_N = (hash_N ^ (value_N + _SPREAD)) * _MIX
    found_N: np.ndarray = mixed_N ^ (mixed_N >> np.uint64(29))
    return found_N
