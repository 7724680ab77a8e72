"""The flags of ``layerdag release``; what it does is in ``tests/unit/publication``."""

import json
from typing import Any

import pytest
from traced_jobs import write_jobs

from layerdag.cli.main import main
from layerdag.publication.evaluation import ReleaseDecision, ReleaseVerdict
from layerdag.publication.pipeline import Release
from layerdag.publication.settings import ReleaseSettings
from layerdag.publication.workspace import FOUND


def test_flags_become_settings_and_the_exit_code_says_whether_there_is_a_release(
    tmp_path, monkeypatch, capsys
):
    asked: list[ReleaseSettings] = []
    outcomes = [ReleaseDecision.RESERVED, ReleaseDecision.NO]

    def run_release(settings: ReleaseSettings, tell: Any) -> Release:
        asked.append(settings)
        tell("reading")
        return Release(settings.out, settings.private, ReleaseVerdict(outcomes.pop(0)), None)

    monkeypatch.setattr("layerdag.publication.pipeline.run_release", run_release)
    folder = write_jobs(tmp_path / "traces", 1)
    words = ["release", str(folder), "--out", str(tmp_path / "out"), "--budget", "5m"]
    assert main([*words, "--num", "7", "--license", "CC-BY-4.0"]) == 0
    assert main([*words, "--json"]) == 1
    assert {settings.until for settings in asked} == {"evaluate"}
    assert (asked[0].budget, asked[0].num, asked[0].license) == (300.0, 7, "CC-BY-4.0")
    printed = capsys.readouterr()
    assert "may be published" in printed.out
    assert "layerdag: reading" in printed.err
    assert json.loads(printed.out[printed.out.index("{") :])["released"] is False


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--budget", "soon"], "write a time such as 900, 15m or 1h"),
        (["--budget", "3"], "at least 20 seconds"),
        (["--num", "0"], "'num' must be at least 1"),
        (["--until", "dawn"], "'until' must be one of read, train, sample, evaluate"),
    ],
)
def test_wrong_use_is_a_sentence(tmp_path, capsys, words, told):
    folder = write_jobs(tmp_path / "traces", 1)
    assert main(["release", str(folder), "--out", str(tmp_path / "out"), *words]) == 2
    assert told in capsys.readouterr().err


def test_a_folder_that_is_not_there_is_wrong_use(tmp_path, capsys):
    assert main(["release", str(tmp_path / "no"), "--out", str(tmp_path / "out")]) == 2
    assert "there is no such folder" in capsys.readouterr().err


def test_what_was_not_understood_is_printed_kept_and_refused_strictly(tmp_path, capsys):
    folder = write_jobs(tmp_path / "traces", 3)
    words = ["release", str(folder), "--out", str(tmp_path / "out"), "--until", "read", "--strict"]
    assert main(words) == 0
    assert "note: " not in capsys.readouterr().err
    times = tmp_path / "times.jsonl"
    times.write_text('{"name": "secretproj-0", "label": "soon"}\n')
    assert main([*words, "--labels", str(times), "--overwrite", "--json"]) == 1
    printed = capsys.readouterr()
    assert printed.err.count("note: ") == 1
    (told,) = json.loads(printed.out)["notes"]
    assert told["word"] == "soon"
    assert json.loads((tmp_path / "out.private" / FOUND).read_text())["notes"] == [told]
    assert main([*words[:-1], "--overwrite"]) == 0


def test_three_runs_are_too_few_and_say_so(tmp_path, capsys):
    folder = write_jobs(tmp_path / "traces", 3)
    assert main(["release", str(folder), "--out", str(tmp_path / "out")]) == 1
    printed = capsys.readouterr()
    assert printed.out.startswith("The samples must not be published: too few graphs to tell")
    assert "Collect at least 5 more runs" in printed.out
