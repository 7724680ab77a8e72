"""Parts of a schema as they are read from a checkpoint: typed, then checked."""

from typing import Any, TypeVar

from layerdag.runtime.json_shape import from_json

T = TypeVar("T")


def checked(cls: type[T], data: Any) -> T:
    found = from_json(cls, data)
    found.check()  # type: ignore[attr-defined]
    return found
