import os
from pathlib import Path

import pytest
from omegaconf.errors import InterpolationKeyError, InterpolationResolutionError

from layerdag.cli.settings import as_plain, compose, run
from layerdag.errors import ConfigError


def test_override_changes_the_config() -> None:
    assert compose("train", ["training.max_steps=7", "seed=3"]).training.max_steps == 7


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "training.max_step=7",
            r"Unknown setting 'training.max_step'. Did you mean 'training.max_steps'",
        ),
        ("model=fsat", r"no model=fsat. Did you mean 'fast'"),
        ("sede=1", r"Unknown setting 'sede'. Did you mean 'seed'"),
        ("training.max_steps=[1", "does not parse"),
    ],
)
def test_wrong_override_is_refused_with_the_nearest_name(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        compose("train", [override])


def test_a_condition_without_its_plus_is_told_so() -> None:
    with pytest.raises(ConfigError, match=r"write \+conditions.family=gpt"):
        compose("sample", ["conditions.family=gpt"])


@pytest.mark.parametrize("data", ["folder", "tpu_tile", "dgrl"])
def test_a_setting_without_default_is_named(data: str) -> None:
    with pytest.raises(ConfigError, match=r"'data.folder' is missing .* write data.folder="):
        as_plain(compose("train", [f"data={data}"]).data)


@pytest.mark.parametrize(
    ("name", "words", "folders"),
    [
        ("sample", ["seed=1,2", "out=same"], ["same/0", "same/1"]),
        ("sample", ["seed=1,2"], ["outputs/samples/0", "outputs/samples/1"]),
        ("train", ["seed=1,2", "out='a b'"], ["a b/0", "a b/1"]),
        ("train", ["seed=1,2", "out=x/${seed}"], ["x/1", "x/2"]),
        ("sample", ["out=a,b"], ["a", "b"]),
    ],
)
def test_runs_of_a_sweep_get_folders_of_their_own(
    name: str,
    words: list[str],
    folders: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    found: list[str] = []
    run(name, lambda config: found.append(str(config.out)), ["--multirun", *words])
    assert found == folders
    told = "one folder for all" in capsys.readouterr().err
    assert told == folders[0].endswith("/0")


def test_a_word_that_is_no_override_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'seed' is not an override\. Write key=value"):
        run("train", lambda config: None, ["seed"])


def test_several_values_need_multirun() -> None:
    with pytest.raises(ConfigError, match=r"'seed=1,2' gives several values; add --multirun"):
        run("train", lambda config: None, ["seed=1,2"])


def test_every_value_of_a_sweep_is_checked_before_the_first_run() -> None:
    ran: list[object] = []
    with pytest.raises(ConfigError, match="no model=fsat"):
        run("train", lambda config: ran.append(config), ["--multirun", "model=fast,fsat"])
    assert ran == []


def test_the_first_error_of_a_task_comes_out_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")

    def task(config: object) -> None:
        raise ZeroDivisionError("as it is")

    with pytest.raises(ZeroDivisionError, match="as it is"):
        run("train", task, [])
    # Neither Hydra's environment nor an empty folder is left behind.
    assert os.environ["HYDRA_FULL_ERROR"] == "0"
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_something_in_it_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def task(config: object) -> None:
        (Path(config.out) / "log").write_text("x")

    assert run("train", task, []) == 0
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["log"]


def test_a_folder_that_hydra_cannot_make_is_an_error_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "outputs").write_text("a file")
    with pytest.raises(OSError, match="outputs"):
        run("train", lambda config: None, [])


@pytest.mark.parametrize("word", ["data.held_out=${nowhere}", "seed=${oc.env:NO_SUCH_NAME}"])
def test_references_to_nothing_are_refused(word: str) -> None:
    with pytest.raises((ConfigError, InterpolationKeyError, InterpolationResolutionError)):
        as_plain(compose("train", ["data=latent_preferential", f"++{word}"]))
