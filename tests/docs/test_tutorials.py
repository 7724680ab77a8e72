"""The Python of a page, blocks tagged ``python test``, runs in order as one script."""

import subprocess
from pathlib import Path

import pytest
from documentation import ROOT, blocks

DOCS = ROOT / "docs"


def script(page: Path) -> str:
    return "\n".join(block.program() for block in blocks(page) if block.language == "python test")


PAGES = [page for page in sorted(DOCS.rglob("*.md")) if script(page)]


@pytest.mark.slow
@pytest.mark.docs
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_code_of_the_page_runs(page, tmp_path, environment):
    (tmp_path / "page.py").write_text(script(page))
    done = subprocess.run(
        ["python", "page.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr


def test_every_tutorial_has_code_that_runs():
    tutorials = sorted((DOCS / "tutorials").glob("*.md"))
    assert len(tutorials) == 10
    assert set(tutorials) <= set(PAGES)
