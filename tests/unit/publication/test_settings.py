"""The folders of a release: nothing foreign is replaced, and a stopped run is taken up."""

from pathlib import Path

import pytest

from layerdag.errors import UsageError
from layerdag.publication.settings import ReleaseSettings
from layerdag.publication.workspace import workspace_lock

REQUEST = {"seed": 0, "steps": 3}


def test_what_stages_noted_is_there_when_the_same_is_asked_for_again(tmp_path):
    place, out = tmp_path / "out.private", tmp_path / "out"
    with workspace_lock(place, out, REQUEST, overwrite=False) as work:
        assert not work.is_resumed
        work.note("read", {"fingerprint": "a"})
    with workspace_lock(place, out, REQUEST, overwrite=False) as work:
        assert work.is_resumed
        assert work.stages == {"read": {"fingerprint": "a"}}
        work.require_same("read", "fingerprint", "a")
        with pytest.raises(UsageError, match="other traces than there are now"):
            work.require_same("read", "fingerprint", "b")


def test_another_request_needs_leave_to_start_anew(tmp_path):
    place, out = tmp_path / "out.private", tmp_path / "out"
    with workspace_lock(place, out, REQUEST, overwrite=False) as work:
        work.note("read", {})
    with (
        pytest.raises(UsageError, match="'steps' 3, not 4"),
        workspace_lock(place, out, {**REQUEST, "steps": 4}, overwrite=False),
    ):
        pass
    with workspace_lock(place, out, {**REQUEST, "steps": 4}, overwrite=True) as work:
        assert not work.is_resumed
        assert work.stages == {}


def test_folders_of_something_else_are_never_touched(tmp_path):
    place, out = tmp_path / "out.private", tmp_path / "out"
    for folder in (place, out):
        folder.mkdir()
        (folder / "thesis.txt").write_text("precious")
        with pytest.raises(UsageError), workspace_lock(place, out, REQUEST, overwrite=True):
            pass
        assert (folder / "thesis.txt").read_text() == "precious"
        (folder / "thesis.txt").unlink()


def test_one_process_at_a_time(tmp_path):
    place, out = tmp_path / "out.private", tmp_path / "out"
    with (
        workspace_lock(place, out, REQUEST, overwrite=False),
        pytest.raises(UsageError, match="is writing here"),
        workspace_lock(place, out, REQUEST, overwrite=False),
    ):
        pass


def test_the_private_folder_says_that_it_is(tmp_path):
    with workspace_lock(tmp_path / "p", tmp_path / "o", REQUEST, overwrite=False) as work:
        assert "stays with the owner" in (work.path / "README.txt").read_text()


def test_a_folder_inside_has_stages_of_its_own(tmp_path):
    for _ in range(2):
        with workspace_lock(tmp_path / "p", tmp_path / "o", {"seed": 0}, overwrite=False) as work:
            own = work.inside("folds/3-0")
            assert own.stages == ({"train": {"steps": 3}} if work.is_resumed else {})
            own.note("train", {"steps": 3})
            assert "train" not in work.stages


@pytest.fixture
def traces(tmp_path) -> Path:
    (tmp_path / "traces" / "inner").mkdir(parents=True)
    return tmp_path / "traces"


@pytest.mark.parametrize(
    ("name", "least", "refused"),
    [
        ("num", 1, 0),
        ("best_of", 1, 0),
        ("max_nodes", 1, 0),
        ("steps", 1, 0),
        ("seed", 0, -1),
        ("budget", 20.0, 19.9),
        ("temperature", 0.01, 0.0),
        ("temperature", 10.0, 10.1),
    ],
)
def test_a_bound_is_allowed_and_what_lies_beyond_refused(traces, name, least, refused):
    made = ReleaseSettings(traces, traces.with_name("out"), **{name: least})
    assert getattr(made, name) == least
    with pytest.raises(UsageError, match=f"'{name}' must .* found {refused:g}"):
        ReleaseSettings(traces, traces.with_name("out"), **{name: refused})


@pytest.mark.parametrize("folds", [None, 0, 2, 20])
def test_folds_are_none_or_a_few(traces, folds):
    made = ReleaseSettings(traces, traces.with_name("out"), cross_fit=folds)
    assert made.cross_fit == folds
    assert made.request() == ReleaseSettings(traces, traces.with_name("out")).request()


@pytest.mark.parametrize("folds", [-1, 1, 21])
def test_other_numbers_of_folds_are_refused(traces, folds):
    with pytest.raises(UsageError, match=f"'cross_fit' must be 0 .* found {folds}"):
        ReleaseSettings(traces, traces.with_name("out"), cross_fit=folds)


def test_an_endless_budget_and_an_unknown_stage_are_refused(traces):
    with pytest.raises(UsageError, match="'budget' must be at least 20 seconds, found inf"):
        ReleaseSettings(traces, traces.with_name("out"), budget=float("inf"))
    with pytest.raises(UsageError, match="one of read, train, sample, evaluate, found 'write'"):
        ReleaseSettings(traces, traces.with_name("out"), until="write")


def test_traces_are_a_folder(traces):
    (traces / "a.et").touch()
    with pytest.raises(UsageError, match="is a file; name the folder that holds it"):
        ReleaseSettings(traces / "a.et", traces.with_name("out"))
    with pytest.raises(UsageError, match="there is no such folder; check the path"):
        ReleaseSettings(traces / "absent", traces.with_name("out"))


def test_a_release_lies_neither_inside_nor_around_its_traces(traces):
    for out in (traces, traces / "inner" / "out", traces.parent, traces / ".." / "traces"):
        with pytest.raises(UsageError, match="must lie outside of the traces"):
            ReleaseSettings(traces, out)
    assert ReleaseSettings(traces, traces.with_name("traces-out")).out.name == "traces-out"


def test_what_stays_with_the_owner_lies_beside_the_release(traces):
    made = ReleaseSettings(traces, traces.with_name("out.v1"))
    assert made.private == traces.with_name("out.v1.private")


def test_the_model_depends_on_seed_size_and_steps_alone(traces):
    plain = ReleaseSettings(traces, traces.with_name("out"))
    usual = {"seed": 0, "max_nodes": 2000, "steps": 1200}
    assert plain.request() == usual
    same = ReleaseSettings(traces, traces.with_name("out"), num=7, budget=60, until="read")
    assert same.request() == plain.request()
