"""Every script in ``examples`` runs as a user would run it, and as a notebook that makes a page."""

import subprocess
import sys
from pathlib import Path

import pytest
from documentation import ROOT

sys.path.insert(0, str(ROOT / "tools" / "docs"))
from notebooks import Cell, cells, notebooks, page

SHORT = {
    "quickstart.py": {"max_steps=30, evaluate_every=30": "max_steps=2", "num=8": "num=2"},
    "traces_to_samples.py": {"num=24": "num=6"},
}
"""What would take long, by script."""
EXAMPLES = sorted((Path(__file__).resolve().parents[2] / "examples").glob("*.py"))


@pytest.mark.slow
@pytest.mark.docs
@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.name)
def test_the_script_runs_and_leaves_nothing_behind(script, tmp_path, environment):
    text, folder = script.read_text(), tmp_path / "run"
    for old, new in SHORT.get(script.name, {}).items():
        assert old in text
        text = text.replace(old, new)
    (tmp_path / script.name).write_text(text)
    folder.mkdir()
    done = subprocess.run(
        ["python", str(tmp_path / script.name)],
        cwd=folder,
        env={**environment, "MPLBACKEND": "Agg"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert not list(folder.iterdir())


def test_the_quickstart_is_short():
    (quickstart,) = [path for path in EXAMPLES if path.name == "quickstart.py"]
    assert len(quickstart.read_text().splitlines()) <= 30


def test_there_are_notebooks_with_a_title_text_and_pictures():
    assert [path.stem for path in notebooks()] == ["clusters", "traces_to_samples"]
    for script in notebooks():
        found = cells(script.read_text())
        assert found[0].is_text
        assert found[0].source.startswith("# ")
        assert sum(cell.is_text for cell in found) > 4
        assert sum("plt.subplots" in cell.source for cell in found) > 1


def test_a_notebook_becomes_a_page_with_what_it_prints_and_draws(tmp_path):
    script = tmp_path / "tiny.py"
    script.write_text(
        "# %% [markdown]\n# # Title\n#\n# Text.\n\n# %%\nimport matplotlib.pyplot as plt\n\nx = 3\n"
        "# %%\nprint(x)\nfigure, axis = plt.subplots()\n"
    )
    text, pictures = page(script)
    assert cells(script.read_text())[0] == Cell(is_text=True, source="# Title\n\nText.")
    assert text.startswith("# Title\n\nText.\n\n*A notebook")
    assert "```text\n3\n```" in text
    assert "![Picture 1](tiny-1.png)" in text
    assert pictures["tiny-1.png"].startswith(b"\x89PNG")
