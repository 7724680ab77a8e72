"""The index beside a part."""

import json
from pathlib import Path

import pytest

from layerdag.datasets.samples import PartIndex, part_name
from layerdag.errors import DataError

ENTRY = {
    "name": "sample-00000", "seed": 3, "conditions": {"label": 1.5, "family": "gpt"},
    "nodes": 4, "edges": 3, "truncated": False, "ranks": 2, "repairs": {},
}  # fmt: skip
INDEX = PartIndex(12, "part-000012.tar", 2048, "ab", [ENTRY])


def test_it_reads_as_it_was_written(tmp_path: Path) -> None:
    INDEX.write(tmp_path)
    assert part_name(12) == "part-000012"
    assert [path.name for path in tmp_path.iterdir()] == ["part-000012.json"]
    assert PartIndex.read(tmp_path, 12) == INDEX
    assert INDEX.seeds == [3]


def changed(folder: Path, **change: object) -> None:
    INDEX.write(folder)
    path = folder / "part-000012.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))


@pytest.mark.parametrize(
    "change",
    [
        {"part": 11}, {"file": "../part-000012.tar"}, {"file": "/etc/passwd"}, {"num_bytes": "1"},
        {"sha256": 1}, {"samples": 3}, {"samples": [{}]}, {"format": "x"},
    ],
)  # fmt: skip
def test_an_index_of_something_else_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    changed(tmp_path, **change)
    with pytest.raises(DataError, match=r"part-000012\.json: is no index of a part"):
        PartIndex.read(tmp_path, 12)


@pytest.mark.parametrize(
    "change",
    [
        {"seed": "3"}, {"seed": None}, {"nodes": 1.5}, {"truncated": 0}, {"ranks": "2"},
        {"conditions": []}, {"conditions": {"label": [1]}}, {"name": 4},
    ],
)  # fmt: skip
def test_an_entry_of_another_type_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    changed(tmp_path, samples=[{**ENTRY, **change}])
    with pytest.raises(DataError, match=r"part-000012\.json: is no index of a part"):
        PartIndex.read(tmp_path, 12)


def test_a_missing_index_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"part-000003\.json"):
        PartIndex.read(tmp_path, 3)
