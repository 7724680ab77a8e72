"""Splits by run, and fingerprints of a split: which graphs are for training, validation, test.

Samples and checkpoints carry a fingerprint, so that a command which compares samples with held-out
graphs can refuse a split in which those were trained on. It must not reveal which graphs were
trained on: a part's digest covers all of its graphs together, so that a guess can be tested only
with every other graph of the part at hand, and testing one costs 100,000 rounds of SHA-256.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import lru_cache

import numpy as np
import torch

from layerdag.dag.dag import DAG, graph_hash
from layerdag.errors import ConfigError, UsageError
from layerdag.graph.attributed_graph import SPLITS, AttributedGraph, Split
from layerdag.runtime.json_shape import from_json
from layerdag.runtime.rng import derive_seed

ROUNDS = 100_000
_ABSENT = np.float64(np.nan).view(np.int64)


@dataclass(frozen=True)
class SplitFingerprint:
    """Digests of the parts of a split, whatever the order of graphs, files and nodes.

    Each has 32 hexadecimal digits; "" for no graph.
    """

    train: str
    val: str
    test: str

    @classmethod
    def from_contents(cls, contents: Mapping[str, Sequence[str]]) -> "SplitFingerprint":
        """Return the fingerprint of graphs given by their ``content_hash``, by part."""
        return cls(**{part.name: _digest(part.name, contents[part.name]) for part in fields(cls)})

    @classmethod
    def from_dict(cls, data: object) -> "SplitFingerprint | None":
        """Return what ``to_dict`` wrote; None for what is no fingerprint."""
        try:
            return from_json(cls, data)
        except ValueError:
            return None

    def to_dict(self) -> dict[str, str]:
        """Return plain data."""
        return asdict(self)

    def differing(self, other: "SplitFingerprint") -> tuple[str, ...]:
        """Return the names of the parts that are not of the same graphs."""
        mine, theirs = asdict(self), asdict(other)
        return tuple(name for name in mine if mine[name] != theirs[name])


def require_same_split(
    learned: SplitFingerprint, here: SplitFingerprint, *, model: str, data: str
) -> None:
    """Raise UsageError unless data is split as it was when the model was trained.

    ``model`` and ``data`` name what carries the two splits.
    """
    parts = learned.differing(here)
    if not parts:
        return
    names = {"train": "training", "val": "validation", "test": "test"}
    listed = " and ".join(names[part] for part in parts)
    raise UsageError(
        f"{model}: comes from a model that was trained on another split than that of {data} (the "
        f"{listed} graphs differ), so graphs that count as held out here may have been trained "
        "on. Give the run's folder, whose settings make the same split again, or the data with "
        "the label file it was trained with."
    )


def content_hash(graph: AttributedGraph) -> str:
    """Return a hash of structure and attributes, the same whatever the order of the nodes.

    Conditions do not enter: a label measured again leaves a split what it was.
    """
    names = sorted([*graph.categories, *graph.numbers])
    columns = [_codes(graph, name) for name in names] or [np.zeros(graph.num_nodes, np.int64)]
    types_T = np.array([_word_code(name) for name in graph.edge_type_names], dtype=np.int64)
    dag = DAG.build(
        torch.from_numpy(np.stack(columns, axis=1)),
        torch.from_numpy(graph.edge_index_2E),
        edge_type_E=torch.from_numpy(types_T[graph.edge_type_E]),
    )
    return f"{graph_hash(dag)} {_word_code('/'.join(names)):x}"


def _codes(graph: AttributedGraph, name: str) -> np.ndarray:
    if name in graph.categories:
        return np.array([_word_code(word) for word in graph.categories[name]], dtype=np.int64)
    values_N = np.asarray(graph.numbers[name], dtype=np.float64) + 0.0  # -0.0 becomes 0.0
    return np.where(np.isnan(values_N), _ABSENT, values_N.view(np.int64))


@lru_cache(maxsize=65_536)
def _word_code(word: str) -> int:
    return int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little") >> 1


def _digest(part: str, contents: Sequence[str]) -> str:
    if not contents:
        return ""
    salt = f"layerdag split {part}".encode()
    word = "\n".join(sorted(contents)).encode()
    return hashlib.pbkdf2_hmac("sha256", word, salt, ROUNDS, dklen=16).hex()


SHARES = (0.8, 0.1)
MIN_HELD_OUT = 10
"""Graphs for validation, and as many for test, where a data set is large enough for them."""


Sizes = Callable[[int], tuple[int, int]]
"""Numbers of validation and of test graphs among so many distinct graphs."""


def tenth_split_sizes(count: int) -> tuple[int, int]:
    """Return a tenth for validation and a tenth for test."""
    return round(SHARES[1] * count), round((1 - sum(SHARES)) * count)


def has_enough_held_out(count: int) -> tuple[int, int]:
    """Return a tenth each, or ``MIN_HELD_OUT`` each as long as that is no more than a fifth.

    A tenth of a small data set is too few graphs to decide when to stop training or what
    samples give away; from 100 graphs on this is ``tenths``.
    """
    least = min(MIN_HELD_OUT, count // 5)
    return max(tenth_split_sizes(count)[0], least), max(tenth_split_sizes(count)[1], least)


def held_out_fraction(fraction: float) -> Sizes:
    """Return sizes that hold this share of all graphs out, half of it for test.

    Raises ConfigError if training would get nothing, or the share is no share.
    """
    if not 0 < fraction < 1:
        raise ConfigError(
            f"The share of held-out graphs must lie between 0 and 1, found {fraction}."
        )
    return lambda count: (round(fraction / 2 * count), round(fraction / 2 * count))


def split_graphs(
    graphs: Iterable[AttributedGraph], seed: int, *, sizes: Sizes = tenth_split_sizes
) -> dict[Split, list[AttributedGraph]]:
    """Split graphs at random; graphs that are equal but for their conditions stay together.

    The split depends on the seed and on what the graphs are, not on their order. ``sizes`` are the
    numbers of val and test graphs among so many distinct ones. Of few graphs the first is for
    training, the second for val, the third for test.
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


def split_keys(
    keys: Iterable[str], seed: int, *, sizes: Sizes = tenth_split_sizes
) -> dict[str, Split]:
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
