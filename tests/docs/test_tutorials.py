"""The Python of a page, blocks tagged ``python test``, runs in order as one script."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
BLOCK = re.compile(r"^```python test\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = [page for page in sorted(DOCS.rglob("*.md")) if BLOCK.search(page.read_text())]


@pytest.mark.slow
@pytest.mark.docs
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_code_of_the_page_runs(page: Path, tmp_path: Path) -> None:
    (tmp_path / "page.py").write_text("\n".join(BLOCK.findall(page.read_text())))
    done = subprocess.run(
        [sys.executable, "page.py"],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr


def test_every_tutorial_has_code_that_runs() -> None:
    tutorials = sorted((DOCS / "tutorials").glob("*.md"))
    assert len(tutorials) == 6
    assert set(tutorials) < set(PAGES)
