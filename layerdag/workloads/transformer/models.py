"""A model by its name or its ``config.json``."""

from pathlib import Path

from layerdag.workloads.transformer.hugging_face import read_hugging_face
from layerdag.workloads.transformer.shapes import ModelShape, preset


def model(name: str | Path) -> ModelShape:
    """Return a public model by its name, or the one that a Hugging Face ``config.json`` describes.

    Raises:
        UsageError: If there is no such model.
        DataError: If the file describes a model whose shape is not known here.
    """
    path = Path(name)
    if path.is_dir():
        path = path / "config.json"
    if path.suffix == ".json" or path.is_file():
        return read_hugging_face(path)
    return preset(str(name))
