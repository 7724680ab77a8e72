import json
from pathlib import Path

import pytest

from layerdag.cli.settings import as_plain, compose, with_own_settings, write_run_file


def run_with(folder: Path, *words: str) -> Path:
    """Return the folder of a run with these settings."""
    config = as_plain(compose("train", [*words, "out=x"]))
    (folder / "run").mkdir()
    write_run_file(folder / "run", config)
    return folder / "run"


def settings(*words: str) -> dict[str, object]:
    composed = as_plain(compose("train", [*with_own_settings(words), "out=x"]))
    return {k: v for k, v in composed.items() if k not in ("resume", "hydra")}


@pytest.mark.parametrize(
    "words",
    [
        ["seed=3", "training.max_steps=null", "training.max_seconds=1.5e-3"],
        ["data=folder", "data.folder=runs", "data.labels=labels.csv", "conditions=[label]"],
        ["model=reference", "model.edge.width=8", "logger.console=false", "threads=1"],
        ["data.families=[gpt,bert]", "logger.project='it\\'s a \\\\ test'"],
        ["data=folder", "data.folder='we\\'re, here: {50 %} = [all]'"],
    ],
)
def test_a_run_is_resumed_with_its_own_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run = run_with(tmp_path, *words)
    found, wanted = settings(f"resume={run}"), settings(*words)
    # Paths of the data may be written in another way.
    for data in (found["data"], wanted["data"]):
        places = {key: data[key] for key in ("folder", "labels") if data.get(key)}
        data.update({key: Path(value).resolve() for key, value in places.items()})
    assert found == wanted
    assert settings(f"resume={run}/last")["seed"] == wanted["seed"]


def test_settings_that_are_given_win(tmp_path: Path) -> None:
    run = run_with(tmp_path, "data=folder", "data.folder=runs", "seed=3", "model.width=64")
    found = settings("training.max_steps=7", f"resume={run}", "data.labels=other.csv", "seed=4")
    assert (found["seed"], found["training"]["max_steps"]) == (4, 7)
    assert found["data"]["labels"] == "other.csv"
    assert found["model"]["width"] == 64
    assert settings(f"resume={run}", "model=reference")["model"]["name"] == "reference"


def test_a_run_of_python_code_gives_what_its_checkpoint_holds(tmp_path: Path) -> None:
    (tmp_path / "last").mkdir()
    kept = {"run": {"seed": 5, "training": {"max_steps": 9}, "data": {"name": "corpus"}}}
    (tmp_path / "last" / "config.json").write_text(json.dumps(kept))
    found = settings(f"resume={tmp_path}")
    assert (found["seed"], found["training"]["max_steps"]) == (5, 9)


@pytest.mark.parametrize("words", [["seed=1"], ["resume=null"], ["resume=nowhere", "seed=1"]])
def test_words_stay_as_they_are_where_there_is_nothing_to_resume(words: list[str]) -> None:
    assert with_own_settings(words) == words
