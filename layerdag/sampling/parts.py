"""Write many samples as tar or Parquet parts, in shards."""

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from layerdag.codec.recognition import RUN
from layerdag.errors import UsageError
from layerdag.graph.attributed_graph import AttributedGraph
from layerdag.runtime.files import atomic_path
from layerdag.runtime.reading import NODE_BYTES, require_few_bytes
from layerdag.samples.manifest import PART_FORMATS, PartIndex, SampleRun, sample_name
from layerdag.samples.table import TableWriter, require_pyarrow, sample_table
from layerdag.samples.tar import TarWriter
from layerdag.samples.writer import open_run
from layerdag.sampling.failed_samples import FailedSamples
from layerdag.sampling.folder import request_metadata, run_metadata
from layerdag.sampling.generated import EagerEncoder, GeneratedGraph
from layerdag.sampling.generation import generate_batched
from layerdag.sampling.output_size import (
    OutputSize,
    estimated_volume,
    require_allowed,
    resolved_format,
)
from layerdag.sampling.settings import GenerationSettings
from layerdag.schema.schema import GraphSchema
from layerdag.training.checkpoint import (
    SAMPLED,
    LoadedCheckpoint,
    checkpoint_path,
    checkpoint_schema,
    load_checkpoint,
)


class SampleBatches:
    """Maps batches of numbers to the samples with these numbers, a row each.

    For ``ray.data.range(n).map_batches(SampleBatches, ...)``: every worker loads the checkpoint (a
    folder; None is the one inside the package) once. Row i is sampled with ``settings.seed + i``
    alone, so that neither the size of batches nor the number of workers changes it. The columns are
    those of ``format=parquet``. Raises UsageError if pyarrow is not installed and CheckpointError
    if the checkpoint cannot be read.
    """

    def __init__(
        self,
        checkpoint: str | Path | None = None,
        settings: GenerationSettings | None = None,
        threads: int = 1,
    ) -> None:
        require_pyarrow()
        torch.set_num_threads(threads)
        loaded = load_checkpoint(checkpoint_path(str(checkpoint or SAMPLED)))
        self._model, self._schema = loaded.model, checkpoint_schema(loaded)
        self._settings = (settings or GenerationSettings()).resolved(self._model, self._schema)

    def __call__(self, batch: Mapping[str, np.ndarray]) -> Any:
        """Return a table (of pyarrow) with a row for each number in the column "id", in order.

        Raises UsageError if there is no such column, or a number is below 0.
        """
        if "id" not in batch:
            found = ", ".join(batch) or "none"
            raise UsageError(f"A batch needs the column 'id' of numbers from 0 on; found {found}.")
        numbers = [int(number) for number in batch["id"]]
        if min(numbers, default=0) < 0:
            raise UsageError(f"Samples are numbered from 0 on, found {min(numbers)}.")
        made = {
            number: sample.table_row(self._settings.ranks, self._settings.limits)
            for run in _runs(sorted(set(numbers)))
            for number, sample in zip(run, self._samples(run), strict=True)
        }
        return sample_table([made[number] for number in numbers], self._schema)

    def _samples(self, run: range) -> Iterator[GeneratedGraph]:
        wanted = replace(self._settings, seed=self._settings.seed + run.start, num=len(run))
        for number, sample in zip(
            run, generate_batched(self._model, self._schema, wanted), strict=True
        ):
            yield replace(sample, name=sample_name(number))


def _runs(numbers: Sequence[int]) -> Iterator[range]:
    start = 0
    for end in range(1, len(numbers) + 1):
        if end == len(numbers) or numbers[end] != numbers[end - 1] + 1:
            yield range(numbers[start], numbers[end - 1] + 1)
            start = end


AUTO = "auto"
_WORD = re.compile(r"(\d{1,9})/(\d{1,9})")


