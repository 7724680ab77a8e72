"""Which graphs were for training, validation and test: one fingerprint of a whole split.

Samples and checkpoints carry it, so that a command which compares samples with held-out graphs can
refuse a split in which those were trained on. It must not reveal which graphs were trained
on: a part's digest covers all of its graphs together, so that a guess can be tested only with every
other graph of the part at hand, and testing one costs 100,000 rounds of SHA-256.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import lru_cache

import numpy as np
import torch

from layerdag.codec import AttributedGraph
from layerdag.errors import UsageError
from layerdag.graph import DAG, graph_hash

ROUNDS = 100_000
_ABSENT = np.float64(np.nan).view(np.int64)


@dataclass(frozen=True)
class SplitFingerprint:
    """Digests of the parts of a split, whatever the order of graphs, files and nodes.

    Attributes:
        train: Of the training graphs, 32 hexadecimal digits; "" for no graph.
        val: Of the validation graphs.
        test: Of the test graphs.
    """

    train: str
    val: str
    test: str

    @classmethod
    def of(cls, contents: Mapping[str, Sequence[str]]) -> "SplitFingerprint":
        """Return the fingerprint of graphs given by their ``content_hash``, by part."""
        return cls(**{part.name: _digest(part.name, contents[part.name]) for part in fields(cls)})

    @classmethod
    def from_dict(cls, data: object) -> "SplitFingerprint | None":
        """Return what ``to_dict`` wrote; None for what is no fingerprint."""
        names = [part.name for part in fields(cls)]
        if not isinstance(data, Mapping) or not all(isinstance(data.get(n), str) for n in names):
            return None
        return cls(**{name: data[name] for name in names})

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
    """Raise UsageError unless ``data`` is split as it was when the model was trained.

    Args:
        learned: Split that the model was trained with.
        here: Split of the data at hand.
        model: What carries the first, for the message.
        data: What carries the second, for the message.

    Raises:
        UsageError: Names the parts that differ and what to do.
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
    """Return an attribute as int64 codes: hashes of words, bits of numbers."""
    if name in graph.categories:
        return np.array([_word_code(word) for word in graph.categories[name]], dtype=np.int64)
    values_N = np.asarray(graph.numbers[name], dtype=np.float64) + 0.0  # -0.0 becomes 0.0
    return np.where(np.isnan(values_N), _ABSENT, values_N.view(np.int64))


@lru_cache(maxsize=65_536)
def _word_code(word: str) -> int:
    """Return 63 bits of a hash of a word."""
    return int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little") >> 1


def _digest(part: str, contents: Sequence[str]) -> str:
    """Return the slow hash of a part's graphs, sorted."""
    if not contents:
        return ""
    salt = f"layerdag split {part}".encode()
    word = "\n".join(sorted(contents)).encode()
    return hashlib.pbkdf2_hmac("sha256", word, salt, ROUNDS, dklen=16).hex()
