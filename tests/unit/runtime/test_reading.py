"""What may be written: estimates, limits and how they are told."""

import gzip
import lzma
import os
import resource
import zipfile
from pathlib import Path

import pytest

from layerdag.errors import CheckpointError, DataError, TraceError, UsageError
from layerdag.runtime import reading
from layerdag.runtime.reading import (
    NODE_BYTES,
    Limits,
    available_memory,
    format_size,
    open_unpacked,
    path_within,
    read_parsed,
    read_whole,
    require_few_bytes,
    require_few_ranks,
    written_bytes,
)


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (0, "0.0 kB"),
        (1500, "1.5 kB"),
        (999_000, "999.0 kB"),
        (10**6, "1.0 MB"),
        (2_350_000, "2.4 MB"),
        (16 * 10**9, "16.0 GB"),
        (5 * 10**12, "5.0 TB"),
        (1_234 * 10**12, "1,234.0 TB"),
    ],
)
def test_sizes_are_told_in_the_unit_that_people_use(size, expected):
    assert format_size(size) == expected


@pytest.mark.parametrize("file_format", sorted(NODE_BYTES))
def test_the_estimate_grows_with_the_nodes(file_format):
    assert written_bytes(0, file_format) == 0
    assert written_bytes(10, file_format) == 10 * NODE_BYTES[file_format] > 100


@pytest.mark.parametrize("name", ["max_ranks", "max_bytes"])
@pytest.mark.parametrize("value", [0, -1])
def test_a_limit_is_at_least_one(name, value):
    with pytest.raises(UsageError, match=f"'{name}' must be at least 1, found {value}"):
        Limits(**{name: value})


def test_ranks_up_to_the_limit_pass_and_more_are_refused_with_the_setting():
    limits = Limits(max_ranks=4096)
    require_few_ranks(4096, limits, "job 7")
    with pytest.raises(UsageError, match=r"^job 7: 4,097 ranks are more than max_ranks, 4,096;"):
        require_few_ranks(4097, limits, "job 7")


def test_bytes_up_to_the_limit_pass_and_more_are_refused_with_the_setting():
    limits = Limits(max_bytes=2 * 10**6)
    require_few_bytes(2 * 10**6, limits, "samples")
    with pytest.raises(
        UsageError, match=r"^samples: about 3\.5 GB are more than max_bytes, 2\.0 MB; ask for less"
    ):
        require_few_bytes(3_500_000_000, limits, "samples")


@pytest.fixture
def told(monkeypatch):
    """Let the three sources say what a test wants; None is "does not say"."""

    def tell(free: int | None, group: int | None, process: list[int]) -> int:
        monkeypatch.setattr(reading, "_free", lambda: free)
        monkeypatch.setattr(reading, "_group_left", lambda: group)
        monkeypatch.setattr(reading, "_process_left", lambda: process)
        return available_memory()

    return tell


@pytest.mark.parametrize(
    ("free", "group", "process", "expected"),
    [
        (10, 20, [30], 10),
        (30, 10, [20], 10),
        (30, 20, [10, 15], 10),
        (None, None, [7], 7),
        (5, -3, [], 0),  # a container above its limit leaves nothing
        (None, None, [], 4 << 30),
    ],
)
def test_the_least_that_is_known_counts(told, free, group, process, expected):
    assert told(free, group, process) == expected


def test_tables_of_the_kernel_are_read_in_bytes(tmp_path):
    table = tmp_path / "meminfo"
    table.write_text("MemTotal:  16 kB\nMemAvailable:   3 kB\nHugePages_Total:  7\nodd line here\n")
    assert reading._table(table) == {"MemTotal": 16 << 10, "MemAvailable": 3 << 10}
    table.write_text("MemTotal: many kB\n")
    assert reading._table(table) == {}
    assert reading._table(tmp_path / "none") == {}


def test_a_limit_of_max_is_none(tmp_path):
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("4096\n")
    assert reading._number(tmp_path / "memory.max") is None
    assert reading._number(tmp_path / "memory.current") == 4096


def test_a_machine_without_proc_tells_its_pages(monkeypatch):
    monkeypatch.setattr(reading, "_table", lambda path: {})
    pages = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 1000}
    monkeypatch.setattr(reading.os, "sysconf", pages.__getitem__)
    assert reading._free() == 4_096_000

    def unknown(name: str) -> int:
        raise ValueError(name)

    monkeypatch.setattr(reading.os, "sysconf", unknown)
    assert reading._free() is None


