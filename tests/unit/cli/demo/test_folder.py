import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from layerdag.cli.demo import held_demo
from layerdag.errors import UsageError


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    """Return a folder that looks like one that a demo has written, with a user's notes in it."""
    out = tmp_path / "demo"
    for name in ("best", "last"):
        checkpoint = out / "training" / name
        checkpoint.mkdir(parents=True)
        (checkpoint / "meta.json").write_text('{"format_version": 2, "layerdag_version": "0.1.0"}')
        (checkpoint / "config.json").write_text('{"run": {"demo": true}}')
    (out / "training" / "train.jsonl").write_text('{"step": 1}\n')
    sample = out / "samples" / "sample-00000"
    sample.mkdir(parents=True)
    (sample / "sample-00000.0.et").touch()
    (sample / "sample-00000.comm_group.json").touch()
    (out / "report.html").touch()
    (out / "report.json").write_text(json.dumps({"title": "", "lead": "", "summary": []}))
    (out / "notes.txt").write_text("precious")
    return out


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_second_demo_may_use_the_folder_of_the_first(demo: Path) -> None:
    before = contents(demo)
    with held_demo(demo):
        pass
    assert contents(demo) == before


def test_two_demos_do_not_use_one_folder(tmp_path: Path) -> None:
    refused = pytest.raises(UsageError, match=f"process {os.getpid()} is writing here")
    with held_demo(tmp_path / "x"), refused:
        held_demo(tmp_path / "x").__enter__()


FOREIGN: dict[str, Callable[[Path], object]] = {
    "a run of one's own": lambda demo: (demo / "training" / "last" / "config.json").write_text(
        '{"run": {"seed": 3}}'
    ),
    "a paper in best": lambda demo: (demo / "training" / "best" / "paper.txt").touch(),
    "a note among the samples": lambda demo: (demo / "samples" / "notes.txt").touch(),
    "a note in a sample": lambda demo: (demo / "samples" / "sample-00000" / "x.txt").touch(),
    "samples of another tool": lambda demo: (demo / "samples" / "drums").mkdir(),
    "another report.json": lambda demo: (demo / "report.json").write_text('{"year": 2024}'),
    "a page without figures": lambda demo: (demo / "report.json").unlink(),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_what_is_not_provably_of_a_demo_is_never_replaced(demo: Path, name: str) -> None:
    FOREIGN[name](demo)
    before = contents(demo)
    with pytest.raises(UsageError, match=r"never replaced"):
        held_demo(demo).__enter__()
    assert contents(demo) == before


def test_a_file_is_no_folder_of_a_demo(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="is a file"):
        held_demo(tmp_path / "file").__enter__()