@dataclass(frozen=True)
class Shard:
    """One share of the parts of a run: those whose number is ``index`` modulo ``count``.

    Raises UsageError if the index is none of the count.
    """

    index: int = 0
    count: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.count:
            raise UsageError(
                f"shard={self.index}/{self.count}: shares of {self.count} are numbered from 0 to "
                f"{self.count - 1}."
            )

    @classmethod
    def from_text(cls, word: "str | Shard | None") -> "Shard":
        """Return the share that a word names: "0/4", or "auto" under torchrun; None is everything.

        Raises UsageError if it is no such word, or "auto" and RANK or WORLD_SIZE is not set.
        """
        if word is None or isinstance(word, Shard):
            return word or cls()
        if word == AUTO:
            word = f"{os.environ.get('RANK')}/{os.environ.get('WORLD_SIZE')}"
            if not _WORD.fullmatch(word):
                raise UsageError(
                    "shard=auto takes RANK and WORLD_SIZE, which torchrun sets, and they are not "
                    "there; start it with torchrun, or name the share: shard=0/4."
                )
        found = _WORD.fullmatch(word)
        if not found:
            raise UsageError(
                f"shard={word}: write i/n, such as 0/4 for the first of four, or auto."
            )
        return cls(int(found[1]), int(found[2]))

    def parts(self, num_parts: int) -> range:
        """Return the numbers of the parts of this share."""
        return range(self.index, num_parts, self.count)


PART_SIZE = 1000
"""Samples of a part: what a killed process loses at most."""


@dataclass(frozen=True)
class PartSettings:
    """How samples are cut into files.

    Attributes:
        file_format: One of ``PART_FORMATS``.
        members: Files of a sample inside a tar: "et", "graphml", "json"; "auto" is "et" for jobs
            and "graphml" for other graphs.
        part_size: Samples of a part.
        shard: Which parts to write: "i/n" for those whose number is i modulo n, "auto" for the
            share of this process under torchrun, None for all.

    Raises:
        UsageError: If a value is out of bounds, or pyarrow is needed and not installed.
    """

    file_format: str = "tar"
    members: str = "auto"
    part_size: int = PART_SIZE
    shard: str | Shard | None = None

    def __post_init__(self) -> None:
        if self.file_format not in PART_FORMATS:
            raise UsageError(
                f"Parts are {' or '.join(PART_FORMATS)} files, found '{self.file_format}'."
            )
        if self.file_format == "parquet":
            require_pyarrow()
            if self.members != "auto":
                raise UsageError(f"members={self.members} is of format=tar; leave it out.")
        if self.part_size < 1:
            raise UsageError(f"'part_size' must be at least 1, found {self.part_size}.")
        object.__setattr__(self, "shard", Shard.from_text(self.shard))

    @property
    def assigned(self) -> Shard:
        """Which parts to write."""
        return Shard.from_text(self.shard)