def test_the_limits_of_the_process_count_less_what_it_has(monkeypatch):
    limits = {resource.RLIMIT_AS: 10_000, resource.RLIMIT_DATA: resource.RLIM_INFINITY}
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (limits[kind], -1))
    monkeypatch.setattr(reading, "_table", lambda path: {"VmSize": 3_000, "VmData": 1_000})
    assert reading._process_left() == [7_000]
    limits[resource.RLIMIT_DATA] = 1_500
    assert reading._process_left() == [7_000, 500]


@pytest.mark.parametrize(
    ("most", "used"),
    [
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ],
)
def test_both_versions_of_control_groups_are_read(monkeypatch, most, used):
    root = Path("/sys/fs/cgroup")
    known = {root / most: 1000, root / used: 300}
    monkeypatch.setattr(reading, "_number", known.get)
    assert reading._group_left() == 700
    monkeypatch.setattr(reading, "_number", {root / most: 1000}.get)
    assert reading._group_left() is None


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress])
def test_packed_and_plain_give_the_same(tmp_path, pack):
    path = tmp_path / "x"
    path.write_bytes(pack(b"abc" * 1000))
    assert read_whole(path) == b"abc" * 1000


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
@pytest.mark.parametrize("padding", [b"", bytes(70_000)])
def test_several_members_are_joined(tmp_path, pack, padding):
    path = tmp_path / "x"
    path.write_bytes(pack(b"ab") + padding + pack(b"") + pack(b"c") + padding)
    assert read_whole(path) == b"abc"


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
@pytest.mark.parametrize("missing", [1, 4, 12])
def test_cut_off_archive_is_refused(tmp_path, pack, missing):
    path = tmp_path / "x"
    path.write_bytes(pack(os.urandom(300_000))[:-missing])
    with pytest.raises(DataError, match=r"cut off|damaged"):
        read_whole(path)


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress])
def test_pieces_of_any_size_make_the_whole(tmp_path, pack):
    content = os.urandom(200_000) + bytes(200_000)
    path = tmp_path / "x"
    path.write_bytes(pack(content))
    found = b""
    with open_unpacked(path) as stream:
        while part := stream.read(70_001):
            assert len(part) <= 70_001
            found += part
    assert found == content


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress])
def test_what_holds_more_than_the_limit_is_refused(tmp_path, pack):
    path = tmp_path / "x"
    path.write_bytes(pack(bytes(5_000_000)))
    with pytest.raises(DataError, match="holds more than 1 MiB"):
        read_whole(path, limit=1 << 20)
    assert len(read_whole(path, limit=5_000_000)) == 5_000_000


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
def test_an_archive_of_far_more_than_its_size_is_refused(tmp_path, pack, monkeypatch):
    monkeypatch.setattr(reading, "FREE_BYTES", 1 << 20)
    path = tmp_path / "x"
    path.write_bytes(pack(bytes(2_000_000)))
    with pytest.raises(CheckpointError, match="unpacks to more than 1 MiB"):
        read_whole(path, error=CheckpointError)
    path.write_bytes(pack(os.urandom(2_000_000)))
    assert len(read_whole(path)) == 2_000_000


def test_no_file_takes_more_than_half_of_the_memory_that_is_left(tmp_path, monkeypatch):
    path = tmp_path / "x"
    path.write_bytes(bytes(1001))
    monkeypatch.setattr(reading, "available_memory", lambda: pytest.fail("asked for a small file"))
    assert len(read_whole(path)) == 1001
    monkeypatch.setattr(reading, "_UNASKED", 1000)
    monkeypatch.setattr(reading, "available_memory", lambda: 2002)
    assert len(read_whole(path)) == 1001
    monkeypatch.setattr(reading, "available_memory", lambda: 2000)
    with pytest.raises(DataError, match="holds more than"):
        read_whole(path)


def test_what_is_parsed_leaves_room_for_its_values(tmp_path, monkeypatch):
    path = tmp_path / "x"
    path.write_bytes(bytes(100))
    monkeypatch.setattr(reading, "available_memory", lambda: 99 * reading.PARSED_GROWTH)
    with pytest.raises(DataError, match="holds more than"):
        read_parsed(path)


def test_a_dictionary_that_needs_gigabytes_is_refused(tmp_path):
    packed = bytearray(lzma.compress(b"abc"))
    # The property byte of LZMA2's dictionary, 40 is 4 GiB - 1; the header's checksum follows.
    assert packed[15:17] == b"\x01\x16"
    packed[16] = 40
    header = bytes(packed[12:20])
    packed[20:24] = _crc32(header)
    path = tmp_path / "x"
    path.write_bytes(packed)
    with pytest.raises(DataError, match="damaged"):
        read_whole(path)


