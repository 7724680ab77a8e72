import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from omegaconf.errors import InterpolationKeyError, InterpolationResolutionError

from layerdag.cli.compose import (
    compose,
    run,
    to_plain_dict,
    with_own_settings,
)
from layerdag.datasets.latent_preferential import load_latent_preferential
from layerdag.datasets.settings import LatentPreferentialConfig
from layerdag.errors import ConfigError, DataError
from layerdag.kinds.registry import graph_kind
from layerdag.training.checkpoint import RUN_FILE
from layerdag.training.model_spec import spec_for
from layerdag.training.run_file import public_config, read_run_file, run_record, write_run_file


@pytest.mark.parametrize(
    ("kind", "override", "expected"),
    [
        ("flow", "model.predict_out_degree=null", True),
        ("trace", "model.predict_out_degree=null", False),
        ("trace", "model.predict_out_degree=true", True),
        ("flow", "model.predict_out_degree=false", False),
    ],
)
def test_out_degree_prediction_follows_the_kind_of_the_graphs_unless_set(kind, override, expected):
    data = load_latent_preferential(LatentPreferentialConfig(num_train=3, num_val=1, num_test=1))
    data = data.replaced(schema=replace(data.schema, kind=graph_kind(kind)))
    settings = to_plain_dict(compose("train", [override]).model)
    spec = spec_for(data, str(settings.pop("name")), settings)
    assert spec.arguments["predict_out_degree"] is expected


def test_override_changes_the_config():
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
def test_wrong_override_is_refused_with_the_nearest_name(override, message):
    with pytest.raises(ConfigError, match=message):
        compose("train", [override])


@pytest.mark.parametrize("data", ["folder", "tpu_tile", "dgrl"])
def test_a_setting_without_default_is_named(data):
    with pytest.raises(ConfigError, match=r"'data.folder' is missing .* write data.folder="):
        to_plain_dict(compose("train", [f"data={data}"]).data)


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
    name, words, folders, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    found: list[str] = []
    run(name, lambda config: found.append(str(config.out)), ["--multirun", *words])
    assert found == folders
    told = "one folder for all" in capsys.readouterr().err
    assert told == folders[0].endswith("/0")


def test_a_word_that_is_no_override_is_refused():
    with pytest.raises(ConfigError, match=r"'seed' is not an override\. Write key=value"):
        run("train", lambda config: None, ["seed"])


def test_several_values_need_multirun():
    with pytest.raises(ConfigError, match=r"'seed=1,2' gives several values; add --multirun"):
        run("train", lambda config: None, ["seed=1,2"])


def test_every_value_of_a_sweep_is_checked_before_the_first_run():
    ran: list[object] = []
    with pytest.raises(ConfigError, match="no model=fsat"):
        run("train", lambda config: ran.append(config), ["--multirun", "model=fast,fsat"])
    assert ran == []


