from pathlib import Path

import pytest

from layerdag import files


def test_file_is_replaced_whole(tmp_path: Path) -> None:
    target = tmp_path / "a" / "b.txt"
    files.write_text(target, "one")
    files.write_text(target, "two")
    assert target.read_text() == "two"
    assert [p.name for p in target.parent.iterdir()] == ["b.txt"]


def test_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "b.txt"
    files.write_text(target, "one")
    with pytest.raises(ValueError, match="no"):
        _write_half_and_fail(target)
    assert target.read_text() == "one"
    assert [p.name for p in tmp_path.iterdir()] == ["b.txt"]


def test_directory_is_replaced_whole(tmp_path: Path) -> None:
    target = tmp_path / "run"
    for word in ("one", "two"):
        with files.atomic_path(target) as draft:
            draft.mkdir()
            (draft / word).touch()
    assert [p.name for p in target.iterdir()] == ["two"]


def _write_half_and_fail(target: Path) -> None:
    with files.atomic_path(target) as draft:
        draft.write_text("half")
        raise ValueError("no")
