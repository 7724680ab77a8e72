"""Optimizers by name: the update rules of PyTorch, their options, and how they run.

A name is a rule, its options in the order of the table, and an implementation, joined by hyphens:
"adamw", "adamw-foreach", "sgd-momentum-decay-forloop". The implementations are PyTorch's: "fused"
(one operator for all parameters), "foreach" (one operator for each step of the rule) and "forloop"
(operators for each parameter alone). A name without one takes "fused" where PyTorch has it, for
the split parameters of ``fsdp`` and ``tensor`` ranks, too, and "foreach" elsewhere.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any, final

import torch
from torch import Tensor, distributed, nn, optim
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

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
        fused_splits: Whether PyTorch's fused operator takes parameters that ranks share (DTensor).
    """

    kind: Callable[..., optim.Optimizer]
    variants: tuple[tuple[str, ...], ...] = ((),)
    implementations: tuple[str, ...] = _ALL
    fused_splits: bool = False


_DECAY = ((), ("decay",))
_MOMENTUM = (("momentum",), ("momentum", "decay"))
_NESTEROV = (("nesterov",), ("nesterov", "decay"))
_RULES = {
    "adamw": _Rule(optim.AdamW, fused_splits=True),  # its decay is 0.01 by default and always runs
    "adam": _Rule(optim.Adam, _DECAY, fused_splits=True),
    "sgd": _Rule(optim.SGD, _DECAY + _MOMENTUM + _NESTEROV),
    "adagrad": _Rule(optim.Adagrad, _DECAY),
    "rmsprop": _Rule(optim.RMSprop, _DECAY + _MOMENTUM, ("foreach", "forloop")),
}

Recipe = tuple[Callable[..., optim.Optimizer], Mapping[str, Any]]


def _recipes() -> Iterator[tuple[str, Recipe]]:
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


def by_mesh(model: nn.Module) -> list[list[nn.Parameter]]:
    """Return the trained parameters, those that different ranks share in groups of their own."""
    groups: dict[object, list[nn.Parameter]] = {}
    for parameter in model.parameters():
        if parameter.requires_grad:
            groups.setdefault(_mesh(parameter), []).append(parameter)
    return list(groups.values())


def _mesh(tensor: Tensor) -> object:
    return getattr(tensor, "device_mesh", None)  # which a DTensor has and a plain one lacks


def make_optimizer(name: str, groups: Sequence[Sequence[nn.Parameter]]) -> optim.Optimizer:
    """Return an optimizer of groups of parameters.

    Call it under the mode that the parameters were made in: some optimizers make their states at
    once.

    Args:
        name: One of ``OPTIMIZERS``.
        groups: The parameters.

    Raises:
        ConfigError: If PyTorch's fused operator does not take parameters that ranks share.
    """
    kind, keywords = OPTIMIZERS[name]
    rule, *words = name.split("-")
    split = any(_mesh(parameter) is not None for held in groups for parameter in held)
    if split and "fused" in keywords and not _RULES[rule].fused_splits:
        plain = "-".join((rule, *(word for word in words if word != "fused")))
        if "fused" in words:
            raise ConfigError(
                f"step: optimizer is '{name}', but PyTorch's fused {rule} does not take parameters "
                f"that ranks share; give {plain}-foreach, or no fsdp and tensor ranks."
            )
        kind, keywords = OPTIMIZERS[f"{plain}-foreach"]
    return kind([{"params": list(held)} for held in groups], lr=_LEARNING_RATE, **keywords)


@torch.no_grad()
def make_states(optimizer: optim.Optimizer) -> bool:
    """Make the states that an optimizer's first step makes; return whether that was possible.

    PyTorch's classes make them where they collect what a step works on, which is not documented.
    Those that make them in the update itself, such as SGD the momentum, have none yet. Numbers of
    steps are 0 and not 1, on which no rule of the table depends in what it runs.

    Args:
        optimizer: Of parameters with gradients.
    """
    collect: Any = getattr(optimizer, "_init_group", None)
    if collect is None:
        return False
    lists = len(signature(collect).parameters) - 1
    for group in optimizer.param_groups:
        collect(group, *([] for _ in range(lists)))
    return all(optimizer.state[p] for group in optimizer.param_groups for p in group["params"])


def clip_gradients(
    groups: Sequence[Sequence[nn.Parameter]],
    largest: float,
    pipeline: distributed.ProcessGroup | None = None,
) -> None:
    """Scale gradients down to a norm of all together, as ``clip_grad_norm_`` does on a GPU.

    PyTorch's function takes parameters of one mesh. With several, norms are taken for each, summed
    over its ranks, and put together.

    Args:
        groups: Parameters by their mesh.
        largest: The norm.
        pipeline: The ranks that hold the other stages; their norms count, too.
    """
    norms = []
    for held in groups:
        norm = get_total_norm([p.grad for p in held if p.grad is not None], foreach=True)
        whole = getattr(norm, "full_tensor", None)  # of a DTensor
        norms.append(norm if whole is None else whole())
    total = norms[0] if len(norms) == 1 else torch.linalg.vector_norm(torch.stack(norms))
    if pipeline is not None:
        total = total**2
        distributed.all_reduce(total, group=pipeline)
        total = total**0.5
    for held in groups:
        clip_grads_with_norm_(held, largest, total, foreach=True)
