"""Optimizers by name: the update rules of PyTorch, their options, and how they run.

A name is a rule, its options in the order of the table, and an implementation, joined by hyphens:
"adamw", "adamw-foreach", "sgd-momentum-decay-forloop". The implementations are PyTorch's: "fused"
(one operator for all parameters), "foreach" (one operator for each step of the rule) and "forloop"
(operators for each parameter alone). A name without one takes "fused" where PyTorch has it, and
"foreach" elsewhere.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from torch import nn, optim

from layerdag.errors import ConfigError
from layerdag.runtime.settings import did_you_mean

_ALL = ("fused", "foreach", "forloop")
_OPTIONS: dict[str, dict[str, Any]] = {
    "momentum": {"momentum": 0.9},
    "nesterov": {"momentum": 0.9, "nesterov": True},
    "decay": {"weight_decay": 0.01},
}
_LEARNING_RATE = 1e-3


@final
@dataclass(frozen=True)
class _Rule:
    """An update rule.

    Attributes:
        kind: PyTorch's class.
        variants: Options that may be given together, each with operators of its own.
        implementations: Those that PyTorch has.
    """

    kind: Callable[..., optim.Optimizer]
    variants: tuple[tuple[str, ...], ...] = ((),)
    implementations: tuple[str, ...] = _ALL


_DECAY = ((), ("decay",))
_MOMENTUM = (("momentum",), ("momentum", "decay"))
_NESTEROV = (("nesterov",), ("nesterov", "decay"))
_RULES = {
    "adamw": _Rule(optim.AdamW),  # its decay is 0.01 by default and always runs
    "adam": _Rule(optim.Adam, _DECAY),
    "sgd": _Rule(optim.SGD, _DECAY + _MOMENTUM + _NESTEROV),
    "adagrad": _Rule(optim.Adagrad, _DECAY),
    "rmsprop": _Rule(optim.RMSprop, _DECAY + _MOMENTUM, ("foreach", "forloop")),
}

Recipe = tuple[Callable[..., optim.Optimizer], Mapping[str, Any]]


def _recipes() -> Iterator[tuple[str, Recipe]]:
    """Yield each name with its class and keywords."""
    for name, rule in _RULES.items():
        for variant in rule.variants:
            chosen: dict[str, Any] = {}
            for option in variant:
                chosen |= _OPTIONS[option]
            plain = "-".join((name, *variant))
            for implementation in ("", *rule.implementations):
                which = implementation or rule.implementations[0]
                how = {"foreach": False} if which == "forloop" else {which: True}
                yield "-".join(filter(None, (plain, implementation))), (rule.kind, chosen | how)


OPTIMIZERS: dict[str, Recipe] = dict(_recipes())
"""Class and keywords of each name."""

RULES = (*_RULES, "none")
"""First words of names; "none" for a step without an update."""


def require_optimizer(where: str, name: object) -> None:
    """Refuse what is no optimizer's name.

    Raises:
        ConfigError: If it is none; names the nearest.
    """
    if name == "none" or name in OPTIMIZERS:
        return
    raise ConfigError(
        f"{where}: optimizer is {name!r}.{did_you_mean(name, (*OPTIMIZERS, 'none'))} Known: "
        f"{', '.join(RULES)}; with {', '.join(_OPTIONS)} where the rule has it, and "
        f"{', '.join(_ALL)}, joined by hyphens, such as sgd-momentum-foreach."
    )


def make_optimizer(name: str, groups: Sequence[Sequence[nn.Parameter]]) -> optim.Optimizer:
    """Return an optimizer of groups of parameters.

    Call it under the mode that the parameters were made in: some optimizers make their states at
    once.

    Args:
        name: One of ``OPTIMIZERS``.
        groups: The parameters.
    """
    kind, keywords = OPTIMIZERS[name]
    return kind([{"params": list(held)} for held in groups], lr=_LEARNING_RATE, **keywords)
