"""Programs as text; every test here needs jaxlib."""

from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("jaxlib", reason="StableHLO is parsed by jaxlib, the extra 'hlo'")


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str], Path]:
    """Return what puts the body of a main function into a file."""

    def write(body: str, attributes: str = "") -> Path:
        file = tmp_path / "program.mlir"
        file.write_text(f"module @program attributes {{{attributes}}} {{\n{body}\n}}\n")
        return file

    return write
