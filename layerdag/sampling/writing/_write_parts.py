"""Any number of samples as numbered parts, by one process or by many."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from layerdag._runtime import NODE_BYTES, atomic_path, require_few_bytes
from layerdag.datasets.samples import (
    PART_FORMATS,
    RUN,
    PartIndex,
    SampleRun,
    TableWriter,
    TarWriter,
    require_pyarrow,
)
from layerdag.datasets.schema import GraphSchema
from layerdag.errors import UsageError
from layerdag.sampling import (
    GeneratedGraph,
    GenerationSettings,
    checkpoint_schema,
    generate_together,
    sample_name,
)
from layerdag.sampling.files import SampleFiles, Volume
from layerdag.sampling.writing._request import (
    estimated_volume,
    request_facts,
    require_allowed,
    run_facts,
    sample_entry,
    settled_format,
    table_row,
)
from layerdag.sampling.writing._run_folder import open_run
from layerdag.sampling.writing._shard import Shard
from layerdag.training import LoadedCheckpoint

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
        object.__setattr__(self, "shard", Shard.of(self.shard))

    @property
    def assigned(self) -> Shard:
        """Which parts to write."""
        return Shard.of(self.shard)


def volume_of_parts(
    checkpoint: LoadedCheckpoint, settings: GenerationSettings, parts: PartSettings
) -> Volume:
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
    number of shares. The memory needed does not depend on the number of samples.

    Args:
        checkpoint: What to sample from.
        settings: What to sample. A larger ``num`` than before makes the run longer.
        out: Folder, the same for all processes, or one for each that are put together later.
        parts: Format, size and share; by default tar files of ``PART_SIZE`` samples, all of them.
        overwrite: Whether the samples of another run in ``out`` may be discarded.
        on_each: Called after each sample of the share, those that were there included.

    Raises:
        UsageError: If the format does not fit the checkpoint, the model cannot do what is asked
            for, something else stands at ``out``, another process writes the same share, or more is
            to be written than the limits allow.
        CheckpointError: If schema and model of the checkpoint do not belong together.
        KeyboardInterrupt: As it came, with a sentence on what is kept.
    """
    parts, out = parts or PartSettings(), Path(out)
    volume_of_parts(checkpoint, settings, parts)
    writer = _PartsWriter.of(checkpoint, settings, out, parts)
    open_run(out, writer.run, overwrite=overwrite)
    wanted = parts.assigned.parts(writer.run.num_parts)
    done = size = 0
    try:
        for part in wanted:
            index = writer.run.index_of(out, part)
            if index is None:
                index = writer.write(part, on_each)
            else:
                for _ in index.samples:
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
        return "et" if kind == "trace" else "json"
    ranks = settings.ranks
    if parts.members in PART_FORMATS:
        raise UsageError(f"members={parts.members}: a tar holds et, graphml or json files.")
    return settled_format(parts.members, kind, ranks)


@dataclass(frozen=True, eq=False)
class _PartsWriter:
    """Writes parts of one run.

    Attributes:
        checkpoint: What to sample from.
        schema: Of the checkpoint.
        settings: What to sample, with what was left to the model.
        out: The folder.
        members: Format of the files in a tar.
        run: What all parts have in common.
    """

    checkpoint: LoadedCheckpoint
    schema: GraphSchema
    settings: GenerationSettings
    out: Path
    members: str
    run: SampleRun

    @classmethod
    def of(
        cls,
        checkpoint: LoadedCheckpoint,
        settings: GenerationSettings,
        out: Path,
        parts: PartSettings,
    ) -> "_PartsWriter":
        """Return the writer of a run."""
        schema = checkpoint_schema(checkpoint)
        settings = settings.settled(checkpoint.model, schema)
        members = _members(checkpoint, settings, parts)
        request = {
            **run_facts(checkpoint, settings, parts.file_format),
            **request_facts(checkpoint, settings),
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
            entries = self._fill(draft, self._samples(part), on_each)
            with draft.open("rb") as written:
                sha256 = hashlib.file_digest(written, "sha256").hexdigest()
            index = PartIndex(part, file, draft.stat().st_size, sha256, entries)
        index.write(self.out)
        return index

    def _samples(self, part: int) -> Iterator[GeneratedGraph]:
        """Yield the samples of a part."""
        numbers = self.run.samples_of(part)
        wanted = replace(self.settings, seed=self.settings.seed + numbers.start, num=len(numbers))
        samples = generate_together(self.checkpoint.model, self.schema, wanted)
        for i, sample in zip(numbers, samples, strict=True):
            yield replace(sample, name=sample_name(i))

    def _fill(
        self, draft: Path, samples: Iterator[GeneratedGraph], on_each: Callable[[], object]
    ) -> list[Mapping[str, Any]]:
        """Write the file of a part and return the entry of each sample."""
        add = self._add_to_table if self.run.file_format == "parquet" else self._add_to_tar
        entries = []
        for entry in add(draft, samples):
            entries.append(entry)
            on_each()
        return entries

    def _add_to_tar(
        self, draft: Path, samples: Iterator[GeneratedGraph]
    ) -> Iterator[Mapping[str, Any]]:
        """Write samples as files in a tar; yield the entry of each when it is written."""
        ranks, limits = self.settings.ranks, self.settings.limits
        with draft.open("wb") as file:
            writer = TarWriter(file)
            for sample in samples:
                extra, files = SampleFiles.of(sample.graph, self.members, ranks, limits).encoded()
                entry = sample_entry(sample, extra)
                writer.add(entry, files)
                yield entry
            writer.close()

    def _add_to_table(
        self, draft: Path, samples: Iterator[GeneratedGraph]
    ) -> Iterator[Mapping[str, Any]]:
        """Write samples as rows of a table; yield the entry of each."""
        writer = TableWriter(draft, self.schema)
        for sample in samples:
            entry, graph = table_row(sample, self.settings)
            writer.add(entry, graph)
            yield entry
        writer.close()
