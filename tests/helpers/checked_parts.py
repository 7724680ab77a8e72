"""Parts of a schema as they are read from a checkpoint: typed, then checked."""

from typing import Any, Protocol, TypeVar

from layerdag.runtime.json_shape import from_json


class Checkable(Protocol):
    def check(self) -> None: ...


T = TypeVar("T", bound=Checkable)


def checked(cls: type[T], data: Any) -> T:
    found = from_json(cls, data)
    found.check()
    return found
