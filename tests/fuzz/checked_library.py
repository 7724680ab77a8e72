"""A pytest plugin: the library in ``CHECKED_LIBRARY`` stands in for the installed one."""

import importlib.util
import os
from importlib.machinery import ModuleSpec

_find_spec = importlib.util.find_spec


def find_spec(name: str, package: str | None = None) -> ModuleSpec | None:
    """Find ``layerdag._native`` where the environment says, all else as usual."""
    if name == "layerdag._native":
        return ModuleSpec(name, None, origin=os.environ["CHECKED_LIBRARY"])
    return _find_spec(name, package)


importlib.util.find_spec = find_spec
