"""A corpus of a few small runs, cut from the embedded one, so that everything runs in seconds."""

import shutil
from pathlib import Path

import pytest

from layerdag.traces import INDEX, read_index

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
    (folder / "shards").mkdir()
    for shard in {record.shard for record in kept}:
        # A copy, because a corpus with links that lead out of its folder is refused.
        shutil.copyfile(embedded / shard, folder / shard)
    return folder
