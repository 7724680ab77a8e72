"""A corpus of a few small runs, cut from the embedded one, so that everything runs in seconds."""

import tarfile
from pathlib import Path

import pytest

from layerdag.traces.chakra.corpus import INDEX, RunRecord, read_index, write_shard

RUNS_OF_SPLIT = {"train": 24, "val": 6, "test": 10}
MAX_NODES = 60


@pytest.fixture(scope="session")
def small_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    embedded = Path(__file__).resolve().parents[2] / "data"
    small = [r for r in read_index(embedded) if r.num_nodes <= MAX_NODES]
    kept = [
        record
        for split, count in RUNS_OF_SPLIT.items()
        for record in [r for r in small if r.split == split][:count]
    ]
    assert len(kept) == sum(RUNS_OF_SPLIT.values()), "the embedded corpus lacks small runs"
    folder = tmp_path_factory.mktemp("corpus")
    (folder / INDEX).write_text("".join(record.to_json() + "\n" for record in kept))
    for shard in {record.shard for record in kept}:
        records = [record for record in kept if record.shard == shard]
        write_shard(folder / shard, _members(embedded / shard, records))
    return folder


def _members(shard: Path, records: list[RunRecord]) -> list[tuple[str, bytes]]:
    """Return what the runs need of a shard, so that no test unpacks the rest."""
    wanted = {rank_class.member for record in records for rank_class in record.classes}
    with tarfile.open(shard) as archive:
        files = [member for member in archive if member.name in wanted]
        return [(member.name, archive.extractfile(member).read()) for member in files]
