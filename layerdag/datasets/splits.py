"""Splitting graphs into train, val and test so that no graph stands in two of them."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch

from layerdag.datasets.base import SPLITS, Split
from layerdag.datasets.raw import RawGraph
from layerdag.graph.dag import DAG
from layerdag.graph.hashing import graph_hash
from layerdag.rng import derive_seed

SHARES = (0.8, 0.1)


def split_graphs(
    graphs: Iterable[RawGraph], seed: int, shares: tuple[float, float] = SHARES
) -> dict[Split, list[RawGraph]]:
    """Split graphs at random; graphs that are equal but for their conditions stay together.

    Args:
        graphs: All graphs.
        seed: Of the order; the split depends on it and on what the graphs are, not on their order.
        shares: Of train and val among the distinct graphs; test gets the rest. Of few graphs the
            first is for training, the second for val, the third for test.
    """
    by_content: dict[str, list[RawGraph]] = {}
    for graph in graphs:
        by_content.setdefault(content_key(graph), []).append(graph)
    keys = sorted(by_content, key=lambda key: derive_seed(seed, "split", key))
    count = len(keys)
    num_val = max(round(shares[1] * count), min(count - 1, 1))
    num_test = max(round((1 - sum(shares)) * count), min(count - 2, 1))
    first = count - num_val - max(num_test, 0)
    second = first + num_val
    parts: dict[Split, list[RawGraph]] = {split: [] for split in SPLITS}
    for place, key in enumerate(keys):
        split: Split = "train" if place < first else "val" if place < second else "test"
        parts[split].extend(by_content[key])
    return parts


def named_splits(
    graphs: Sequence[RawGraph], split_of: Mapping[str, Split]
) -> dict[Split, list[RawGraph]]:
    """Split graphs by the names that a label file gives; graphs without one go to training."""
    parts: dict[Split, list[RawGraph]] = {split: [] for split in SPLITS}
    for graph in graphs:
        parts[split_of.get(graph.name, "train")].append(graph)
    return parts


def content_key(graph: RawGraph) -> str:
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
