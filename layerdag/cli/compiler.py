"""PyTorch's compiler, which a verb that compiles nothing does not import.

Fake tensors and optimizers import all of ``torch._dynamo``, 0.7 s of processor time, to read its
settings and to tell it what it is not to compile, or where tensors come from. Stand-ins take that,
and make way for the real package as soon as anything else of it is asked for.
"""

import importlib
import importlib.util
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any, final

_NAME = "torch._dynamo"
_SOURCE = f"{_NAME}.source"
_SETTINGS, _PARTS, _OTHER_HALF = f"{_NAME}.config", f"{_NAME}.", "torch._inductor"


@final
class _StandIn(ModuleType):
    """A module before it is imported, with what can be had of it until then."""

    def __init__(self, name: str, **known: Any) -> None:
        super().__init__(name)
        vars(self).update(known)

    def __getattr__(self, name: str) -> Any:
        """Import the package and return what this module of it has of that name."""
        if name.startswith("__"):
            raise AttributeError(name)
        _import_compiler()
        return getattr(importlib.import_module(self.__name__), name)


@final
class _InOrder(MetaPathFinder, Loader):
    """Imports the whole compiler first, where a part of it is imported.

    Its parts import each other in circles, which only some first one leads into.
    """

    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        """Import the compiler, if this is a part of it, and hand out what was imported."""
        part = fullname == _OTHER_HALF or (fullname.startswith(_PARTS) and fullname != _SETTINGS)
        if not part or not isinstance(sys.modules.get(_NAME), _StandIn):
            return None
        _import_compiler()
        return ModuleSpec(fullname, self) if fullname in sys.modules else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module as it was imported meanwhile."""
        return sys.modules[spec.name]

    def exec_module(self, module: ModuleType) -> None:
        """Leave it as it is."""


def _import_compiler() -> None:
    """Import the real package in place of the stand-ins."""
    if isinstance(sys.modules.get(_NAME), _StandIn):
        del sys.modules[_NAME], sys.modules[_SOURCE]
        delattr(sys.modules["torch"], "_dynamo")
    importlib.import_module(_NAME)


def postpone_compiler() -> None:
    """Let nothing import the compiler that can do without, in this process from here on.

    For a process of our own: what PyTorch told the stand-ins not to compile, the compiler never
    hears of. It does nothing where the compiler is there.
    """
    import torch

    spec = None if _NAME in sys.modules else importlib.util.find_spec(_NAME)
    if spec is None or not spec.submodule_search_locations:
        return
    sys.modules[_NAME] = torch._dynamo = _package(spec)
    sys.modules[_SOURCE] = torch._dynamo.source
    sys.meta_path.insert(0, _InOrder())


def _left_alone(function: Any = None, *_: object, **__: object) -> Any:
    """Return a function as it is, and without one what returns it."""
    return _left_alone if function is None else function


def _package(spec: ModuleSpec) -> _StandIn:
    """Return the stand-in for the package, whose settings are those of its own file."""
    from torch._guards import Source

    # What calls them only tells where a tensor comes from.
    unknown = type("ConstantSource", (Source,), {"__init__": lambda *_: None})
    random = type("RandomValueSource", (Source,), {})
    return _StandIn(
        _NAME,
        __path__=list(spec.submodule_search_locations or ()),
        __spec__=spec,
        source=_StandIn(_SOURCE, ConstantSource=unknown, RandomValueSource=random),
        disable=_left_alone,
        graph_break=lambda *_: None,
        OptimizedModule=type("OptimizedModule", (), {}),  # of which there is none
        # Rules of what is compiled, which are made anew when processes meet.
        trace_rules=SimpleNamespace(clear_lru_cache=lambda: None),
    )
