import os
from collections.abc import Callable
from pathlib import Path

import pytest
from killing import states_when_killed

from layerdag.errors import CheckpointError, ConfigError, UsageError
from layerdag.training.run_folder import (
    clear_run,
    hold_run,
    require_free,
    require_resumable,
    run_of,
)
from layerdag.training.settings import LearningRateSchedule, OptimizerConfig, TrainSettings

META = '{"format_version": 4, "layerdag_version": "0.1.0"}'


@pytest.fixture
def run(tmp_path) -> Path:
    """Return the folder of a run that looks like a real one, with a user's notes in it."""
    folder = tmp_path / "run"
    for name in ("best", "last"):
        (folder / name).mkdir(parents=True)
        (folder / name / "meta.json").write_text(META)
    (folder / "train.jsonl").write_text('{"step": 1}\n')
    (folder / "run.json").write_text('{"notice": "", "config": {}}')
    (folder / "pictures").mkdir()
    (folder / "pictures" / "samples-000100.png").touch()
    (folder / "pictures" / "mine.png").touch()
    (folder / "notes.txt").write_text("precious")
    return folder


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_run_is_in_the_way_of_another_unless_its_loss_is_allowed(run):
    with pytest.raises(UsageError, match=r"holds a run already .*resume=.*overwrite=true"):
        require_free(run, overwrite=False)
    require_free(run, overwrite=True)
    clear_run(run)
    assert names(run) == ["notes.txt", "pictures"]
    assert names(run / "pictures") == ["mine.png"]
    require_free(run, overwrite=False)


def test_a_kill_while_a_run_is_cleared_leaves_no_part_of_a_checkpoint(run):
    def prepare() -> None:
        for name in ("best", "last"):
            (run / name).mkdir(exist_ok=True)
            for file in ("meta.json", "schema.json", "trainer.pt"):
                (run / name / file).write_text(META)

    def look() -> str:
        left = [names(run / name) for name in ("best", "last") if (run / name).exists()]
        assert all(files == ["meta.json", "schema.json", "trainer.pt"] for files in left)
        require_free(run, overwrite=True)
        return str(len(left))

    seen = states_when_killed(prepare, lambda: clear_run(run), look)
    assert (seen[0], seen[-1]) == ("2", "0")


FOREIGN: dict[str, Callable[[Path], object]] = {
    "a paper in best": lambda run: (run / "best" / "paper.txt").touch(),
    "another program's meta.json": lambda run: (run / "last" / "meta.json").write_text("{}"),
    "best is a file": lambda run: [
        (run / "best" / "meta.json").unlink(),
        (run / "best").rmdir(),
        (run / "best").touch(),
    ],
    "a log of something else": lambda run: (run / "train.jsonl").write_text('{"loss": 3}\n'),
    "a text as log": lambda run: (run / "train.jsonl").write_text("my diary\n"),
    "settings of something else": lambda run: (run / "run.json").write_text('{"speed": 3}'),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_what_is_not_provably_of_a_run_is_never_replaced(run, name):
    FOREIGN[name](run)
    with pytest.raises(UsageError, match=r"never replaced|is a file"):
        require_free(run, overwrite=True)


def test_files_and_folders_of_other_things_are_no_run(tmp_path):
    (tmp_path / "thesis.txt").touch()
    require_free(tmp_path, overwrite=False)
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="is a file; name a folder"):
        hold_run(tmp_path / "file", overwrite=False).__enter__()


def test_two_processes_do_not_train_in_one_folder(tmp_path):
    with hold_run(tmp_path / "run", overwrite=False):
        with pytest.raises(UsageError, match=f"process {os.getpid()} is writing here"):
            hold_run(tmp_path / "run", overwrite=False).__enter__()
        assert names(tmp_path / "run") == ["layerdag.lock"]
    assert names(tmp_path) == []


def test_a_checkpoint_that_a_killed_run_had_set_aside_is_found_again(run):
    draft = run / ".last.draft"
    draft.mkdir()
    (draft / "layerdag.lock").touch()
    (run / "last").rename(draft / "last.old")
    (draft / "last").mkdir()
    (run / ".best.draft" / "best").mkdir(parents=True)
    (run / ".best.draft" / "layerdag.lock").touch()
    with pytest.raises(CheckpointError, match="no run to go on with"):
        require_resumable(run)
    with hold_run(run, overwrite=False, goes_on=True):
        pass
    assert names(run) == ["best", "last", "notes.txt", "pictures", "run.json", "train.jsonl"]


def test_a_run_is_named_by_its_folder_or_its_checkpoints(run, tmp_path):
    assert run_of(run) == run_of(run / "last") == run_of(run / "best") == run
    named_last = tmp_path / "last"
    run.rename(named_last)
    assert run_of(named_last) == named_last


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("batch_graphs", 0),
        ("ema_decay", 1.0),
        ("precision", "float16"),
        ("max_steps", 0),
        ("max_seconds", -1.0),
    ],
)
def test_a_value_out_of_bounds_is_named(name, value):
    with pytest.raises(ConfigError, match=f"training.{name} must be"):
        TrainSettings(**{name: value})


def test_a_run_needs_some_budget():
    with pytest.raises(ConfigError, match="max_seconds"):
        TrainSettings(max_steps=None)


@pytest.mark.parametrize(
    ("group", "name", "value"),
    [
        (OptimizerConfig, "learning_rate", 0.0),
        (OptimizerConfig, "weight_decay", -0.1),
        (OptimizerConfig, "gradient_clip", -1.0),
        (LearningRateSchedule, "shape", "linear"),
        (LearningRateSchedule, "warmup_steps", -1),
    ],
)
def test_a_value_out_of_bounds_in_a_group_is_named(group, name, value):
    with pytest.raises(ConfigError, match=rf"training\.\w+\.{name} must be"):
        group(**{name: value})