def test_the_first_error_of_a_task_comes_out_as_it_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")

    def task(config: object) -> None:
        raise ZeroDivisionError("as it is")

    with pytest.raises(ZeroDivisionError, match="as it is"):
        run("train", task, [])
    # Neither Hydra's environment nor an empty folder is left behind.
    assert os.environ["HYDRA_FULL_ERROR"] == "0"
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_something_in_it_stays(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def task(config: object) -> None:
        (Path(config.out) / "log").write_text("x")

    assert run("train", task, []) == 0
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["log"]


def test_a_folder_that_hydra_cannot_make_is_an_error_of_ours(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "outputs").write_text("a file")
    with pytest.raises(OSError, match="outputs"):
        run("train", lambda config: None, [])


@pytest.mark.parametrize("word", ["data.held_out=${nowhere}", "seed=${oc.env:NO_SUCH_NAME}"])
def test_references_to_nothing_are_refused(word):
    with pytest.raises((ConfigError, InterpolationKeyError, InterpolationResolutionError)):
        to_plain_dict(compose("train", ["data=latent_preferential", f"++{word}"]))


def run_with(folder: Path, *words: str) -> Path:
    """Return the folder of a run with these settings."""
    config = to_plain_dict(compose("train", [*words, "out=x"]))
    (folder / "run").mkdir()
    write_run_file(folder / "run", run_record(folder / "run", config))
    return folder / "run"


def settings(*words: str) -> dict[str, object]:
    composed = to_plain_dict(compose("train", [*with_own_settings(words), "out=x"]))
    return {k: v for k, v in composed.items() if k not in ("resume", "hydra")}


@pytest.mark.parametrize(
    "words",
    [
        ["seed=3", "training.max_steps=null", "training.max_seconds=1.5e-3"],
        ["data=folder", "data.folder=runs", "data.labels=labels.csv", "conditions=[label]"],
        ["model=reference", "model.edge.width=8", "logger.console=false", "threads=1"],
        ["data.families=[gpt,bert]", "+logger.project='it\\'s a \\\\ test'"],
        ["data=folder", "data.folder='we\\'re, here: {50 %} = [all]'"],
    ],
)
def test_a_run_is_resumed_with_its_own_settings(tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    run = run_with(tmp_path, *words)
    found, wanted = settings(f"resume={run}"), settings(*words)
    # Paths of the data may be written in another way.
    for data in (found["data"], wanted["data"]):
        places = {key: data[key] for key in ("folder", "labels") if data.get(key)}
        data.update({key: Path(value).resolve() for key, value in places.items()})
    assert found == wanted
    assert settings(f"resume={run}/last")["seed"] == wanted["seed"]


def test_settings_that_are_given_win(tmp_path):
    run = run_with(tmp_path, "data=folder", "data.folder=runs", "seed=3", "model.width=64")
    found = settings("training.max_steps=7", f"resume={run}", "data.labels=other.csv", "seed=4")
    assert (found["seed"], found["training"]["max_steps"]) == (4, 7)
    assert found["data"]["labels"] == "other.csv"
    assert found["model"]["width"] == 64
    assert settings(f"resume={run}", "model=reference")["model"]["name"] == "reference"


def test_settings_that_are_gone_without_effect_are_left_out_with_one_note(tmp_path, capsys):
    run = run_with(tmp_path, "training.max_steps=7")
    record = json.loads((run / RUN_FILE).read_text())
    record["config"]["training"]["cuda_graphs"] = True
    record["config"]["data"]["blocks"] = "whole"
    (run / RUN_FILE).write_text(json.dumps(record))
    found = settings(f"resume={run}")
    assert found == settings("training.max_steps=7")
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    assert "training.cuda_graphs, data.blocks" in line
    record["config"]["data"]["blocks"] = "rolled"
    (run / RUN_FILE).write_text(json.dumps(record))
    assert settings(f"resume={run}")["data"]["blocks"] == "rolled"  # which ``train`` refuses


def test_a_run_of_python_code_gives_what_its_checkpoint_holds(tmp_path):
    (tmp_path / "last").mkdir()
    kept = {"run": {"seed": 5, "training": {"max_steps": 9}, "data": {"name": "corpus"}}}
    (tmp_path / "last" / "config.json").write_text(json.dumps(kept))
    found = settings(f"resume={tmp_path}")
    assert (found["seed"], found["training"]["max_steps"]) == (5, 9)


@pytest.mark.parametrize("words", [["seed=1"], ["resume=null"], ["resume=nowhere", "seed=1"]])
def test_words_stay_as_they_are_where_there_is_nothing_to_resume(words):
    assert with_own_settings(words) == words


def config(tmp_path: Path) -> dict[str, object]:
    return {
        "seed": 3,
        "out": str(tmp_path / "runs" / "a"),
        "resume": None,
        "data": {
            "name": "folder",
            "folder": str(tmp_path / "data"),
            "labels": str(tmp_path / "labels.csv"),
            "max_nodes": 60,
        },
        "logger": {"project": "layerdag", "sink": ["/home/somebody/figures", "~/x", "plain/word"]},
    }


def test_the_public_settings_hold_no_path(tmp_path):
    public = public_config(config(tmp_path))
    assert public["data"] == {"name": "folder", "max_nodes": 60, "labels": "labels.csv"}
    assert public["logger"]["sink"] == [None, None, "plain/word"]
    assert set(public) == {"seed", "data", "logger"}
    assert str(tmp_path) not in json.dumps(public)


def test_a_run_finds_its_data_again_after_both_have_moved(tmp_path, monkeypatch):
    old, new = tmp_path / "old", tmp_path / "new"
    run = old / "runs" / "a"
    run.mkdir(parents=True)
    (old / "data").mkdir()
    write_run_file(run, run_record(run, config(old)))
    old.rename(new)
    monkeypatch.chdir(new / "data")
    again = read_run_file(new / "runs" / "a")
    assert Path(again["data"]["folder"]).resolve() == (new / "data").resolve()
    assert Path(again["data"]["labels"]).resolve() == (new / "labels.csv").resolve()
    assert (again["seed"], again["data"]["max_nodes"]) == (3, 60)


def test_only_the_owner_may_read_it_and_it_says_so(tmp_path):
    write_run_file(tmp_path, run_record(tmp_path, config(tmp_path)))
    assert (tmp_path / RUN_FILE).stat().st_mode & 0o077 == 0
    assert json.loads((tmp_path / RUN_FILE).read_text())["notice"].startswith("Private")


@pytest.mark.parametrize("text", [None, "{", "[]", '{"config": {"data": 3}}'])
def test_a_missing_or_damaged_file_is_one_sentence(tmp_path, text):
    if text is not None:
        (tmp_path / RUN_FILE).write_text(text)
    with pytest.raises(DataError, match="give the settings of the run again"):
        read_run_file(tmp_path)
