"""Parts as tar files: their bytes, and readers that trust no file."""

import gzip
import io
import json
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from layerdag.datasets.samples import StoredSample, TarWriter, _tar as tar, part_samples
from layerdag.errors import DataError


def entry(name: str, seed: int = 1) -> dict[str, object]:
    return {"name": name, "seed": seed, "conditions": {"label": 2.0}, "nodes": 1}


def packed(samples: Sequence[tuple[dict[str, object], list[tuple[str, bytes]]]]) -> bytes:
    file = io.BytesIO()
    writer = TarWriter(file)
    for noted, files in samples:
        writer.add(noted, files)
    writer.close()
    return file.getvalue()


TWO = [
    (entry("sample-00000"), [("sample-00000.0.et", b"a" * 700), ("sample-00000.1.et", b"")]),
    (entry("sample-00001", 2), [("sample-00001.graphml", b"<graphml/>")]),
]


def samples_of(path: Path, content: bytes) -> list[StoredSample]:
    path.write_bytes(content)
    return list(part_samples(path))


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_samples_read_as_they_were_written(tmp_path: Path, pack) -> None:
    first, second = samples_of(tmp_path / "p.tar", pack(packed(TWO)))
    assert (first.name, first.seed, first.conditions) == ("sample-00000", 1, {"label": 2.0})
    assert dict(first.files) == dict(TWO[0][1])
    assert dict(second.files) == dict(TWO[1][1])
    assert (first.is_job, second.is_job) == (True, False)


def test_the_bytes_depend_on_the_samples_alone_and_every_tar_reads_them() -> None:
    content = packed(TWO)
    assert content == packed(TWO)
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        members = archive.getmembers()
    assert [m.name for m in members] == [
        "sample-00000.meta.json", "sample-00000.0.et", "sample-00000.1.et",
        "sample-00001.meta.json", "sample-00001.graphml",
    ]  # fmt: skip
    assert {(m.mtime, m.uid, m.gid, m.uname, m.mode, m.isfile()) for m in members} == {
        (0, 0, 0, "", 0o644, True)
    }
    # What WebDataset takes for a sample: all that has one name up to the first dot.
    keys = [m.name.split(".", 1)[0] for m in members]
    assert keys == sorted(keys)


def archive_of(info: tarfile.TarInfo, content: bytes = b"{}") -> bytes:
    file = io.BytesIO()
    info.size = len(content) if info.isfile() else 0
    with tarfile.open(fileobj=file, mode="w") as archive:
        archive.addfile(info, io.BytesIO(content))
    return file.getvalue()


@pytest.mark.parametrize(
    "name",
    [
        "../sample-00000.0.et", "/etc/passwd", "sample-00000.0.et/../../x", "a/sample-00000.0.et",
        "sample-00000.sh", "sample-00000", "sample-0.0.et", "sample-00000.0.et\n", "x" * 200,
    ],
)  # fmt: skip
def test_other_names_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match=r"p\.tar: holds .*, which is no file of a sample"):
        samples_of(tmp_path / "p.tar", archive_of(tarfile.TarInfo(name)))


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE]
)
def test_links_folders_and_devices_are_refused(tmp_path: Path, kind: bytes) -> None:
    info = tarfile.TarInfo("sample-00000.0.et")
    info.type, info.linkname = kind, "/etc/passwd"
    with pytest.raises(DataError, match="which is no file of a sample"):
        samples_of(tmp_path / "p.tar", archive_of(info))


@pytest.mark.parametrize("size", [1, 511, 512, 600, 1500, 4000])
def test_a_file_that_is_cut_off_is_one_sentence(tmp_path: Path, size: int) -> None:
    with pytest.raises(DataError, match=r"p\.tar: (is cut off|is no tar)"):
        samples_of(tmp_path / "p.tar", packed(TWO)[:size])


def test_any_damaged_header_is_one_sentence(tmp_path: Path) -> None:
    content = bytearray(packed(TWO))
    for at in range(0, 512, 7):
        damaged = bytes(content[:at]) + bytes([content[at] ^ 0x55]) + bytes(content[at + 1 :])
        with pytest.raises(DataError, match=r"p\.tar"):
            samples_of(tmp_path / "p.tar", damaged)


def test_a_claim_of_more_than_may_be_held_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tar, "MAX_SAMPLE_BYTES", 600)
    with pytest.raises(DataError, match=r"sample-00000\.0\.et claims 700 bytes"):
        samples_of(tmp_path / "p.tar", packed(TWO))
    small = [(entry("sample-00000"), [(f"sample-00000.{i}.et", b"a" * 300) for i in range(2)])]
    with pytest.raises(DataError, match="the files of sample-00000 are too large"):
        samples_of(tmp_path / "p.tar", packed(small))


def test_a_file_that_stands_twice_is_refused(tmp_path: Path) -> None:
    twice = [(entry("sample-00000"), [("sample-00000.0.et", b"a"), ("sample-00000.0.et", b"b")])]
    with pytest.raises(DataError, match="stands twice"):
        samples_of(tmp_path / "p.tar", packed(twice))


@pytest.mark.parametrize(
    "meta",
    [
        b"", b"[]", b"{", json.dumps(entry("sample-00009")).encode(),
        json.dumps({**entry("sample-00000"), "seed": "x"}).encode(),
        json.dumps({**entry("sample-00000"), "conditions": 3}).encode(),
        json.dumps(entry("../../x")).encode(),
    ],
)  # fmt: skip
def test_an_entry_that_is_none_is_one_sentence(tmp_path: Path, meta: bytes) -> None:
    content = archive_of(tarfile.TarInfo("sample-00000.meta.json"), meta)
    with pytest.raises(DataError, match=r"p\.tar:sample-00000: "):
        samples_of(tmp_path / "p.tar", content)


def test_a_sample_without_entry_is_one_sentence(tmp_path: Path) -> None:
    content = archive_of(tarfile.TarInfo("sample-00000.0.et"), b"a")
    with pytest.raises(DataError, match=r"has no meta\.json"):
        samples_of(tmp_path / "p.tar", content)
