"""The flags of ``layerdag demo``; what it does is in ``tests/unit/api/test_demo.py``."""

from pathlib import Path

import pytest

from layerdag.api.demo import DemoSettings
from layerdag.cli.main import main


@pytest.fixture
def asked(monkeypatch) -> list[tuple[DemoSettings, bool]]:
    calls: list[tuple[DemoSettings, bool]] = []
    monkeypatch.setattr("layerdag.api.demo.report", lambda settings: (settings, Path()))
    monkeypatch.setattr(
        "layerdag.cli.commands.demo.print_summary",
        lambda content, _, *, as_json: calls.append((content, as_json)),
    )
    return calls


def test_without_flags_the_usual_settings_are_taken(asked):
    assert main(["demo"]) == 0
    assert asked == [(DemoSettings(Path("outputs/demo")), False)]


def test_flags_reach_the_settings(asked):
    words = ["--out", "there", "--seed", "3", "--short", "--json"]
    assert main(["demo", *words]) == 0
    assert asked == [(DemoSettings.short(Path("there"), 3), True)]
