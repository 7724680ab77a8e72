"""The published schema of a report's figures: scripts of others rely on it."""

import dataclasses
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from small_reports import small_report

from layerdag.evaluation.metrics.base import Goal
from layerdag.report.content import Lane, ReportContent
from layerdag.report.page import report_figures
from layerdag.statistics import Verdict

SCHEMA = Path(__file__).resolve().parents[2] / "docs" / "reference" / "report.schema.json"


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    return json.loads(SCHEMA.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def content() -> ReportContent:
    return small_report()


@pytest.fixture(scope="module")
def figures(content) -> dict[str, Any]:
    return json.loads(json.dumps(report_figures(content), allow_nan=False))


def faults(schema: dict[str, Any], figures: object) -> list[str]:
    found = Draft202012Validator(schema).iter_errors(figures)
    return [f"{one.json_path}: {one.message}" for one in found]


def test_it_is_a_schema(schema):
    Draft202012Validator.check_schema(schema)


def test_a_report_with_every_part_is_described(schema, figures):
    assert faults(schema, figures) == []
    empty = [name for name, value in figures.items() if value in (None, [], "")]
    # What the example leaves out would be described without anybody noticing that it is wrong.
    assert set(empty) <= {"weight_attacks", "repairs"}


def test_a_report_without_any_part_is_described(schema):
    assert faults(schema, report_figures(ReportContent("Empty", "Nothing."))) == []


def test_further_parts_are_described(schema, content):
    attacks = content.leaks.attacks
    further = replace(content, weight_attacks=attacks, repairs=(("a repair", 3),))
    assert faults(schema, json.loads(json.dumps(report_figures(further)))) == []


def test_every_field_is_in_the_schema_and_nothing_else(schema):
    fields = {field.name for field in dataclasses.fields(ReportContent)}
    assert schema["properties"].keys() == {"format", *fields}
    assert set(schema["required"]) == schema["properties"].keys()


def test_words_are_those_of_the_package(schema):
    parts = schema["$defs"]
    goals = parts["metric"]["properties"]["goal"]["enum"]
    assert set(goals) == {goal.value for goal in Goal}
    for part in ("attack", "nearness"):
        words = parts[part]["properties"]["verdict"]["enum"]
        assert set(words) == {verdict.value for verdict in Verdict}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("answers", 0, "tone"), "splendid"),
        (("format",), "layerdag-report/2"),
        (("similarity", "rows", 0, "ratio"), "1.0"),
        (("novelty", "copied"), 1.5),
        (("leaks", "nearness", "verdict"), "maybe"),
        (("distributions", 0, "samples", 0, "values"), None),
        (("neighbors", 0, "new key"), 1),
    ],
)
def test_what_is_wrong_is_refused(schema, figures, path, value):
    broken = json.loads(json.dumps(figures))
    place = broken
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    assert faults(schema, broken)


def test_lanes_are_on_the_page_and_not_among_the_figures(figures):
    assert {field.name for field in dataclasses.fields(Lane)} > {"name"}
    assert figures["timelines"][0]["lanes"] == [{"name": "rank 0 computes"}]
