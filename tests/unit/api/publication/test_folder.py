"""The folders of a release: nothing foreign is replaced, and a stopped run is taken up."""

from pathlib import Path

import pytest

from layerdag.api.publication import held_work
from layerdag.errors import UsageError

REQUEST = {"seed": 0, "steps": 3}


def test_what_stages_noted_is_there_when_the_same_is_asked_for_again(tmp_path: Path) -> None:
    place, out = tmp_path / "out.private", tmp_path / "out"
    with held_work(place, out, REQUEST, overwrite=False) as work:
        assert not work.is_resumed
        work.note("read", {"fingerprint": "a"})
    with held_work(place, out, REQUEST, overwrite=False) as work:
        assert work.is_resumed
        assert work.stages == {"read": {"fingerprint": "a"}}
        work.require_same("read", "fingerprint", "a")
        with pytest.raises(UsageError, match="other traces than there are now"):
            work.require_same("read", "fingerprint", "b")


def test_another_request_needs_leave_to_start_anew(tmp_path: Path) -> None:
    place, out = tmp_path / "out.private", tmp_path / "out"
    with held_work(place, out, REQUEST, overwrite=False) as work:
        work.note("read", {})
    with (
        pytest.raises(UsageError, match="'steps' 3, not 4"),
        held_work(place, out, {**REQUEST, "steps": 4}, overwrite=False),
    ):
        pass
    with held_work(place, out, {**REQUEST, "steps": 4}, overwrite=True) as work:
        assert not work.is_resumed
        assert work.stages == {}


def test_folders_of_something_else_are_never_touched(tmp_path: Path) -> None:
    place, out = tmp_path / "out.private", tmp_path / "out"
    for folder in (place, out):
        folder.mkdir()
        (folder / "thesis.txt").write_text("precious")
        with pytest.raises(UsageError), held_work(place, out, REQUEST, overwrite=True):
            pass
        assert (folder / "thesis.txt").read_text() == "precious"
        (folder / "thesis.txt").unlink()


def test_one_process_at_a_time(tmp_path: Path) -> None:
    place, out = tmp_path / "out.private", tmp_path / "out"
    with (
        held_work(place, out, REQUEST, overwrite=False),
        pytest.raises(UsageError, match="is writing here"),
        held_work(place, out, REQUEST, overwrite=False),
    ):
        pass


def test_the_private_folder_says_that_it_is(tmp_path: Path) -> None:
    with held_work(tmp_path / "p", tmp_path / "o", REQUEST, overwrite=False) as work:
        assert "stays with the owner" in (work.path / "README.txt").read_text()


def test_a_folder_inside_has_stages_of_its_own(tmp_path: Path) -> None:
    for _ in range(2):
        with held_work(tmp_path / "p", tmp_path / "o", {"seed": 0}, overwrite=False) as work:
            own = work.inside("folds/3-0")
            assert own.stages == ({"train": {"steps": 3}} if work.is_resumed else {})
            own.note("train", {"steps": 3})
            assert "train" not in work.stages
