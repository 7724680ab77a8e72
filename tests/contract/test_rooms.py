"""The folders of the package are its architecture: what holds for every one of them."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from rooms import PACKAGE, ROOMS, folder_of

MOST_SIBLINGS = 12
# Users import each, or it is a floor of its own (docs/dev/design.md).
MOST_BY_ROOM = {"layerdag": 18}
_BESIDE_THE_CODE = {"__init__.py", "__init__.pyi", "__main__.py", "__pycache__", "py.typed"}


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_says_what_it_is_for(room: str) -> None:
    tree = ast.parse((folder_of(room) / "__init__.py").read_text())
    assert ast.get_docstring(tree)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_holds_at_most_a_dozen_things(room: str) -> None:
    things = [path.name for path in folder_of(room).iterdir() if _is_code(path)]
    assert len(things) <= MOST_BY_ROOM.get(room, MOST_SIBLINGS), things


def test_modules_are_private_and_rooms_are_not() -> None:
    public = {"layerdag/errors.py"}
    for path in PACKAGE.rglob("*.py"):
        where = path.relative_to(PACKAGE.parent).as_posix()
        assert path.name.startswith("_") or where in public, where


def test_private_modules_are_imported_in_their_own_room_only() -> None:
    for path, module in _imports():
        room, _, leaf = module.rpartition(".")
        if leaf.startswith("_") and leaf not in ("_version", "_runtime"):
            assert folder_of(room) == path.parent, f"{path} imports {module}"


def _is_code(path: Path) -> bool:
    """Whether a newcomer has to read ``path`` to know the room."""
    data = path.suffix in (".so", ".pyd") or path.name == "pretrained"
    return path.name not in _BESIDE_THE_CODE and not data


def _imports() -> Iterator[tuple[Path, str]]:
    """Yield every import of the package's own modules, with the file that makes it."""
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("layerdag"):
                yield path, str(node.module)
