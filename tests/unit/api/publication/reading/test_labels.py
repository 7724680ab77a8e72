"""Labels from label files, lists of runs and measured step times."""

import json
from pathlib import Path

import pytest

from layerdag.api.publication.reading import find_labels
from layerdag.errors import DataError


def test_lists_of_runs_measured_times_and_tables_are_found(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    lines = [
        {"uid": "a", "step_time_s_min": 0.5, "family": "gpt", "other": "x"},
        {"uid": "b", "step_time_s_min": -1},
        {"nothing": 1},
    ]
    (tmp_path / "metadata.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\nno json\n")
    (tmp_path / "sub" / "c.steps.json").write_text('{"step_time_s": {"min": 0.25}}')
    (tmp_path / "sub" / "labels.csv").write_text("name,label\nd,3\n")
    found = find_labels(tmp_path)
    assert found.conditions == {
        "a": {"label": 0.5, "family": "gpt"},
        "sub/c": {"label": 0.25},
        "sub/d": {"label": 3.0},
    }
    assert found.sources == ("sub/c.steps.json", "metadata.jsonl", "sub/labels.csv")


def test_a_damaged_file_is_named_and_the_others_count(tmp_path: Path) -> None:
    (tmp_path / "c.steps.json").write_text("{}")
    (tmp_path / "labels.json").write_text('{"a": 1}')
    found = find_labels(tmp_path)
    assert found.conditions == {"a": {"label": 1.0}}
    assert "holds no measured step time" in found.faulty[0]


def test_the_file_that_is_given_must_be_readable(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"times\.csv"):
        find_labels(tmp_path, tmp_path / "times.csv")
