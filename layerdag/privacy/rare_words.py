"""Words of sampled programs that few training programs have.

A call with its literal numbers, such as a count of experts, is a word; so are the expressions of
its sizes. A word that fewer than ``SHARED_BY`` distinct programs have points to one of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from layerdag.dag.dag import DAG, graph_hashes
from layerdag.dag.program_numbers import SHARED_BY
from layerdag.schema.attributes import CategoryAttribute
from layerdag.schema.schema import GraphSchema


@final
@dataclass(frozen=True)
class RareWords:
    """How many words of samples few training programs have.

    Attributes:
        words: Distinct words in the samples, of all attributes that are words.
        rare: Those that fewer than ``least`` distinct training programs have.
        samples: Samples with one of these.
    """

    words: int
    rare: int
    samples: int
    least: int = SHARED_BY

    def in_words(self) -> str:
        """Return it as a sentence."""
        return (
            f"{self.rare:,} of {self.words:,} words of the samples are those of fewer than "
            f"{self.least} training programs, in {self.samples:,} samples"
        )


def rare_words(schema: GraphSchema, train: Sequence[DAG], samples: Sequence[DAG]) -> RareWords:
    """Return how many words of sampled programs few training programs have."""
    columns = [i for i, a in enumerate(schema.attributes) if isinstance(a, CategoryAttribute)]
    distinct = list(dict(zip(graph_hashes(train), train, strict=True)).values())
    words = rare = 0
    with_rare_B = np.zeros(len(samples), dtype=bool)
    for column in columns:
        num_codes = schema.attributes[column].num_codes
        holders_K = _occurs(distinct, column, num_codes).sum(axis=0)
        occurs_BK = _occurs(samples, column, num_codes)
        rare_K = occurs_BK.any(axis=0) & (holders_K < SHARED_BY)
        words += int(occurs_BK.any(axis=0).sum())
        rare += int(rare_K.sum())
        with_rare_B |= occurs_BK[:, rare_K].any(axis=1)
    return RareWords(words, rare, int(with_rare_B.sum()))


def _occurs(dags: Sequence[DAG], column: int, num_codes: int) -> np.ndarray:
    """Return which codes of an attribute occur in which graph, bool (B, K)."""
    found_BK = np.zeros((len(dags), num_codes), dtype=bool)
    for row, dag in enumerate(dags):
        found_BK[row, dag.x_NA[:, column].numpy()] = True
    return found_BK
