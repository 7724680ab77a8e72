import json
from pathlib import Path

import pytest

from layerdag.api.demo import DemoSettings, report
from layerdag.cli.commands.demo import print_summary


def test_demo_runs_end_to_end_on_tiny_sizes(
    small_corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = DemoSettings(
        data=small_corpus,
        out=tmp_path / "demo",
        max_nodes=40,
        train_steps=4,
        width=32,
        samples=9,
        families=("boosting",),
        processes=1,
    )
    print_summary(*report(settings), as_json=True)
    printed = json.loads(capsys.readouterr().out)
    rows = {row["what"]: row for row in printed["summary"]}
    assert rows["valid graphs"]["synthetic"] == "100%"
    assert rows["layer-consistent graphs"]["synthetic"] == "100%"
    page = Path(printed["report"])
    assert page.read_text().startswith("<!doctype html>")
    figures = json.loads(page.with_suffix(".json").read_text())
    assert figures["structure"]["graphs"] == 9
    assert len(list((tmp_path / "demo" / "samples").iterdir())) == 8
    assert not list(settings.out.rglob(".*"))