def volume_of_parts(
    checkpoint: LoadedCheckpoint, settings: GenerationSettings, parts: PartSettings
) -> OutputSize:
    """Return about what all shards of a run write together. Raises as ``volume_of``."""
    members = _members(checkpoint, settings, parts)
    volume = estimated_volume(checkpoint, settings, members)
    files = 2 * -(-settings.num // parts.part_size) + 1
    volume = replace(volume, files=files)
    if parts.file_format == "parquet":
        # A row is written once for all ranks of a job, so that this is rather too much.
        size = volume.bytes * NODE_BYTES["parquet"] // NODE_BYTES[members]
        volume = replace(volume, bytes=size)
    require_allowed(volume, settings)
    return volume


def write_parts(
    checkpoint: LoadedCheckpoint,
    settings: GenerationSettings,
    out: str | Path,
    parts: PartSettings | None = None,
    *,
    overwrite: bool = False,
    on_each: Callable[[], object] = lambda: None,
) -> Path:
    """Sample and write a share of the parts that are missing in ``out``; return the run's file.

    A part is put in its place when it is whole, so that a stopped or killed process loses the part
    that it was filling; the same call goes on with what is missing. The files do not depend on the
    number of shares, nor the memory needed on the number of samples. ``out`` is the same for all
    processes, or one for each that are put together later. A larger ``settings.num`` than before
    makes the run longer. ``on_each`` is called after each sample of the share, those that were
    there included.

    Raises:
        UsageError: If the format does not fit the checkpoint, the model cannot do what is asked
            for, something else stands at ``out``, another process writes the same share, or more is
            to be written than the limits allow.
        CheckpointError: If schema and model of the checkpoint do not belong together.
        DataError: If no seed of a part gives a program with what is asked for. Those that give none
            beside others are in the index of their part.
        KeyboardInterrupt: As it came, with a sentence on what is kept.
    """
    parts, out = parts or PartSettings(), Path(out)
    volume_of_parts(checkpoint, settings, parts)
    writer = _PartsWriter.from_checkpoint(checkpoint, settings, out, parts)
    open_run(out, writer.run, overwrite=overwrite)
    wanted = parts.assigned.parts(writer.run.num_parts)
    done = size = 0
    try:
        for part in wanted:
            index = writer.run.index_of(out, part)
            if index is None:
                index = writer.write(part, on_each)
            else:
                for _ in index.seeds:
                    on_each()
            done, size = done + 1, size + index.num_bytes
            require_few_bytes(size, settings.limits, f"The parts up to {index.file}")
    except KeyboardInterrupt as stop:
        raise type(stop)(
            f"{done} of {len(wanted)} parts are finished and kept in {out}; the same command goes "
            "on from there."
        ) from None
    return out / RUN


def _members(
    checkpoint: LoadedCheckpoint, settings: GenerationSettings, parts: PartSettings
) -> str:
    """Return the format of the files inside a tar; of a table that of about the same contents."""
    kind = checkpoint_schema(checkpoint).kind
    if parts.file_format == "parquet":
        return kind.row_format
    ranks = settings.ranks
    if parts.members in PART_FORMATS:
        raise UsageError(f"members={parts.members}: a tar holds et, graphml or json files.")
    return resolved_format(parts.members, kind, ranks, settings.targets)


@dataclass(frozen=True, eq=False)
class _PartsWriter:
    """Writes the parts of one run; ``members`` is the format of the files in a tar."""

    checkpoint: LoadedCheckpoint
    schema: GraphSchema
    settings: GenerationSettings
    out: Path
    members: str
    run: SampleRun

    @classmethod
    def from_checkpoint(
        cls,
        checkpoint: LoadedCheckpoint,
        settings: GenerationSettings,
        out: Path,
        parts: PartSettings,
    ) -> "_PartsWriter":
        schema = checkpoint_schema(checkpoint)
        settings = settings.resolved(checkpoint.model, schema)
        members = _members(checkpoint, settings, parts)
        request = {
            **run_metadata(checkpoint, settings, parts.file_format),
            **request_metadata(checkpoint, settings),
            "members": members,
        }
        request.pop("seed")
        run = SampleRun(
            settings.num,
            parts.part_size,
            parts.file_format,
            settings.seed,
            json.loads(json.dumps(request)),
        )
        return cls(checkpoint, schema, settings, out, members, run)

    def write(self, part: int, on_each: Callable[[], object]) -> PartIndex:
        """Sample and write one part, and then its index."""
        file = self.run.file_of(part)
        with atomic_path(self.out / file) as draft:
            entries, missing = self._fill(draft, self._samples(part), on_each)
            with draft.open("rb") as written:
                sha256 = hashlib.file_digest(written, "sha256").hexdigest()
            index = PartIndex(part, file, draft.stat().st_size, sha256, entries, missing)
        index.write(self.out)
        return index

    def _samples(self, part: int) -> Iterator[GeneratedGraph]:
        numbers = self.run.samples_of(part)
        wanted = replace(self.settings, seed=self.settings.seed + numbers.start, num=len(numbers))
        ahead = None
        if self.run.file_format == "tar":
            ranks, limits, targets = wanted.ranks, wanted.limits, wanted.targets
            ahead = EagerEncoder(self.members, ranks, limits, targets, numbers.start)
        samples = generate_batched(self.checkpoint.model, self.schema, wanted, ahead)
        for i, sample in zip(numbers, samples, strict=True):
            yield replace(sample, name=sample_name(i))

    def _fill(
        self, draft: Path, samples: Iterator[GeneratedGraph], on_each: Callable[[], object]
    ) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
        """Write the file of a part; return the entry of each sample, and of each missing one."""
        entries: list[Mapping[str, Any]] = []
        missing = FailedSamples()
        with contextlib.ExitStack() as stack:
            writer: TableWriter | TarWriter
            if self.run.file_format == "parquet":
                make: Callable[[GeneratedGraph], tuple[Mapping[str, Any], Any]] = self._row
                writer = TableWriter(draft, self.schema)
            else:
                make = self._files
                writer = TarWriter(stack.enter_context(draft.open("wb")))
            for sample in samples:
                made = missing.made(sample, make)
                if made is not None:
                    writer.add(*made)
                    entries.append(made[0])
                on_each()
            writer.close()
        missing.require_some()
        return entries, missing.noted

    def _row(self, sample: GeneratedGraph) -> tuple[Mapping[str, Any], AttributedGraph]:
        return sample.table_row(self.settings.ranks, self.settings.limits)

    def _files(
        self, sample: GeneratedGraph
    ) -> tuple[Mapping[str, Any], Sequence[tuple[str, bytes]]]:
        settings = self.settings
        made = sample.made_files(self.members, settings.ranks, settings.limits, settings.targets)
        extra, files = made.encoded()
        return sample.entry(extra), files
