"""The index beside a part."""

import gzip
import io
import json
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from raw_graphs import chain

from layerdag.cli.main import main
from layerdag.codec.recognition import RUN
from layerdag.errors import DataError
from layerdag.graph.attributed_graph import encode_json
from layerdag.graph.formats.graphml import encode_graphml
from layerdag.samples import tar
from layerdag.samples.manifest import PartIndex, SampleRun, is_run, part_name, require_sample_name
from layerdag.samples.reader import part_samples
from layerdag.samples.stored import StoredSample
from layerdag.samples.tar import TarWriter

ENTRY = {
    "name": "sample-00000", "seed": 3, "conditions": {"label": 1.5, "family": "gpt"},
    "nodes": 4, "edges": 3, "truncated": False, "ranks": 2, "repairs": {},
}  # fmt: skip
INDEX = PartIndex(12, "part-000012.tar", 2048, "ab", [ENTRY])


def test_an_index_reads_as_it_was_written(tmp_path):
    INDEX.write(tmp_path)
    assert part_name(12) == "part-000012"
    assert [path.name for path in tmp_path.iterdir()] == ["part-000012.json"]
    assert PartIndex.read(tmp_path, 12) == INDEX
    assert INDEX.seeds == [3]


WRONG_ENTRIES: tuple[dict[str, object], ...] = (
    {"seed": "3"}, {"seed": None}, {"nodes": 1.5}, {"truncated": 0}, {"ranks": "2"},
    {"conditions": []}, {"conditions": {"label": [1]}}, {"name": 4},
)  # fmt: skip


def changed(folder: Path, **change: object) -> None:
    INDEX.write(folder)
    path = folder / "part-000012.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))


@pytest.mark.parametrize(
    "change",
    [
        {"part": 11}, {"file": "../part-000012.tar"}, {"file": "/etc/passwd"}, {"num_bytes": "1"},
        {"sha256": 1}, {"samples": 3}, {"samples": [{}]}, {"format": "x"},
        *({"samples": [{**ENTRY, **entry}]} for entry in WRONG_ENTRIES),
    ],
)  # fmt: skip
def test_an_index_of_something_else_is_refused(tmp_path, change):
    changed(tmp_path, **change)
    with pytest.raises(DataError, match=r"part-000012\.json: is no index of a part"):
        PartIndex.read(tmp_path, 12)


def test_a_missing_index_is_one_sentence(tmp_path):
    with pytest.raises(DataError, match=r"part-000003\.json"):
        PartIndex.read(tmp_path, 3)


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
def test_every_sample_lies_in_one_part(num, sizes):
    wanted = run(num)
    parts = [wanted.samples_of(part) for part in range(wanted.num_parts)]
    assert [len(part) for part in parts] == sizes
    assert [i for part in parts for i in part] == list(range(num))


def test_a_run_reads_as_it_was_written(tmp_path):
    assert not is_run(tmp_path)
    run().write(tmp_path)
    assert is_run(tmp_path)
    assert SampleRun.read(tmp_path) == run()


def test_a_part_counts_when_index_and_file_are_there_with_all_samples(tmp_path):
    wanted = run()
    put(tmp_path, wanted, 0)
    put(tmp_path, wanted, 1)
    (tmp_path / "part-000001.tar").unlink()
    put(tmp_path, wanted, 2, size=2)  # cut off
    assert [index.part for index in wanted.parts_at(tmp_path)] == [0]
    assert wanted.count_parts(tmp_path) == 3
    assert run(num=3).index_of(tmp_path, 0) is None  # another number of samples
    assert wanted.absent(tmp_path, 9) == [
        "part-000001.tar (missing beside its index)",
        "part-000002.tar (2 bytes, 3 by its index)",
    ]
    (tmp_path / "part-000000.json").write_text("{")
    (tmp_path / "part-000002.json").unlink()
    assert wanted.absent(tmp_path, 9)[0] == "part-000000.tar (part-000000.json is damaged)"
    assert wanted.absent(tmp_path, 9)[2] == "part-000002.tar (part-000002.json is missing)"
    assert run(num=13).absent(tmp_path, 9)[3] == "part-000003.tar (not there yet)"
    assert "3 of 3 parts are not read: part-000000.tar" in wanted.unread(tmp_path)


def test_a_whole_run_has_no_unread_part(tmp_path):
    wanted = run()
    for part in range(wanted.num_parts):
        put(tmp_path, wanted, part)
    assert wanted.unread(tmp_path) == ""


@pytest.mark.parametrize(
    "change",
    [
        {"num": 0}, {"num": True}, {"part_size": 1.5}, {"seed": "7"}, {"request": []},
        {"file_format": "zip"}, {"format": "other"}, {"more": 1},
    ],
)  # fmt: skip
def test_a_changed_file_is_one_sentence(tmp_path, change):
    run().write(tmp_path)
    content = json.loads((tmp_path / RUN).read_text())
    (tmp_path / RUN).write_text(json.dumps({**content, **change}))
    with pytest.raises(DataError, match=r"samples\.json: does not describe samples"):
        SampleRun.read(tmp_path)


