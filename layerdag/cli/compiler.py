"""PyTorch's compiler, which a verb that compiles nothing does not import.

Fake tensors and optimizers import all of ``torch._dynamo``, 0.7 s of processor time, to read its
settings and to tell it what it is not to compile, or where tensors come from; and sympy, 0.5 s, to
ask whether a size is an expression. Stand-ins take that, and make way for the real package as soon
as anything else of it is asked for.
"""

import importlib
import importlib.util
import sys
from functools import partial
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any, final

from layerdag.cli.stand_in import StandIn
from layerdag.cli.symbolic_shapes import postpone_symbolic_shapes

_NAME, _ALGEBRA = "torch._dynamo", "sympy"
_SOURCE = f"{_NAME}.source"
_SETTINGS, _OTHER_HALF = f"{_NAME}.config", "torch._inductor"


@final
class _InOrder(MetaPathFinder, Loader):
    """Imports a whole package first, where a part of it is imported.

    Its parts import each other in circles, which only some first one leads into.
    """

    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        """Import the package, if this is a part of one, and hand out what was imported."""
        package = _package_of(fullname)
        if package is None or not isinstance(sys.modules.get(package), StandIn):
            return None
        _import_package(package)
        module = sys.modules.get(fullname)
        if module is None:
            return None
        # Python takes the spec of a module that was imported meanwhile, and would run it again.
        module.__spec__ = ModuleSpec(fullname, self, loader_state=module.__spec__)
        return module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module as it was imported meanwhile."""
        return sys.modules[spec.name]

    def exec_module(self, module: ModuleType) -> None:
        """Leave it as it is, with its own spec."""
        if module.__spec__ is not None:
            module.__spec__ = module.__spec__.loader_state


def _package_of(name: str) -> str | None:
    if name == _OTHER_HALF:
        return _NAME
    parts = (package for package in (_NAME, _ALGEBRA) if name.startswith(f"{package}."))
    return None if name == _SETTINGS else next(parts, None)


def _import_package(package: str) -> None:
    stand_in = sys.modules.get(package)
    if isinstance(stand_in, StandIn):
        del sys.modules[package]
        if package == _NAME:
            del sys.modules[_SOURCE], sys.modules["torch"]._dynamo
        vars(stand_in).update(vars(importlib.import_module(package)))  # for whoever holds it


def postpone_compiler() -> None:
    """Let nothing import the compiler and sympy that can do without, in this process from here on.

    For a process of our own: what PyTorch told the stand-ins not to compile, the compiler never
    hears of. It does nothing about what is there already.
    """
    import torch

    postpone_symbolic_shapes()
    compiler, algebra = _missing(_NAME), _missing(_ALGEBRA)
    if algebra is not None:
        # Shape functions ask whether a size is an expression.
        sys.modules[_ALGEBRA] = _package(_ALGEBRA, algebra, Basic=type("Basic", (), {}))
    if compiler is not None:
        sys.modules[_NAME] = torch._dynamo = _compiler(compiler)
        sys.modules[_SOURCE] = torch._dynamo.source
    if compiler is not None or algebra is not None:
        sys.meta_path.insert(0, _InOrder())


def _missing(package: str) -> ModuleSpec | None:
    """Return where a package is that was not imported yet; None if it is nowhere."""
    spec = None if package in sys.modules else importlib.util.find_spec(package)
    return spec if spec is not None and spec.submodule_search_locations else None


def _left_alone(function: Any = None, *_: object, **__: object) -> Any:
    return _left_alone if function is None else function


def _package(name: str, spec: ModuleSpec, **known: Any) -> StandIn:
    """Return the stand-in for a package; a part that it does not stand in for is its own file."""
    parts = list(spec.submodule_search_locations or ())
    known |= {"__path__": parts, "__spec__": spec}
    return StandIn(name, known, partial(_import_package, name))


def _compiler(spec: ModuleSpec) -> StandIn:
    from torch._guards import Source

    # What calls them only tells where a tensor comes from.
    unknown = type("ConstantSource", (Source,), {"__init__": lambda *_: None})
    random = type("RandomValueSource", (Source,), {})
    known = {"ConstantSource": unknown, "RandomValueSource": random}
    source = StandIn(_SOURCE, known, partial(_import_package, _NAME))
    return _package(
        _NAME,
        spec,
        source=source,
        disable=_left_alone,
        graph_break=lambda *_: None,
        OptimizedModule=type("OptimizedModule", (), {}),  # of which there is none
        # Rules of what is compiled, which are made anew when processes meet.
        trace_rules=SimpleNamespace(clear_lru_cache=lambda: None),
    )
