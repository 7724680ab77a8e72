import json
from pathlib import Path

import pytest

from layerdag.cli.settings import public_config, read_run_file, write_run_file
from layerdag.errors import DataError
from layerdag.training import RUN_FILE


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


def test_the_public_settings_hold_no_path(tmp_path: Path):
    public = public_config(config(tmp_path))
    assert public["data"] == {"name": "folder", "max_nodes": 60, "labels": "labels.csv"}
    assert public["logger"]["sink"] == [None, None, "plain/word"]
    assert set(public) == {"seed", "data", "logger"}
    assert str(tmp_path) not in json.dumps(public)


def test_a_run_finds_its_data_again_after_both_have_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    old, new = tmp_path / "old", tmp_path / "new"
    run = old / "runs" / "a"
    run.mkdir(parents=True)
    (old / "data").mkdir()
    write_run_file(run, config(old))
    old.rename(new)
    monkeypatch.chdir(new / "data")
    again = read_run_file(new / "runs" / "a")
    assert Path(again["data"]["folder"]).resolve() == (new / "data").resolve()
    assert Path(again["data"]["labels"]).resolve() == (new / "labels.csv").resolve()
    assert (again["seed"], again["data"]["max_nodes"]) == (3, 60)


def test_only_the_owner_may_read_it_and_it_says_so(tmp_path: Path):
    write_run_file(tmp_path, config(tmp_path))
    assert (tmp_path / RUN_FILE).stat().st_mode & 0o077 == 0
    assert json.loads((tmp_path / RUN_FILE).read_text())["notice"].startswith("Private")


@pytest.mark.parametrize("text", [None, "{", "[]", '{"config": {"data": 3}}'])
def test_a_missing_or_damaged_file_is_one_sentence(tmp_path: Path, text: str | None):
    if text is not None:
        (tmp_path / RUN_FILE).write_text(text)
    with pytest.raises(DataError, match="give the settings of the run again"):
        read_run_file(tmp_path)
