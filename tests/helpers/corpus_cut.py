"""A corpus of a few small runs, cut from the embedded one."""

import json
import lzma
import tarfile
from collections.abc import Mapping
from pathlib import Path

from layerdag.traces.chakra.corpus import INDEX, RunRecord, read_index, write_shard

EMBEDDED = Path(__file__).resolve().parents[2] / "data"


def cut_corpus(folder: Path, runs_of_split: Mapping[str, int], *, max_nodes: int) -> Path:
    """Write the first runs of each split that have at most so many nodes."""
    small = [r for r in read_index(EMBEDDED) if r.num_nodes <= max_nodes]
    kept = [
        record
        for split, count in runs_of_split.items()
        for record in [r for r in small if r.split == split][:count]
    ]
    assert len(kept) == sum(runs_of_split.values()), "the embedded corpus lacks small runs"
    _write(folder, kept)
    return folder


def cut_programs(folder: Path, families: tuple[str, ...], count: int) -> Path:
    """Write the first training runs of each family with their programs and traces."""
    records = read_index(EMBEDDED)
    kept = []
    for family in families:
        lines = lzma.decompress((EMBEDDED / "programs" / f"{family}.jsonl.xz").read_bytes())
        named = {json.loads(line)["name"]: line for line in lines.splitlines()}
        own = [r for r in records if r.run in named][:count]
        kept += own
        (folder / "programs").mkdir(parents=True, exist_ok=True)
        content = b"".join(named[record.run] + b"\n" for record in own)
        (folder / "programs" / f"{family}.jsonl.xz").write_bytes(lzma.compress(content))
    _write(folder, kept)
    return folder


def _write(folder: Path, kept: list[RunRecord]) -> None:
    """Write the index and the shards of runs."""
    (folder / INDEX).write_text("".join(record.to_json() + "\n" for record in kept))
    for shard in {record.shard for record in kept}:
        records = [record for record in kept if record.shard == shard]
        write_shard(folder / shard, _members(EMBEDDED / shard, records))


def _members(shard: Path, records: list[RunRecord]) -> list[tuple[str, bytes]]:
    """Return what the runs need of a shard, so that no test unpacks the rest."""
    wanted = {rank_class.member for record in records for rank_class in record.classes}
    with tarfile.open(shard) as archive:
        files = [member for member in archive if member.name in wanted]
        return [(member.name, archive.extractfile(member).read()) for member in files]
