"""The file that all parts of a run share."""

import json
from pathlib import Path

import pytest

from layerdag.datasets.samples import RUN, PartIndex, SampleRun, is_run
from layerdag.errors import DataError


def run(num: int = 10, part_size: int = 4) -> SampleRun:
    return SampleRun(num, part_size, "tar", seed=7, request={"model": "fast"})


def put(folder: Path, wanted: SampleRun, part: int, size: int = 3) -> None:
    (folder / wanted.file_of(part)).write_bytes(b"x" * size)
    entries = [
        {"name": f"sample-{i:05d}", "seed": 7 + i, "nodes": 2, "truncated": False, "conditions": {}}
        for i in wanted.samples_of(part)
    ]
    PartIndex(part, wanted.file_of(part), 3, "", entries).write(folder)


@pytest.mark.parametrize(("num", "sizes"), [(10, [4, 4, 2]), (8, [4, 4]), (1, [1])])
def test_every_sample_lies_in_one_part(num: int, sizes: list[int]) -> None:
    wanted = run(num)
    parts = [wanted.samples_of(part) for part in range(wanted.num_parts)]
    assert [len(part) for part in parts] == sizes
    assert [i for part in parts for i in part] == list(range(num))


def test_it_reads_as_it_was_written(tmp_path: Path) -> None:
    assert not is_run(tmp_path)
    run().write(tmp_path)
    assert is_run(tmp_path)
    assert SampleRun.read(tmp_path) == run()


def test_a_part_counts_when_index_and_file_are_there_with_all_samples(tmp_path: Path) -> None:
    wanted = run()
    put(tmp_path, wanted, 0)
    put(tmp_path, wanted, 1)
    (tmp_path / "part-000001.tar").unlink()
    put(tmp_path, wanted, 2, size=2)  # cut off
    assert [index.part for index in wanted.parts_at(tmp_path)] == [0]
    assert wanted.count_parts(tmp_path) == 3
    assert run(num=3).index_of(tmp_path, 0) is None  # another number of samples


@pytest.mark.parametrize(
    "change",
    [
        {"num": 0}, {"num": True}, {"part_size": 1.5}, {"seed": "7"}, {"request": []},
        {"file_format": "zip"}, {"format": "other"}, {"more": 1},
    ],
)  # fmt: skip
def test_a_changed_file_is_one_sentence(tmp_path: Path, change: dict[str, object]) -> None:
    run().write(tmp_path)
    content = json.loads((tmp_path / RUN).read_text())
    (tmp_path / RUN).write_text(json.dumps({**content, **change}))
    with pytest.raises(DataError, match=r"samples\.json: does not describe samples"):
        SampleRun.read(tmp_path)


@pytest.mark.parametrize("text", ["", "[", "[]", "null", "{}", "[" * 100_000])
def test_a_damaged_file_is_one_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / RUN).write_text(text)
    with pytest.raises(DataError, match=r"samples\.json: ") as caught:
        SampleRun.read(tmp_path)
    assert len(str(caught.value)) < 500
