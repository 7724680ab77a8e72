"""A module of PyTorch's, or one that it imports, before it is imported."""

import importlib
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, final


@final
class StandIn(ModuleType):
    """Answers for a module with what is known of it, and makes way when something else is asked.

    Args:
        name: Of the module.
        known: What can be had of it until then.
        make_way: Imports the real modules in place of the stand-ins.
    """

    def __init__(self, name: str, known: Mapping[str, Any], make_way: Callable[[], object]) -> None:
        super().__init__(name)
        vars(self).update(known, _make_way=make_way)

    def __getattr__(self, name: str) -> Any:
        """Return what the real module has of that name."""
        if name.startswith("__") and name != "__version__":  # which Python looks for by itself
            raise AttributeError(name)
        self._make_way()
        return getattr(importlib.import_module(self.__name__), name)
