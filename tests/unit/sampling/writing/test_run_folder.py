"""A folder that several processes fill, and that loses nothing that others put there."""

import multiprocessing
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from layerdag._runtime import LOCK, locked
from layerdag.datasets.samples import RUN, SampleRun
from layerdag.errors import UsageError
from layerdag.sampling.writing import _run_folder as run_folder
from layerdag.sampling.writing._run_folder import open_run

RUN_OF_TEN = SampleRun(10, 4, "tar", 7, {"temperature": 0.7, "conditions": {"family": "gpt"}})


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def with_part(folder: Path) -> Path:
    open_run(folder, RUN_OF_TEN, overwrite=False)
    for name in ("part-000000.tar", "part-000000.json"):
        (folder / name).write_text("x")
    return folder


def test_a_new_folder_gets_the_file_of_its_run(tmp_path: Path) -> None:
    open_run(tmp_path / "deep" / "s", RUN_OF_TEN, overwrite=False)
    assert names(tmp_path / "deep" / "s") == [RUN]
    assert SampleRun.read(tmp_path / "deep" / "s") == RUN_OF_TEN


@pytest.mark.parametrize("overwrite", [False, True])
def test_parts_of_the_same_run_stay(tmp_path: Path, overwrite: bool) -> None:
    out = with_part(tmp_path)
    open_run(out, RUN_OF_TEN, overwrite=overwrite)
    assert names(out) == ["part-000000.json", "part-000000.tar", RUN]


def test_a_run_may_be_made_longer(tmp_path: Path) -> None:
    out = with_part(tmp_path)
    open_run(out, replace(RUN_OF_TEN, num=20), overwrite=False)
    assert SampleRun.read(out).num == 20
    assert "part-000000.tar" in names(out)


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (replace(RUN_OF_TEN, seed=8), "seed 7, not 8"),
        (replace(RUN_OF_TEN, part_size=5), "part_size 4, not 5"),
        (replace(RUN_OF_TEN, file_format="parquet"), "format tar, not parquet"),
        (replace(RUN_OF_TEN, num=9), "num 10, more than 9"),
        (replace(RUN_OF_TEN, request={}), "conditions {'family': 'gpt'}, not None"),
        (replace(RUN_OF_TEN, request={**RUN_OF_TEN.request, "best_of": 4}), "best_of None, not 4"),
    ],
)
def test_another_run_is_told_and_discarded_only_when_allowed(
    tmp_path: Path, other: SampleRun, said: str
) -> None:
    out = with_part(tmp_path)
    with pytest.raises(UsageError, match=f"holds samples with {said}; .*overwrite=true"):
        open_run(out, other, overwrite=False)
    assert "part-000000.tar" in names(out)
    open_run(out, other, overwrite=True)
    assert names(out) == [RUN]
    assert SampleRun.read(out) == other


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("name", ["thesis.txt", "manifest.json", "part-000000.tar.gz", "data"])
def test_what_is_not_of_samples_is_never_touched(
    tmp_path: Path, name: str, overwrite: bool
) -> None:
    (tmp_path / name).write_text("x")
    with pytest.raises(UsageError, match=f"holds '{name}', which layerdag did not write there"):
        open_run(tmp_path, RUN_OF_TEN, overwrite=overwrite)
    assert names(tmp_path) == [name]


@pytest.mark.parametrize("name", ["part-000000.tar", RUN])
def test_without_the_file_of_a_run_nothing_proves_what_is_there(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("x")
    with pytest.raises(UsageError, match=r"part-000000\.tar' without samples|has a samples\.json"):
        open_run(tmp_path, RUN_OF_TEN, overwrite=True)
    assert names(tmp_path) == [name]


def test_an_unfinished_draft_is_in_nobodys_way(tmp_path: Path) -> None:
    (tmp_path / ".part-000000.tar.draft").mkdir()
    open_run(tmp_path, RUN_OF_TEN, overwrite=False)
    assert names(tmp_path) == [".part-000000.tar.draft", RUN]


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "s").write_text("x")
    with pytest.raises(UsageError, match="is a file"):
        open_run(tmp_path / "s", RUN_OF_TEN, overwrite=True)


def _open(folder: Path) -> None:
    open_run(folder, RUN_OF_TEN, overwrite=True)


def test_processes_open_one_run_together(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_open, args=(tmp_path / "s",)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4
    assert names(tmp_path / "s") == [RUN]


def test_who_opens_it_waits_for_another_one(tmp_path: Path) -> None:
    with locked(tmp_path / LOCK, guarded=tmp_path):
        waiting = threading.Thread(target=_open, args=(tmp_path,))
        waiting.start()
        waiting.join(timeout=0.3)
        assert waiting.is_alive()
        assert names(tmp_path) == [LOCK]
    waiting.join(timeout=20)
    assert names(tmp_path) == [RUN]


def test_who_waits_too_long_gets_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_folder, "_PATIENCE_S", 0.1)
    with (
        locked(tmp_path / LOCK, guarded=tmp_path),
        pytest.raises(UsageError, match="is writing here"),
    ):
        open_run(tmp_path, RUN_OF_TEN, overwrite=False)
