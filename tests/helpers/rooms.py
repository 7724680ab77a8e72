"""The rooms of the package: every folder with an ``__init__.py``."""

from pathlib import Path

import layerdag

PACKAGE = Path(str(layerdag.__file__)).parent


def folder_of(room: str) -> Path:
    """Return the folder of a dotted name."""
    return PACKAGE.parent.joinpath(*room.split("."))


ROOMS = sorted(
    ".".join(path.parent.relative_to(PACKAGE.parent).parts) for path in PACKAGE.rglob("__init__.py")
)
