"""Optimizers by name: the update rules of PyTorch, their options, and how they run.

A name is a rule, its options in the order of the table, and an implementation, joined by hyphens:
"adamw", "adamw-foreach", "sgd-momentum-decay-forloop". The implementations are PyTorch's: "fused"
(one operator for all parameters), "foreach" (one operator for each step of the rule) and "forloop"
(operators for each parameter alone). A name without one takes "fused" where PyTorch has it, for
the split parameters of ``fsdp`` and ``tensor`` ranks, too, and "foreach" elsewhere.
"""

from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import Any

import torch
from torch import Tensor, distributed, nn, optim
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from layerdag.errors import ConfigError
from layerdag.plan import OPTIMIZER_IMPLEMENTATIONS, optimizer_implementations

_OPTIONS: dict[str, dict[str, Any]] = {
    "momentum": {"momentum": 0.9},
    "nesterov": {"momentum": 0.9, "nesterov": True},
    "decay": {"weight_decay": 0.01},
}
_LEARNING_RATE = 1e-3
_KINDS: Mapping[str, Callable[..., optim.Optimizer]] = {
    "adamw": optim.AdamW,
    "adam": optim.Adam,
    "sgd": optim.SGD,
    "adagrad": optim.Adagrad,
    "rmsprop": optim.RMSprop,
}
_FUSED_SPLITS = ("adamw", "adam")
"""Rules whose fused operator takes parameters that ranks share (DTensor)."""


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
    """Return the optimizer of a name of ``OPTIMIZERS``, of groups of parameters.

    Call it under the mode that the parameters were made in: some optimizers make their states at
    once.

    Raises:
        ConfigError: If PyTorch's fused operator does not take parameters that ranks share.
    """
    rule, *words = name.split("-")
    options = [word for word in words if word in _OPTIONS]
    implementation = next((w for w in words if w in OPTIMIZER_IMPLEMENTATIONS), "")
    which = implementation or optimizer_implementations(rule)[0]
    split = any(_mesh(parameter) is not None for held in groups for parameter in held)
    if split and which == "fused" and rule not in _FUSED_SPLITS:
        if implementation:
            raise ConfigError(
                f"step: optimizer is '{name}', but PyTorch's fused {rule} does not take parameters "
                f"that ranks share; give {'-'.join((rule, *options))}-foreach, or no fsdp and "
                "tensor ranks."
            )
        which = "foreach"
    keywords: dict[str, Any] = {"foreach": False} if which == "forloop" else {which: True}
    for option in options:
        keywords |= _OPTIONS[option]
    parameters = [{"params": list(held)} for held in groups]
    return _KINDS[rule](parameters, lr=_LEARNING_RATE, **keywords)


@torch.no_grad()
def make_states(optimizer: optim.Optimizer) -> bool:
    """Make the states that an optimizer's first step makes; return whether that was possible.

    PyTorch's classes make them where they collect what a step works on, which is not documented.
    Those that make them in the update itself, such as SGD the momentum, have none yet. Numbers of
    steps are 0 and not 1, on which no rule of the table depends in what it runs.
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
    over its ranks, and put together; the stages of a pipeline add theirs.
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
