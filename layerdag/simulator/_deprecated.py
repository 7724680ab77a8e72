"""The call of ``simulate`` by parts, as it was before ``Cluster`` held them."""

import functools
import warnings
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from layerdag.simulator._cluster import SystemConfig
from layerdag.simulator._machine import Cluster

P = ParamSpec("P")
R = TypeVar("R")

_PARTS = ("system", "network", "memory", "options")


def takes_parts(function: Callable[P, R]) -> Callable[P, R]:
    """Let ``function(workload, cluster)`` also be called with system and network, as before."""

    @functools.wraps(function)
    def called(*args: Any, **named: Any) -> R:
        if isinstance(named.get("system", args[1] if len(args) > 1 else None), SystemConfig):
            warnings.warn(
                "simulate(workload, system, network) is deprecated; call "
                "simulate(workload, Cluster(network, system)).",
                DeprecationWarning,
                stacklevel=2,
            )
            args, named = _with_cluster(args, named)
        return function(*args, **named)

    return called


def _with_cluster(
    args: tuple[Any, ...], named: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments with one cluster in place of its parts."""
    given = {**dict(zip(_PARTS, args[1:3], strict=False)), **named}
    parts = {name: given.pop(name) for name in _PARTS if given.get(name) is not None}
    others = {name: value for name, value in given.items() if name not in _PARTS}
    return args[:1], {**others, "cluster": Cluster(**parts)}
