"""Communicator groups as a file."""

import json
from pathlib import Path

import pytest

from layerdag.errors import TraceError
from layerdag.traces.astra import decode_groups, encode_groups, read_groups, write_groups


def test_groups_read_as_they_were_written(tmp_path: Path) -> None:
    write_groups({"1": (0, 1), "2": [2]}, tmp_path / "g.json")
    assert read_groups(tmp_path / "g.json", 3) == {"1": (0, 1), "2": (2,)}
    assert (tmp_path / "g.json").read_bytes() == encode_groups({"1": (0, 1), "2": [2]})


def test_the_group_of_all_ranks_makes_no_file_but_replaces_one(tmp_path: Path) -> None:
    path = tmp_path / "g.json"
    assert encode_groups({"0": (0, 1)}) == b""
    write_groups({"0": (0, 1)}, path)
    assert not path.exists()
    path.write_text("old")
    write_groups({"0": (0, 1)}, path)
    assert json.loads(path.read_text()) == {}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"[", "is no JSON"), (b"[]", "holds no object"), (b'{"1": [7]}', "names rank 7"),
        (b'{"1": [0, 0]}', "names a rank twice"), (b'{"1": "0"}', "is no list of ranks"),
    ],
)  # fmt: skip
def test_other_contents_are_one_sentence(data: bytes, said: str) -> None:
    with pytest.raises(TraceError, match=rf"a\.tar:g\.json: .*{said}"):
        decode_groups(data, "a.tar:g.json", 2)
