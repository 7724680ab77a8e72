"""The figures of an audit from samples that come some at a time."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Protocol, runtime_checkable

from layerdag._runtime import track
from layerdag.datasets import GraphDataset
from layerdag.evaluation.privacy import (
    MOST_HELD,
    CopyCounts,
    CopyTest,
    LeakRow,
    LeakTally,
    Novelty,
    RandomPart,
    Resemblance,
    copy_counts,
    novelty_of_hashes,
)
from layerdag.evaluation.rules import StructureReport, StructureTally
from layerdag.graph import DAG, GraphStatistics, graph_hashes

AT_ONCE = 256


@runtime_checkable
class Samples(Protocol):
    """Samples in memory or on the disk, of a known number."""

    def __len__(self) -> int:
        """Return the number of samples."""

    def __iter__(self) -> Iterator[DAG]:
        """Yield the samples."""


class AuditTally:
    """Structure, copies and attacks of any number of samples, of which few are held.

    What is kept of each sample beyond those of ``held`` is its hash, its verdicts and two
    distances, some hundred bytes.

    Args:
        data: The real graphs.
        count: Number of samples that will come.
        most: Most samples that are held.
    """

    def __init__(self, data: GraphDataset, count: int, most: int = MOST_HELD) -> None:
        train, held_out = data.graphs["train"], data.held_out
        self._data = data
        self._structure = StructureTally(GraphStatistics.measure(train, data.schema.sizes()))
        self._copies = CopyTest.of(train, held_out, data.schema.measured_columns)
        self._found: list[Resemblance] = []
        self._hashes: list[str] = []
        self._part = RandomPart(count, most)
        self._leaks = _leaks(data, count)

    def read(self, samples: Samples) -> None:
        """Look at all samples, with a bar on a terminal."""
        stream = track(samples, "auditing samples", len(samples))
        while part := list(islice(stream, AT_ONCE)):
            self.add(part)

    def add(self, dags: Sequence[DAG]) -> None:
        """Look at the next samples."""
        self._structure.add(dags)
        self._hashes += graph_hashes(dags)
        self._found += self._copies.resemblances(dags)
        self._part.add(dags)
        if self._leaks is not None:
            self._leaks.add(dags)

    @property
    def structure(self) -> StructureReport:
        """Verdict on the samples by the rules on graphs."""
        return self._structure.report()

    @property
    def novelty(self) -> Novelty:
        """Valid, unique, novel shares."""
        train, held_out = self._data.graphs["train"], self._data.held_out
        return novelty_of_hashes(train, held_out, self._hashes, self.structure.valid_B)

    @property
    def copies(self) -> CopyCounts:
        """Copies of real graphs whatever their durations, and near copies."""
        return copy_counts(self._copies, len(self._data.graphs["train"]), self._found)

    @property
    def held(self) -> tuple[DAG, ...]:
        """The samples that are held, drawn at random."""
        return self._part.held

    def leaks(self) -> tuple[LeakRow, ...]:
        """Return what samples give away, by their number; nothing if nothing is held out."""
        return () if self._leaks is None else self._leaks.rows(self.held)


def _leaks(data: GraphDataset, count: int) -> LeakTally | None:
    """Return the tally of attacks; None without held-out graphs."""
    if not data.held_out or not data.members:
        return None
    return LeakTally(
        data.members,
        data.held_out,
        count,
        measured=data.schema.measured_columns,
        numeric=data.schema.size_columns,
    )
