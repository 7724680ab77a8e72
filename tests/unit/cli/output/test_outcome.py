"""A repeated audit of the same files is told, and computed again once anything has changed."""

import functools
import json
from pathlib import Path

import pytest
from raw_graphs import chain

import layerdag as ld
from layerdag.api import audit_of
from layerdag.cli import main
from layerdag.cli.verbs.models import _audit as verb
from layerdag.datasets import encoded
from layerdag.datasets.files import write_json

GRAPHS = [chain(f"g{i}", "abcab"[: 2 + i % 4] * (1 + i // 4)) for i in range(12)]
DATA = ld.GraphDataset.build("chains", "flow", {"train": GRAPHS[:6], "test": GRAPHS[6:]})


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    monkeypatch.setenv("LAYERDAG_CACHE", str(tmp_path / "entries"))
    parts = {"train": range(6), "holdout": range(6, 12), "synthetic": range(12, 16)}
    for name, numbers in parts.items():
        (tmp_path / name).mkdir()
        for i in numbers:
            word = "abcab"[: 2 + i % 4] * (1 + i // 4)
            write_json(tmp_path / name / f"g{i}.json", chain(f"g{i}", word))
    return {name: tmp_path / name for name in parts}


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    calls: list[bool] = []
    audit = functools.cache(lambda: audit_of(DATA, encoded(GRAPHS[:5], DATA.schema)))
    monkeypatch.setattr(verb, "_of_folders", lambda *_: (calls.append(True), audit())[1])
    return calls


def test_the_second_audit_of_the_same_files_says_the_same_without_computing(
    folders: dict[str, Path],
    computed: list[bool],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = ["audit", *(w for name, path in folders.items() for w in (f"--{name}", str(path)))]
    assert main([*command, "--json", str(tmp_path / "first.json")]) == 0
    first = capsys.readouterr()
    page = tmp_path / "page.html"
    wanted = ["--json", str(tmp_path / "again.json"), "--report", str(page), "--strict"]
    assert main([*command, *wanted]) == 1
    again = capsys.readouterr()

    assert len(computed) == 1
    assert again.out == f"{first.out}report: {page}\n"
    assert "of an earlier audit" in again.err
    assert "of an earlier audit" not in first.err
    figures = [(tmp_path / f"{name}.json").read_text() for name in ("first", "again")]
    assert figures[0] == figures[1]
    assert json.loads(page.with_suffix(".json").read_text())["leaks"]

    assert main([*command, "--no-cache"]) == 0
    assert len(computed) == 2
    write_json(folders["synthetic"] / "g12.json", chain("g12", "bbbb"))
    assert main(command) == 0
    assert len(computed) == 3
