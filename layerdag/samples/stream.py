"""Samples on disk in the codes of a schema, one at a time."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from layerdag.dag.dag import DAG
from layerdag.runtime.notes import Note, NoteCollector
from layerdag.samples.reader import count_samples, iter_samples
from layerdag.schema.schema import GraphSchema


@dataclass(frozen=True)
class SampleStream:
    """Samples of a folder, or of one part, as often as they are gone through; one is held."""

    folder: Path
    schema: GraphSchema
    count: int
    _found: NoteCollector = field(default_factory=lambda: NoteCollector(""), repr=False)
    _noted: set[str] = field(default_factory=set, repr=False)

    @property
    def notes(self) -> tuple[Note, ...]:
        """What was not understood in the samples that were gone through."""
        return self._found.notes

    def __len__(self) -> int:
        """Return the number of samples."""
        return self.count

    def __iter__(self) -> Iterator[DAG]:
        """Yield the samples in order, with the conditions that were noted.

        Raises DataError if a sample is missing or damaged.
        """
        for sample in iter_samples(self.folder):
            graph = self.schema.kind.stored_graph(sample)
            if graph.notes and sample.name not in self._noted:
                self._noted.add(sample.name)
                self._found.extend(graph.notes)
            yield self.schema.encode(graph).with_conditions(sample.conditions)


def stream_samples(folder: str | Path, schema: GraphSchema) -> SampleStream:
    """Return what ``layerdag sample`` wrote as a stream.

    Raises DataError if the manifest is missing or damaged, or there is no whole part.
    """
    return SampleStream(Path(folder), schema, count_samples(folder))


def read_samples(folder: str | Path, schema: GraphSchema) -> tuple[DAG, ...]:
    """Read what ``layerdag sample`` wrote; raises as ``iter_samples``."""
    return tuple(SampleStream(Path(folder), schema, 0))
