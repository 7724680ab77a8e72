"""Splitting graphs into train, val and test so that no graph stands in two of them."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import torch

from layerdag._runtime import derive_seed
from layerdag.codec import AttributedGraph
from layerdag.datasets._base import SPLITS, Split
from layerdag.errors import ConfigError
from layerdag.graph import DAG, graph_hash

SHARES = (0.8, 0.1)
LEAST_HELD_OUT = 10
"""Graphs for validation, and as many for test, where a data set is large enough for them."""


Sizes = Callable[[int], tuple[int, int]]
"""Numbers of validation and of test graphs among so many distinct graphs."""


def tenths(count: int) -> tuple[int, int]:
    """Return a tenth for validation and a tenth for test."""
    return round(SHARES[1] * count), round((1 - sum(SHARES)) * count)


def enough_to_judge(count: int) -> tuple[int, int]:
    """Return a tenth each, or ``LEAST_HELD_OUT`` each as long as that is no more than a fifth.

    A tenth of a small data set is too few graphs to decide when to stop training or what
    samples give away; from 100 graphs on this is ``tenths``.
    """
    least = min(LEAST_HELD_OUT, count // 5)
    return max(tenths(count)[0], least), max(tenths(count)[1], least)


def held_out_fraction(fraction: float) -> Sizes:
    """Return sizes that hold this share of all graphs out, half of it for test.

    Raises:
        ConfigError: If training would get nothing, or the share is no share.
    """
    if not 0 < fraction < 1:
        raise ConfigError(
            f"The share of held-out graphs must lie between 0 and 1, found {fraction}."
        )
    return lambda count: (round(fraction / 2 * count), round(fraction / 2 * count))


def split_graphs(
    graphs: Iterable[AttributedGraph], seed: int, *, sizes: Sizes = tenths
) -> dict[Split, list[AttributedGraph]]:
    """Split graphs at random; graphs that are equal but for their conditions stay together.

    Args:
        graphs: All graphs.
        seed: Of the order; the split depends on it and on what the graphs are, not on their order.
        sizes: Numbers of val and test graphs among so many distinct ones. Of few graphs the first
            is for training, the second for val, the third for test.
    """
    by_content: dict[str, list[AttributedGraph]] = {}
    for graph in graphs:
        by_content.setdefault(content_key(graph), []).append(graph)
    parts: dict[Split, list[AttributedGraph]] = {split: [] for split in SPLITS}
    for key, split in split_keys(by_content, seed, sizes=sizes).items():
        parts[split].extend(by_content[key])
    return parts


def split_priority(key: str, seed: int) -> int:
    """Return the number by which the graphs of a split are ordered, training graphs first."""
    return derive_seed(seed, "split", key)


def split_keys(keys: Iterable[str], seed: int, *, sizes: Sizes = tenths) -> dict[str, Split]:
    """Return the split of each ``content_key``, in the order of ``split_priority``."""
    ordered = sorted(keys, key=lambda key: split_priority(key, seed))
    count = len(ordered)
    wanted_val, wanted_test = sizes(count)
    num_val = max(wanted_val, min(count - 1, 1))
    num_test = max(wanted_test, min(count - 2, 1))
    first = count - num_val - max(num_test, 0)
    second = first + num_val
    return {
        key: "train" if index < first else "val" if index < second else "test"
        for index, key in enumerate(ordered)
    }


def named_splits(
    graphs: Sequence[AttributedGraph], split_of: Mapping[str, Split]
) -> dict[Split, list[AttributedGraph]]:
    """Split graphs by the names that a label file gives; graphs without one go to training."""
    parts: dict[Split, list[AttributedGraph]] = {split: [] for split in SPLITS}
    for graph in graphs:
        parts[split_of.get(graph.name, "train")].append(graph)
    return parts


def content_key(graph: AttributedGraph) -> str:
    """Return a hash that is equal for graphs with isomorphic structure and equal attributes."""
    words_N = ["\x1f".join(row) for row in zip(*graph.categories.values(), strict=True)]
    words_N = words_N or [""] * graph.num_nodes
    numbers_N = np.array([values for values in graph.numbers.values()]).T.reshape(
        graph.num_nodes, -1
    )
    codes = [
        int.from_bytes(
            hashlib.blake2b(word.encode() + row.tobytes(), digest_size=7).digest(), "little"
        )
        for word, row in zip(words_N, numbers_N, strict=True)
    ]
    dag = DAG.build(
        torch.tensor(codes, dtype=torch.int64)[:, None],
        torch.from_numpy(graph.edge_index_2E),
        edge_type_E=torch.from_numpy(graph.edge_type_E),
    )
    return graph_hash(dag, rounds=8)
