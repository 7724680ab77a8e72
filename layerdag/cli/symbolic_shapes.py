"""PyTorch's symbolic shapes, which a verb whose sizes are all numbers does not import.

Shape functions ask ``torch.fx.experimental.symbolic_shapes`` whether sizes are known, and it makes
much of sympy. Stand-ins answer for numbers, and make way for the real modules as soon as something
else is asked, or anything else of them.
"""

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from types import MappingProxyType, ModuleType
from typing import Any, final

from layerdag.cli.stand_in import StandIn

_NAME = "torch.fx.experimental.symbolic_shapes"
_BESIDE: Mapping[str, str] = MappingProxyType(
    {
        "torch.utils._sympy.functions": "Max",
        "torch.utils._sympy.interp": "sympy_interp",
        "torch.utils._sympy.numbers": "int_oo",
        "torch.utils._sympy.reference": "PythonReferenceAnalysis",
    }
)
"""What shape functions import from other modules, but call for symbols alone."""
_NUMBERS = (bool, int, float, str, type(None))


def postpone_symbolic_shapes() -> None:
    """Let shape functions do without the real modules, in this process from here on.

    It does nothing where they are there, or are found nowhere.
    """
    names = (_NAME, *_BESIDE)
    if any(name in sys.modules or importlib.util.find_spec(name) is None for name in names):
        return
    _put(_NAME, _KNOWN)
    for name, only in _BESIDE.items():
        _put(name, {only: _UsedForSymbols(name, only)})


def _put(name: str, known: Mapping[str, Any]) -> None:
    """Put a stand-in where the module would be."""
    spec = {"__spec__": importlib.util.find_spec(name)}
    stand_in = sys.modules[name] = StandIn(name, {**known, **spec}, _real)
    parent, _, own = name.rpartition(".")
    setattr(sys.modules[parent], own, stand_in)


def _real(name: str = _NAME) -> ModuleType:
    for other in (_NAME, *_BESIDE):
        if isinstance(sys.modules.get(other), StandIn):
            del sys.modules[other]
    return importlib.import_module(name)


@final
class _UsedForSymbols:
    def __init__(self, module: str, name: str) -> None:
        self._module, self._name = module, name

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Call the real one."""
        return getattr(_real(self._module), self._name)(*args, **named)

    def __getattr__(self, name: str) -> Any:
        """Return what the real one has of that name."""
        return getattr(getattr(_real(self._module), self._name), name)


class _UnknownSizeError(RuntimeError):
    """Of sizes that depend on content, which no numbers do.

    Who has imported it by then does not catch the real error, which only symbols raise.
    """


def _truth(name: str) -> Callable[..., Any]:
    def answer(asked: Any, *more: Any, **named: Any) -> Any:
        return asked if type(asked) is bool else getattr(_real(), name)(asked, *more, **named)

    return answer


def _same(name: str, *kinds: type) -> Callable[..., Any]:
    def answer(asked: Any, *more: Any, **named: Any) -> Any:
        return asked if type(asked) in kinds else getattr(_real(), name)(asked, *more, **named)

    return answer


def _always(name: str, answer: object) -> Callable[..., Any]:
    def answered(asked: Any) -> Any:
        return answer if _is_known(asked) else getattr(_real(), name)(asked)

    return answered


def _concrete(name: str, kind: type) -> Callable[..., Any]:
    def concrete(asked: Any) -> Any:
        return type(asked) is kind or getattr(_real(), name)(asked)

    return concrete


def _none_in(name: str) -> Callable[..., Any]:
    def collected(asked: Any) -> Any:
        from torch.utils._ordered_set import OrderedSet

        return OrderedSet() if _is_known(asked) else getattr(_real(), name)(asked)

    return collected


def _nothing_in(name: str) -> Callable[..., Any]:
    def passed(asked: Any) -> Iterator[Any]:
        return iter(()) if _is_known(asked) else getattr(_real(), name)(asked)

    return passed


def _sym_eq(one: Any, other: Any) -> Any:
    kinds = type(one), type(other)
    if kinds == (int, int):
        return one == other
    listed = isinstance(one, list | tuple) and isinstance(other, list | tuple)
    if listed and all(type(size) is int for size in (*one, *other)):
        return list(one) == list(other)
    return _real().sym_eq(one, other)


def _sym_and(*asked: Any) -> Any:
    known = bool(asked) and all(type(one) is bool for one in asked)
    return all(asked) if known else _real().sym_and(*asked)


def _sym_or(*asked: Any) -> Any:
    known = bool(asked) and all(type(one) is bool for one in asked)
    return any(asked) if known else _real().sym_or(*asked)


def _bindings(shapes: Any, *more: Any, **named: Any) -> Any:
    return None if shapes is None else _real().compute_unbacked_bindings(shapes, *more, **named)


def _is_known(asked: Any) -> bool:
    import torch

    if isinstance(asked, torch.Tensor):
        plain = asked.layout is torch.strided and not asked.is_nested
        return plain and not asked._has_symbolic_sizes_strides
    if isinstance(asked, list | tuple):
        return all(map(_is_known, asked))
    return type(asked) in _NUMBERS


_TRUTHS = (
    "guard_or_false", "guard_or_true", "guard_size_oblivious", "statically_known_true",
    "expect_true",
)  # fmt: skip
_KNOWN: Mapping[str, Any] = MappingProxyType(
    {name: _truth(name) for name in _TRUTHS}
    | {
        f"is_concrete_{kind.__name__}": _concrete(f"is_concrete_{kind.__name__}", kind)
        for kind in (bool, float, int)
    }
    | {
        name: _always(name, answer)
        for name, answer in {
            "has_guarding_hint": True,
            "is_nested_int": False,
            "has_free_symbols": False,
            "has_free_unbacked_symbols": False,
        }.items()
    }
    | {name: _none_in(name) for name in ("free_symbols", "free_unbacked_symbols")}
    | {name: _nothing_in(name) for name in ("_iterate_exprs", "_iterate_nodes")}
    | {
        "guarding_hint_or_throw": _same("guarding_hint_or_throw", int, bool),
        "optimization_hint": _same("optimization_hint", int),
        "sym_eq": _sym_eq,
        "sym_and": _sym_and,
        "sym_or": _sym_or,
        "compute_unbacked_bindings": _bindings,
        "GuardOnDataDependentSymNode": _UnknownSizeError,
        "_ignore_fresh_unbacked_symbols_tls_context": nullcontext,
    }
)
