"""Where the YAML files lie; known without Hydra, which takes a second to import."""

from pathlib import Path

import layerdag


def config_dir() -> Path:
    """Return the folder of the YAML files: inside an installed package, or beside a checkout."""
    package = Path(layerdag.__file__).parent
    inside = package / "_configs"
    return inside if inside.is_dir() else package.parent / "configs"
