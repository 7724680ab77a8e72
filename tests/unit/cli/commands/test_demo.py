"""The flags of ``layerdag demo``; what it does is in ``tests/unit/api/test_demo.py``."""

from pathlib import Path

import pytest

from layerdag.api.demo import DemoSettings
from layerdag.cli.main import main
from layerdag.traces.chakra.corpus import embedded_corpus


@pytest.fixture
def asked(monkeypatch) -> list[tuple[DemoSettings, bool]]:
    calls: list[tuple[DemoSettings, bool]] = []
    monkeypatch.setattr("layerdag.api.demo.report", lambda settings: (settings, Path()))
    monkeypatch.setattr(
        "layerdag.cli.commands.demo.print_summary",
        lambda content, _, *, as_json: calls.append((content, as_json)),
    )
    return calls


def test_without_flags_the_embedded_corpus_is_taken(asked):
    assert main(["demo"]) == 0
    assert asked == [(DemoSettings(Path(embedded_corpus()), Path("outputs/demo")), False)]


def test_flags_reach_the_settings(asked):
    words = ["--data", "mine", "--out", "there", "--seed", "3", "--short", "--json"]
    assert main(["demo", *words]) == 0
    assert asked == [(DemoSettings.short(Path("mine"), Path("there"), 3), True)]
