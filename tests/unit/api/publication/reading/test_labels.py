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


def test_tables_count_more_than_lists_and_lists_more_than_measured_times(tmp_path: Path) -> None:
    (tmp_path / "a.steps.json").write_text('{"step_time_s": {"min": 1}}')
    (tmp_path / "runs.jsonl").write_text('{"uid": "a", "step_time_s_min": 2, "family": "gpt"}')
    assert find_labels(tmp_path).conditions == {"a": {"label": 2.0, "family": "gpt"}}
    (tmp_path / "labels.csv").write_text("name,label\na,3\n")
    assert find_labels(tmp_path).conditions == {"a": {"label": 3.0, "family": "gpt"}}


@pytest.mark.parametrize(
    ("line", "conditions"),
    [
        ({"step_time_s_min": 2, "step_time_s": 5}, {"label": 2.0}),  # the minimum is the label
        ({"label": 7, "step_time_s_min": 2}, {"label": 7.0}),
        ({"step_time": 4}, {"label": 4.0}),
        ({"step_time_s_min": 0, "step_time_s": 5}, {"label": 5.0}),  # no time takes nothing
        ({"step_time": True, "family": "mlp"}, {"family": "mlp"}),
        ({"step_time": "4", "strategy": "ddp"}, {"strategy": "ddp"}),
        ({"step_time": 1, "family": 3, "phase": None}, {"label": 1.0}),
    ],
)
def test_times_and_kinds_of_jobs_that_a_line_tells(
    tmp_path: Path, line: dict[str, object], conditions: dict[str, object]
) -> None:
    (tmp_path / "runs.jsonl").write_text(json.dumps({"job": "a", **line}))
    assert find_labels(tmp_path).conditions == {"a": conditions}


@pytest.mark.parametrize(
    "line",
    [
        '{"job": "a", "step_time": Infinity}',
        '{"job": "a", "step_time": NaN}',
        '{"job": "a", "step_time": -4}',
        '{"job": 7, "step_time": 1}',
        '["a", 1]',
        "[" * 100_000,
    ],
    ids=["infinite", "no number", "negative", "no name", "no row", "too deep"],
)
def test_a_line_that_tells_nothing_is_passed_over(tmp_path: Path, line: str) -> None:
    (tmp_path / "runs.jsonl").write_text(f'{line}\n{{"job": "b", "step_time": 1}}\n')
    found = find_labels(tmp_path)
    assert found.conditions == {"b": {"label": 1.0}}
    assert found.faulty == ()


def test_a_given_file_inside_the_traces_names_jobs_beside_it(tmp_path: Path) -> None:
    for folder in ("traces/sub", "elsewhere"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "times.csv").write_text("name,label\na,3\n")
    inside = find_labels(tmp_path / "traces", tmp_path / "traces/sub/times.csv")
    outside = find_labels(tmp_path / "traces", tmp_path / "elsewhere/times.csv")
    assert inside.conditions == {"sub/a": {"label": 3.0}}
    assert outside.conditions == {"a": {"label": 3.0}}
    assert inside.sources == outside.sources == ("times.csv",)


def test_a_folder_without_labels_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "readme.txt").write_text("label 3")
    (tmp_path / "labels.csv").mkdir()
    found = find_labels(tmp_path)
    assert (found.conditions, found.sources, found.faulty) == ({}, (), ())