@pytest.mark.parametrize("text", ["", "[", "[]", "null", "{}", "[" * 100_000])
def test_a_damaged_file_is_one_sentence(tmp_path, text):
    (tmp_path / RUN).write_text(text)
    with pytest.raises(DataError, match=r"samples\.json: ") as caught:
        SampleRun.read(tmp_path)
    assert len(str(caught.value)) < 500


META = json.dumps(
    {"name": "sample-00000", "seed": 5, "conditions": {"label": 1, "on": True, "family": "gpt"}}
).encode()


def sample(files: dict[str, bytes]) -> StoredSample:
    return StoredSample.from_files(META, "part.tar:sample-00000", files)


def test_conditions_are_numbers_and_words():
    assert sample({}).conditions == {"label": 1, "family": "gpt"}
    assert (sample({}).name, sample({}).seed) == ("sample-00000", 5)


@pytest.mark.parametrize(("ending", "encode"), [("json", encode_json), ("graphml", encode_graphml)])
def test_a_flow_graph_reads_from_its_file(ending, encode):
    graph = chain("g", "abca", label=2.0)
    found = sample({f"sample-00000.{ending}": encode(graph)})
    assert not found.is_job
    assert found.graph.categories == {"kind": ["a", "b", "c", "a"]}
    assert found.graph.conditions == {"label": 2.0}


@pytest.mark.parametrize(
    "files",
    [{}, {"sample-00000.json": b"{"}, {"sample-00000.graphml": b"<"}, {"sample-00000.0.et": b"x"},
     {"sample-00000.1.et": b""}],
)  # fmt: skip
def test_damaged_files_name_the_sample(files):
    with pytest.raises(DataError, match=r"part\.tar:sample-00000"):
        _ = sample(files).graph


def test_a_name_is_that_of_a_sample():
    with pytest.raises(DataError, match=r"'\.\./x' is no name of a sample"):
        require_sample_name("../x", "t.parquet")


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
def test_samples_read_as_they_were_written(tmp_path, pack):
    first, second = samples_of(tmp_path / "p.tar", pack(packed(TWO)))
    assert (first.name, first.seed, first.conditions) == ("sample-00000", 1, {"label": 2.0})
    assert dict(first.files) == dict(TWO[0][1])
    assert dict(second.files) == dict(TWO[1][1])
    assert (first.is_job, second.is_job) == (True, False)


def test_the_bytes_depend_on_the_samples_alone_and_every_tar_reads_them():
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
def test_other_names_are_refused(tmp_path, name):
    with pytest.raises(DataError, match=r"p\.tar: holds .*, which is no file of a sample"):
        samples_of(tmp_path / "p.tar", archive_of(tarfile.TarInfo(name)))


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE]
)
def test_links_folders_and_devices_are_refused(tmp_path, kind):
    info = tarfile.TarInfo("sample-00000.0.et")
    info.type, info.linkname = kind, "/etc/passwd"
    with pytest.raises(DataError, match="which is no file of a sample"):
        samples_of(tmp_path / "p.tar", archive_of(info))


@pytest.mark.parametrize("size", [1, 511, 512, 600, 1500, 4000])
def test_a_file_that_is_cut_off_is_one_sentence(tmp_path, size):
    with pytest.raises(DataError, match=r"p\.tar: (is cut off|is no tar)"):
        samples_of(tmp_path / "p.tar", packed(TWO)[:size])


def test_any_damaged_header_is_one_sentence(tmp_path):
    content = bytearray(packed(TWO))
    for at in range(0, 512, 7):
        damaged = bytes(content[:at]) + bytes([content[at] ^ 0x55]) + bytes(content[at + 1 :])
        with pytest.raises(DataError, match=r"p\.tar"):
            samples_of(tmp_path / "p.tar", damaged)


def test_a_claim_of_more_than_may_be_held_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(tar, "MAX_SAMPLE_BYTES", 600)
    with pytest.raises(DataError, match=r"sample-00000\.0\.et claims 700 bytes"):
        samples_of(tmp_path / "p.tar", packed(TWO))
    small = [(entry("sample-00000"), [(f"sample-00000.{i}.et", b"a" * 300) for i in range(2)])]
    with pytest.raises(DataError, match="the files of sample-00000 are too large"):
        samples_of(tmp_path / "p.tar", packed(small))


def test_a_file_that_stands_twice_is_refused(tmp_path):
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
def test_an_entry_that_is_none_is_one_sentence(tmp_path, meta):
    content = archive_of(tarfile.TarInfo("sample-00000.meta.json"), meta)
    with pytest.raises(DataError, match=r"p\.tar:sample-00000: "):
        samples_of(tmp_path / "p.tar", content)


def test_a_sample_without_entry_is_one_sentence(tmp_path):
    content = archive_of(tarfile.TarInfo("sample-00000.0.et"), b"a")
    with pytest.raises(DataError, match=r"has no meta\.json"):
        samples_of(tmp_path / "p.tar", content)


def test_a_run_that_claims_parts_without_end_is_read_by_what_is_there(tmp_path):
    run = SampleRun(num=10**12, part_size=1, file_format="tar", seed=0, request={})
    run.write(tmp_path)
    assert list(SampleRun.read(tmp_path).parts_at(tmp_path)) == []
    assert run.count_parts(tmp_path) == 0
    assert main(["info", str(tmp_path)]) == 0
    assert main(["validate", str(tmp_path)]) == 1