def _crc32(data: bytes) -> bytes:
    import zlib

    return zlib.crc32(data).to_bytes(4, "little")


def test_flipped_bit_is_refused(tmp_path):
    packed = bytearray(gzip.compress(bytes(range(256))))
    packed[40] ^= 1
    path = tmp_path / "x"
    path.write_bytes(packed)
    with pytest.raises(DataError, match="damaged"):
        read_whole(path)


@pytest.mark.parametrize("name", ["/etc/passwd", "../x", "a/../../x", ".", "a/..", "link", "a\0b"])
def test_a_name_that_leaves_its_folder_is_refused(tmp_path, name):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path)
    with pytest.raises(DataError, match=r"leads out of the folder|is no path"):
        path_within(folder, name)


def test_a_name_below_its_folder_is_a_path(tmp_path):
    assert path_within(tmp_path, "a/b") == tmp_path / "a" / "b"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("missing", "there is no such file; check the path"),
        (".", "this is a folder; name a file in it"),
        ("n" * 300, r"cannot be read \(File name too long\)"),
    ],
)
def test_what_cannot_be_opened_is_one_sentence(tmp_path, name, says):
    with pytest.raises(DataError, match=says):
        read_whole(tmp_path / name)


def test_an_empty_file_is_refused(tmp_path):
    (tmp_path / "empty").touch()
    with pytest.raises(DataError, match="the file is empty; copy or collect it again"):
        read_whole(tmp_path / "empty")


def test_the_error_that_is_asked_for_is_raised(tmp_path):
    with pytest.raises(TraceError, match="no such file"):
        read_whole(tmp_path / "missing", error=TraceError)


def test_text_that_is_parsed_as_a_whole_must_leave_room(monkeypatch):
    monkeypatch.setattr(reading, "available_memory", lambda: 32 * 100)
    reading.require_parsable(b"x" * 100, "a.json")
    with pytest.raises(DataError, match=r"a\.json: holds more than 0 MiB, the most that is read"):
        reading.require_parsable(b"x" * 101, "a.json")


def test_reading_ends_before_the_memory_does(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "available_memory", lambda: reading.SPARE_BYTES)
    reading.require_memory("a.et")
    monkeypatch.setattr(reading, "available_memory", lambda: reading.SPARE_BYTES - 1)
    with pytest.raises(DataError, match=r"a\.et: does not fit into memory, of which 256 MiB must"):
        reading.require_memory("a.et")
    monkeypatch.setattr(reading, "_LOOK", 1000)
    path = tmp_path / "long"
    path.write_bytes(b"x" * 1500)
    with reading.open_unpacked(path) as stream:
        assert len(stream.read(900)) == 900
        with pytest.raises(DataError, match="does not fit into memory"):
            stream.read(900)


def archive(path: Path, how: int, content: bytes = b"x" * 1000) -> Path:
    with zipfile.ZipFile(path, "w", how) as file:
        file.writestr("data.pkl", content)
    return path


def test_an_archive_of_torch_is_not_packed_and_not_larger_than_its_file(tmp_path):
    plain = tmp_path / "plain"
    plain.write_bytes(b"no archive at all")
    reading.require_plain_archive(plain)
    reading.require_plain_archive(archive(tmp_path / "a.pt", zipfile.ZIP_STORED))
    with pytest.raises(DataError, match=r"b\.pt: claims to hold more than its own size"):
        reading.require_plain_archive(archive(tmp_path / "b.pt", zipfile.ZIP_DEFLATED))


def test_a_damaged_archive_of_torch_is_refused(tmp_path):
    path = archive(tmp_path / "a.pt", zipfile.ZIP_STORED)
    data = path.read_bytes()
    at = data.index(b"PK\x01\x02")  # the table of contents
    path.write_bytes(data[:at] + b"PK\x07\x07" + data[at + 4 :])
    with pytest.raises(DataError, match=r"a\.pt: the archive is damaged"):
        reading.require_plain_archive(path)


def test_a_name_that_is_no_path_is_refused(tmp_path):
    with pytest.raises(DataError, match="is no path"):
        reading.path_within(tmp_path, "a\0b")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(DataError, match=r"is no path|leads out"):
        reading.path_within(tmp_path / "loop", "x")
