"""Which module of a model runs, scopes in host traces that say so, and the units of a model."""

import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, final

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import record_function

from layerdag.traces.pytorch.forward_calls import AUTOCAST_SCOPE, MODULE_SCOPE, UNIT_SCOPE


@final
class RunningModule:
    """Follows which part of a model runs.

    Modules that are not part of the model count as the one that calls them.

    Attributes:
        path: Path of the innermost module that runs; "" outside of all.
    """

    def __init__(self, model: nn.Module | None = None) -> None:
        self.path = ""
        self._path_of = {} if model is None else {id(m): n for n, m in model.named_modules()}
        self._outside: list[str] = []

    @contextmanager
    def followed(self, *, after_errors: bool) -> Iterator[None]:
        """Keep ``path`` up to date inside the block.

        Args:
            after_errors: Whether a module that fails is left, too: then ``path`` is true even where
                the model catches the error. Else it is where the error arose.
        """
        with ExitStack() as hooks:
            for handle in (
                register_module_forward_pre_hook(self._enter),
                register_module_forward_hook(self._leave, always_call=after_errors),
            ):
                hooks.callback(handle.remove)
            yield

    def _enter(self, module: nn.Module, _: Any) -> None:
        self._outside.append(self.path)
        self.path = self._path_of.get(id(module), self.path)

    def _leave(self, *_: Any) -> None:
        if self._outside:
            self.path = self._outside.pop()


@contextmanager
def module_scopes() -> Iterator[None]:
    """Write the calls of all modules inside the block into the traces that are recorded there.

    Paths are those inside the module that is called first, without the wrapper of
    ``DistributedDataParallel``; where further ones with parameters are called from outside, those
    inside them begin with the name of their class.
    """
    scopes = _Scopes()
    with ExitStack() as hooks:
        for handle in (
            register_module_forward_pre_hook(scopes.enter),
            register_module_forward_hook(scopes.leave, always_call=True),
        ):
            hooks.callback(handle.remove)
        yield


class _Scopes:
    def __init__(self) -> None:
        self._open: list[ExitStack] = []
        self._paths: weakref.WeakKeyDictionary[nn.Module, str] = weakref.WeakKeyDictionary()
        self._units: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        self._roots = 0

    def enter(self, module: nn.Module, _: Any) -> None:
        """Open the scopes of a module."""
        if not self._open and module not in self._paths:
            self._name(module)
        scopes = ExitStack()
        self._open.append(scopes)
        path = self._paths.get(module, "")
        if path:
            begin = UNIT_SCOPE if module in self._units else MODULE_SCOPE
            scopes.enter_context(record_function(f"{begin}{path}"))
        if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
            device = "cuda" if torch.is_autocast_enabled("cuda") else "cpu"
            dtype = str(torch.get_autocast_dtype(device)).removeprefix("torch.")
            scopes.enter_context(record_function(f"{AUTOCAST_SCOPE}{dtype}"))

    def leave(self, *_: Any) -> None:
        """Close the scopes of the module that was entered last."""
        if self._open:
            self._open.pop().close()

    def _name(self, root: nn.Module) -> None:
        whole = root.module if isinstance(root, DistributedDataParallel) else root
        owns = any(True for _ in whole.parameters())
        prefix = f"{type(whole).__name__}." if self._roots and owns else ""
        self._roots += owns
        for path, module in whole.named_modules():
            self._paths[module] = f"{prefix}{path}" if path else prefix.removesuffix(".")
        self._paths.setdefault(root, "")
        for path in unit_paths(whole):
            self._units.add(whole.get_submodule(path))


def unit_paths(model: nn.Module) -> tuple[str, ...]:
    """Return the paths of a model's units: the outermost modules with a forward pass in lists.

    A list may hold lists and dictionaries of modules. These are never called, so that nothing could
    be gathered before their call; their parts are the units.

    Returns:
        Paths in the order of the lists, each once, none inside another.
    """
    path_of = {id(module): path for path, module in model.named_modules()}
    inside: set[int] = set()
    found: dict[str, None] = {}
    for module in model.modules():
        if not isinstance(module, nn.ModuleList) or id(module) in inside:
            continue
        inside |= {id(deep) for deep in module.modules()}
        found.update((path_of[id(unit)], None) for unit in _called(module))
    return tuple(found)


def _called(container: nn.Module) -> Iterator[nn.Module]:
    for child in container.children():
        if type(child).forward is nn.Module.forward:
            yield from _called(child)
        else:
            yield child
