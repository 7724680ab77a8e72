"""The units of a model: its layers, which ``fully_shard`` gathers one at a time."""

from collections.abc import Iterator

from torch import nn


def unit_paths(model: nn.Module) -> tuple[str, ...]:
    """Return the paths of a model's units: the outermost modules with a forward pass in lists.

    A list may hold lists and dictionaries of modules. These are never called, so that nothing could
    be gathered before their call; their parts are the units.

    Args:
        model: The model.

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
    """Yield the nearest modules with a forward pass inside a container."""
    for child in container.children():
        if type(child).forward is nn.Module.forward:
            yield from _called(child)
        else:
            yield child
