import gzip
import lzma
import os
import zipfile
from pathlib import Path

import pytest

from layerdag._runtime import _reading as reading, inside, open_unpacked, read_parsed, read_whole
from layerdag.errors import CheckpointError, DataError, TraceError


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress])
def test_packed_and_plain_give_the_same(tmp_path: Path, pack) -> None:
    path = tmp_path / "x"
    path.write_bytes(pack(b"abc" * 1000))
    assert read_whole(path) == b"abc" * 1000


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
@pytest.mark.parametrize("padding", [b"", bytes(70_000)])
def test_several_members_are_joined(tmp_path: Path, pack, padding: bytes) -> None:
    path = tmp_path / "x"
    path.write_bytes(pack(b"ab") + padding + pack(b"") + pack(b"c") + padding)
    assert read_whole(path) == b"abc"


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
@pytest.mark.parametrize("missing", [1, 4, 12])
def test_cut_off_archive_is_refused(tmp_path: Path, pack, missing: int) -> None:
    path = tmp_path / "x"
    path.write_bytes(pack(os.urandom(300_000))[:-missing])
    with pytest.raises(DataError, match=r"cut off|damaged"):
        read_whole(path)


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress])
def test_pieces_of_any_size_make_the_whole(tmp_path: Path, pack) -> None:
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
def test_what_holds_more_than_the_limit_is_refused(tmp_path: Path, pack) -> None:
    path = tmp_path / "x"
    path.write_bytes(pack(bytes(5_000_000)))
    with pytest.raises(DataError, match="holds more than 1 MiB"):
        read_whole(path, limit=1 << 20)
    assert len(read_whole(path, limit=5_000_000)) == 5_000_000


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
def test_an_archive_of_far_more_than_its_size_is_refused(
    tmp_path: Path, pack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "FREE_BYTES", 1 << 20)
    path = tmp_path / "x"
    path.write_bytes(pack(bytes(5_000_000)))
    with pytest.raises(CheckpointError, match="unpacks to more than 1 MiB"):
        read_whole(path, error=CheckpointError)
    path.write_bytes(pack(os.urandom(5_000_000)))
    assert len(read_whole(path)) == 5_000_000


def test_no_file_takes_more_than_half_of_the_memory_that_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x"
    path.write_bytes(bytes(1001))
    monkeypatch.setattr(reading, "memory_left", lambda: 2002)
    assert len(read_whole(path)) == 1001
    monkeypatch.setattr(reading, "memory_left", lambda: 2000)
    with pytest.raises(DataError, match="holds more than"):
        read_whole(path)


def test_what_is_parsed_leaves_room_for_its_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x"
    path.write_bytes(bytes(100))
    monkeypatch.setattr(reading, "memory_left", lambda: 99 * reading.PARSED_GROWTH)
    with pytest.raises(DataError, match="holds more than"):
        read_parsed(path)


def test_a_dictionary_that_needs_gigabytes_is_refused(tmp_path: Path) -> None:
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


def test_flipped_bit_is_refused(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(bytes(range(256))))
    packed[40] ^= 1
    path = tmp_path / "x"
    path.write_bytes(packed)
    with pytest.raises(DataError, match="damaged"):
        read_whole(path)


@pytest.mark.parametrize("name", ["/etc/passwd", "../x", "a/../../x", ".", "a/..", "link", "a\0b"])
def test_a_name_that_leaves_its_folder_is_refused(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path)
    with pytest.raises(DataError, match=r"leads out of the folder|is no path"):
        inside(folder, name)


def test_a_name_below_its_folder_is_a_path(tmp_path: Path) -> None:
    assert inside(tmp_path, "a/b") == tmp_path / "a" / "b"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("missing", "there is no such file; check the path"),
        (".", "this is a folder; name a file in it"),
        ("n" * 300, r"cannot be read \(File name too long\)"),
    ],
)
def test_what_cannot_be_opened_is_one_sentence(tmp_path: Path, name: str, says: str) -> None:
    with pytest.raises(DataError, match=says):
        read_whole(tmp_path / name)


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    with pytest.raises(DataError, match="the file is empty; copy or collect it again"):
        read_whole(tmp_path / "empty")


def test_the_error_that_is_asked_for_is_raised(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no such file"):
        read_whole(tmp_path / "missing", error=TraceError)


def test_text_that_is_parsed_as_a_whole_must_leave_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "memory_left", lambda: 32 * 100)
    reading.require_parsable(b"x" * 100, "a.json")
    with pytest.raises(DataError, match=r"a\.json: holds more than 0 MiB, the most that is read"):
        reading.require_parsable(b"x" * 101, "a.json")


def test_reading_ends_before_the_memory_does(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(reading, "memory_left", lambda: reading.SPARE_BYTES)
    reading.require_memory("a.et")
    monkeypatch.setattr(reading, "memory_left", lambda: reading.SPARE_BYTES - 1)
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


def test_an_archive_of_torch_is_not_packed_and_not_larger_than_its_file(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_bytes(b"no archive at all")
    reading.require_plain_archive(plain)
    reading.require_plain_archive(archive(tmp_path / "a.pt", zipfile.ZIP_STORED))
    with pytest.raises(DataError, match=r"b\.pt: claims to hold more than its own size"):
        reading.require_plain_archive(archive(tmp_path / "b.pt", zipfile.ZIP_DEFLATED))


def test_a_damaged_archive_of_torch_is_refused(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.pt", zipfile.ZIP_STORED)
    data = path.read_bytes()
    at = data.index(b"PK\x01\x02")  # the table of contents
    path.write_bytes(data[:at] + b"PK\x07\x07" + data[at + 4 :])
    with pytest.raises(DataError, match=r"a\.pt: the archive is damaged"):
        reading.require_plain_archive(path)


def test_a_name_that_is_no_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is no path"):
        reading.inside(tmp_path, "a\0b")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(DataError, match=r"is no path|leads out"):
        reading.inside(tmp_path / "loop", "x")
