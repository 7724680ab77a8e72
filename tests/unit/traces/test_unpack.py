import gzip
import lzma
from pathlib import Path

import pytest

from layerdag.errors import TraceError
from layerdag.traces.unpack import read_unpacked


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress])
def test_packed_and_plain_give_the_same(tmp_path: Path, pack) -> None:
    path = tmp_path / "x"
    path.write_bytes(pack(b"abc" * 1000))
    assert read_unpacked(path) == b"abc" * 1000


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
def test_several_members_are_joined(tmp_path: Path, pack) -> None:
    path = tmp_path / "x"
    path.write_bytes(pack(b"ab") + pack(b"c"))
    assert read_unpacked(path) == b"abc"


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
def test_cut_off_archive_is_refused(tmp_path: Path, pack) -> None:
    path = tmp_path / "x"
    path.write_bytes(pack(bytes(range(256)) * 9)[:-12])
    with pytest.raises(TraceError, match=r"cut off|damaged"):
        read_unpacked(path)


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
def test_bomb_is_refused_before_it_fills_the_memory(tmp_path: Path, pack) -> None:
    path = tmp_path / "x"
    path.write_bytes(pack(bytes(5_000_000)))
    with pytest.raises(TraceError, match="unpacks to more than 1 MiB"):
        read_unpacked(path, limit=1 << 20)


def test_flipped_bit_is_refused(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(bytes(range(256))))
    packed[40] ^= 1
    path = tmp_path / "x"
    path.write_bytes(packed)
    with pytest.raises(TraceError, match="damaged"):
        read_unpacked(path)
