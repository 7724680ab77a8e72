import gzip
import lzma
import os
from pathlib import Path

import pytest

from layerdag._runtime import _reading as reading, inside, open_unpacked, read_parsed, read_whole
from layerdag.errors import CheckpointError, DataError


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
