"""Deciding which drawn samples may be published."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch

from layerdag.api.publication.drawing._published import written_graph
from layerdag.api.publication.drawing._renumbering import Renumbering, keys_of
from layerdag.api.publication.reading import FoundJobs
from layerdag.datasets import GraphDataset
from layerdag.errors import DataError
from layerdag.evaluation.privacy import CopyTest, Resemblance, keys_of_one_run
from layerdag.evaluation.rules import check_structure
from layerdag.graph import GraphStatistics, graph_hash
from layerdag.sampling import GeneratedGraph

TRIALS = 8
"""Times that a sample is given other numbers before it is rejected."""
KEPT = "kept"
REPEATED = "repeats an earlier sample"
TRUNCATED = "cut off at the largest size"
INVALID = "breaks a rule on graphs"
NO_TRACE = "breaks a rule on traces"
UNIQUE_TUPLE = "holds numbers of a single real run"


@dataclass(eq=False)
class Sieve:
    """Decides of each drawn sample, in order.

    Attributes:
        data: The split real graphs.
        copies: The test for copies.
        unique: Keys of the numbers that one real run alone has.
        statistics: Of the training graphs, for the rules.
        seen: Hashes of the kept samples.
        renumbered: Nodes of kept samples that got other numbers than were drawn.
    """

    data: GraphDataset
    copies: CopyTest
    unique: np.ndarray
    statistics: GraphStatistics
    seen: set[str] = field(default_factory=set)
    renumbered: int = 0

    @classmethod
    def of(cls, jobs: FoundJobs, data: GraphDataset) -> "Sieve":
        """Prepare all tests on the real graphs."""
        return cls(
            data,
            CopyTest.of(data.graphs["train"], data.held_out, data.schema.measured_columns),
            keys_of_one_run([keys_of(graph) for graph in jobs.graphs], jobs.runs),
            GraphStatistics.measure(data.graphs["train"], data.schema.sizes()),
        )

    @cached_property
    def _renumbering(self) -> Renumbering:
        """Gives nodes other numbers."""
        return Renumbering(self.data.schema, self.unique)

    def sifted(self, samples: Sequence[GeneratedGraph]) -> Iterator[tuple[GeneratedGraph, str]]:
        """Yield each sample as it may be published, with what becomes of it."""
        if not samples:
            return
        dags = [sample.dag for sample in samples]
        valid_B = check_structure(dags, self.statistics).valid_B
        resembling = self.copies.resemblances(dags)
        for sample, valid, found in zip(samples, valid_B, resembling, strict=True):
            if sample.truncated:
                yield sample, TRUNCATED
            elif not valid:
                yield sample, INVALID
            elif found is not Resemblance.NEW:
                yield sample, found.value
            else:
                yield self._decided(sample)

    def _decided(self, sample: GeneratedGraph) -> tuple[GeneratedGraph, str]:
        """Decide of a valid sample that is no copy."""
        word = graph_hash(sample.dag)
        if word in self.seen:
            return sample, REPEATED
        first = sample
        for trial in range(TRIALS):
            try:
                graph = written_graph(sample)
            except DataError:
                return sample, NO_TRACE
            if not self._renumbering.hits(graph).any():
                if self._resembles(sample, first):
                    return sample, Resemblance.NEAR.value
                self.seen.add(word)
                self.renumbered += _changed(first, sample)
                return sample, KEPT
            sample = self._renumbering.again(sample, trial)
        return first, UNIQUE_TUPLE

    def _resembles(self, sample: GeneratedGraph, first: GeneratedGraph) -> bool:
        """Return whether a sample came near a real graph when its bins were changed."""
        if torch.equal(sample.dag.x_NA, first.dag.x_NA):
            return False
        return self.copies.resemblances([sample.dag])[0] is not Resemblance.NEW


def _changed(first: GeneratedGraph, last: GeneratedGraph) -> int:
    """Return how many nodes have other numbers in the second of two samples of equal structure."""
    if last is first:
        return 0
    pairs = zip(first.decoded.numbers.values(), last.decoded.numbers.values(), strict=True)
    changed = [~np.isclose(one, other, equal_nan=True) for one, other in pairs]
    return int(np.any(changed, axis=0).sum()) if changed else 0
