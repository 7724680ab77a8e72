"""The counts behind the picture of the rooms, on a package of five modules."""

import sys
from pathlib import Path

import pytest
from documentation import ROOT

sys.path.insert(0, str(ROOT / "tools"))
import structure


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a package whose room `top` uses `low` through its stub, and is used by `roof`."""
    files = {
        "layerdag/__init__.py": "",
        "layerdag/low/__init__.py": "",
        "layerdag/low/__init__.pyi": "from ._a import A as A\n",
        "layerdag/low/_a.py": "from layerdag.low._b import B\n",
        "layerdag/low/_b.py": "def B():\n    from layerdag.low._a import A\n",
        "layerdag/top/__init__.py": "",
        "layerdag/top/_c.py": (
            "from typing import TYPE_CHECKING\nfrom layerdag.low import A\n"
            "if TYPE_CHECKING:\n    from layerdag.roof import D\n"
        ),
        "layerdag/roof.py": "import layerdag\nfrom layerdag.top._c import A\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_arrows_end_at_the_module_that_defines_a_name_and_skip_annotations(checkout: Path) -> None:
    assert set(structure.graph(checkout).edges) == {
        ("layerdag.low._a", "layerdag.low._b"),
        ("layerdag.low._b", "layerdag.low._a"),
        ("layerdag.top._c", "layerdag.low._a"),
        ("layerdag.roof", "layerdag.top._c"),
        ("layerdag.roof", "layerdag"),
    }


def test_figures_count_rooms_floors_and_circles(checkout: Path) -> None:
    found = structure.figures(checkout)
    assert found["modules"] == 4
    assert (found["rooms"], found["arrows between rooms"], found["floors"]) == (3, 2, 3)
    assert found["circles of modules"] == [["layerdag.low._a", "layerdag.low._b"]]
    assert found["modules that import the front door"] == 1
    assert structure.svg(checkout).count("<rect") == 1 + 3


def test_rooms_of_a_circle_share_a_floor(checkout: Path) -> None:
    (checkout / "layerdag/low/_a.py").write_text("from layerdag.roof import D\n")
    assert structure.figures(checkout)["rooms in circles"] == ["low", "roof", "top"]
    assert structure.figures(checkout)["floors"] == 1


def test_the_package_has_no_circle() -> None:
    found = structure.figures(ROOT)
    assert found["circles of modules"] == []
    assert found["rooms in circles"] == []
