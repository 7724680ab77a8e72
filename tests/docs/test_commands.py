"""Every command of README and docs runs as a user would run it (``make docs-test``).

The blocks of one page run in order in one folder that holds links to what a checkout has and the
files that a user would bring (tests/docs/given), so that a page may build on its own earlier
commands and leaves nothing behind. Nothing is set in the environment that a user does not set, but
for the number of threads: a user runs one command at a time, ``make docs-test`` two beside each
other, and their threads would spin on each other's processors (a page that trains and samples took
2.7 times the processor time). PyTorch is imported once for all commands.
"""

import shutil
import subprocess
from pathlib import Path

import pytest
from documentation import PAGES, ROOT, RUN, Block, blocks

from layerdag.traces.chakra.corpus import INDEX

OF_A_CHECKOUT = ("configs", "train.py", "sample.py", "benchmarks", "layerdag")
GIVEN = Path(__file__).parent / "given"
EVERY = 4
"""Of so many runs of the corpus one is in ``data``: pages fit surrogates to all of them."""


def to_run(page: Path) -> list[Block]:
    return [block for block in blocks(page) if block.language in RUN and not block.skip]


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkout") / "data"
    shutil.copytree(ROOT / "data", folder)
    runs = (folder / INDEX).read_text().splitlines(keepends=True)
    (folder / INDEX).write_text("".join(runs[::EVERY]))
    return folder


@pytest.mark.docs
@pytest.mark.parametrize(
    "page", [p for p in PAGES if to_run(p)], ids=lambda p: str(p.relative_to(ROOT))
)
def test_commands_of_the_page_run(page, tmp_path, environment, data):
    for file in (data, *(ROOT / name for name in OF_A_CHECKOUT)):
        (tmp_path / file.name).symlink_to(file)
    for file in GIVEN.iterdir():
        (tmp_path / file.name).symlink_to(file)
    for block in to_run(page):
        shell = ("bash", "-euo", "pipefail", "-c")
        done = subprocess.run(
            (*(shell if block.language == "bash" else ("python", "-c")), block.program()),
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=900,
        )
        assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"


@pytest.mark.docs
@pytest.mark.parametrize("block", [b for p in PAGES for b in blocks(p) if b.skip], ids=str)
def test_block_that_is_not_run(block):
    pytest.skip(block.skip)
