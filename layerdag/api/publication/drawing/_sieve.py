"""Deciding which drawn samples may be published."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from layerdag._runtime import numpy_generator
from layerdag.api.publication.drawing._published import written_graph
from layerdag.api.publication.reading import FoundJobs
from layerdag.codec import AttributedGraph
from layerdag.datasets import GraphDataset
from layerdag.errors import DataError
from layerdag.evaluation.privacy import CopyTest, Resemblance, keys_of_one_run, tuple_keys
from layerdag.evaluation.rules import check_structure
from layerdag.graph import GraphStatistics, graph_hash
from layerdag.sampling import GeneratedGraph

SAME_BIN = 2
"""Trials in which numbers stay in their bins; later ones move one number to a neighboring bin."""
TRIALS = 8
"""Times that the numbers of a node are drawn anew before its sample is rejected."""
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
        redrawn: Nodes whose numbers were drawn anew.
    """

    data: GraphDataset
    copies: CopyTest
    unique: np.ndarray
    statistics: GraphStatistics
    seen: set[str] = field(default_factory=set)
    redrawn: int = 0

    @classmethod
    def of(cls, jobs: FoundJobs, data: GraphDataset) -> "Sieve":
        """Prepare all tests on the real graphs."""
        return cls(
            data,
            CopyTest.of(data.graphs["train"], data.held_out, data.schema.measured_columns),
            keys_of_one_run([keys_of(graph) for graph in jobs.graphs], jobs.runs),
            GraphStatistics.measure(data.graphs["train"], data.schema.sizes()),
        )

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
            hit_N = np.isin(keys_of(graph), self.unique)
            if not hit_N.any():
                if trial > SAME_BIN and self._resembles(sample, first):
                    return sample, Resemblance.NEAR.value
                self.seen.add(word)
                return sample, KEPT
            sample = self._redrawn(sample, trial)
        return sample, UNIQUE_TUPLE

    def _resembles(self, sample: GeneratedGraph, first: GeneratedGraph) -> bool:
        """Return whether a sample came near a real graph when its bins were changed."""
        if torch.equal(sample.dag.x_NA, first.dag.x_NA):
            return False
        return self.copies.resemblances([sample.dag])[0] is not Resemblance.NEW

    def _redrawn(self, sample: GeneratedGraph, trial: int) -> GeneratedGraph:
        """Return a sample whose offending nodes have other numbers, of the same bins if possible.

        A bin may hold a single value that many runs share, so that only another bin helps.
        """
        hit_N = np.isin(keys_of(sample.graph), self.unique)
        rows = np.flatnonzero(hit_N) if hit_N.any() else np.arange(sample.dag.num_nodes)
        self.redrawn += len(rows)
        rng = numpy_generator(sample.seed, "numbers of a single run", trial)
        x_NA, u_NA = sample.dag.x_NA.clone(), sample.dag.u_NA.clone()
        counts = [a.num_codes if hasattr(a, "bins") else 0 for a in sample.schema.attributes]
        columns = [column for column, count in enumerate(counts) if count]
        fresh = rng.random((len(rows), len(columns)), dtype=np.float32)
        at = np.ix_(rows, np.array(columns, dtype=np.int64))
        u_NA[at] = torch.from_numpy(np.minimum(fresh, np.float32(1 - 2**-24)))
        if trial >= SAME_BIN:
            for row in rows.tolist():
                stated = [c for c in columns if x_NA[row, c] > 0 and counts[c] > 2]
                if stated:
                    column = stated[int(rng.integers(len(stated)))]
                    step = 1 if rng.random() < 0.5 else -1
                    code = int(x_NA[row, column]) + step
                    inside = 1 <= code < counts[column]
                    x_NA[row, column] = code if inside else code - 2 * step
        u_NA[x_NA == 0] = 0
        return replace(sample, dag=sample.dag.with_columns(x_NA, u_NA))


def keys_of(graph: AttributedGraph) -> np.ndarray:
    """Return a key of each node's operator and numbers."""
    operators = next(iter(graph.categories.values()))
    return tuple_keys(operators, list(graph.numbers.values()))
