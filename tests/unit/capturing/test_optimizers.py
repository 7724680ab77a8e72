"""Each optimizer of a captured step runs the operators of the real one."""

from typing import Any

import pytest
import torch
from step_operators import operators, profiled
from torch import nn, optim

from layerdag.capturing.fake_tensors import RememberingFakeMode
from layerdag.capturing.optimizers import make_optimizer, make_states
from layerdag.capturing.step import capture_model
from layerdag.errors import ConfigError
from layerdag.plan import OPTIMIZER_RULES, OPTIMIZERS, Step
from layerdag.traces.trace import Trace

MOMENTUM, NESTEROV = {"momentum": 0.9}, {"momentum": 0.9, "nesterov": True}
DECAY = {"weight_decay": 0.1}
REAL: dict[str, tuple[Any, dict[str, Any]]] = {
    "adamw": (optim.AdamW, {}),
    "adam": (optim.Adam, {}),
    "adam-decay": (optim.Adam, DECAY),
    "sgd": (optim.SGD, {}),
    "sgd-decay": (optim.SGD, DECAY),
    "sgd-momentum": (optim.SGD, MOMENTUM),
    "sgd-momentum-decay": (optim.SGD, MOMENTUM | DECAY),
    "sgd-nesterov": (optim.SGD, NESTEROV),
    "sgd-nesterov-decay": (optim.SGD, NESTEROV | DECAY),
    "adagrad": (optim.Adagrad, {}),
    "adagrad-decay": (optim.Adagrad, DECAY),
    "rmsprop": (optim.RMSprop, {}),
    "rmsprop-decay": (optim.RMSprop, DECAY),
    "rmsprop-momentum": (optim.RMSprop, MOMENTUM),
    "rmsprop-momentum-decay": (optim.RMSprop, MOMENTUM | DECAY),
}
HOW: dict[str, dict[str, Any]] = {
    "fused": {"fused": True},
    "foreach": {"foreach": True},
    "forloop": {"foreach": False},
}
NAMES = [
    (f"{rule}-{how}", kind, given | HOW[how])
    for rule, (kind, given) in REAL.items()
    for how in HOW
    if how != "fused" or kind is not optim.RMSprop
]


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 7), nn.LayerNorm(7), nn.Linear(7, 3, bias=False))


def real(kind: Any, given: dict[str, Any]) -> Trace:
    """Return the imported profile of a real third step."""
    made, x = model(), torch.zeros(4, 5)
    optimizer = kind(made.parameters(), lr=0.01, **given)

    def step() -> None:
        made(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    return profiled(step)


@pytest.mark.parametrize(("name", "kind", "given"), NAMES, ids=[name for name, *_ in NAMES])
def test_operators_are_those_of_the_real_optimizer(name, kind, given):
    step = capture_model(model(), [torch.zeros(4, 5)], loss=torch.sum, optimizer=name)
    assert operators(step.trace) == operators(real(kind, given))


@pytest.mark.parametrize(("name", "kind", "given"), NAMES, ids=[name for name, *_ in NAMES])
def test_states_are_those_of_a_first_step(name, kind, given):
    def states(optimizer: optim.Optimizer) -> list[dict[str, Any]]:
        held = optimizer.param_groups[0]["params"]
        return [
            {
                name: (part.shape, part.stride(), part.dtype, part.device, part.constant is None)
                for name, part in optimizer.state[parameter].items()
            }
            for parameter in held
        ]

    with RememberingFakeMode():
        made, stepped = (kind(model().parameters(), lr=0.01, **given) for _ in range(2))
        for optimizer in (made, stepped):
            for parameter in optimizer.param_groups[0]["params"]:
                parameter.grad = torch.zeros_like(parameter)
        stepped.step()
        assert make_states(made) == (kind is not optim.SGD)
        if kind is not optim.SGD:
            assert states(made) == states(stepped)


def test_states_are_made_without_an_update():
    layer = model()
    before = [parameter.clone() for parameter in layer.parameters()]
    for parameter in layer.parameters():
        parameter.grad = torch.ones_like(parameter)
    assert make_states(optim.AdamW(layer.parameters()))
    assert all(map(torch.equal, before, layer.parameters()))


def test_every_name_is_held_against_a_real_optimizer():
    assert {name for name, *_ in NAMES} | {*REAL, "none"} == set(OPTIMIZERS)
    assert {name.partition("-")[0] for name in OPTIMIZERS} == {*OPTIMIZER_RULES, "none"}


@pytest.mark.parametrize("rule", REAL)
def test_a_name_without_implementation_takes_the_fastest(rule):
    how = "foreach" if rule.startswith("rmsprop") else "fused"
    groups = [list(model().parameters())]
    usual, stated = (make_optimizer(name, groups) for name in (rule, f"{rule}-{how}"))
    assert (type(usual), usual.defaults) == (type(stated), stated.defaults)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("adamw-forech", "Did you mean 'adamw-foreach'"),
        ("rmsprop-fused", "Did you mean 'rmsprop"),
        ("lion", "Known: adamw, .*none; with momentum.* such as sgd-momentum-foreach"),
    ],
)
def test_other_names_are_refused(name, told):
    with pytest.raises(ConfigError, match=told):
        Step(optimizer=name)


SPLIT_FUSED = {"adamw", "adam"}
"""Rules whose fused operator takes parameters that ranks share, in PyTorch itself."""


@pytest.mark.parametrize("plan", [{"fsdp": 2}, {"data": 2, "fsdp": 2}], ids=str)
@pytest.mark.parametrize("rule", sorted({name.partition("-")[0] for name in REAL}))
def test_an_update_of_shared_parameters(rule, plan):
    def names(optimizer: str) -> list[str]:
        step = capture_model(model(), [torch.zeros(4, 5)], optimizer=optimizer, **plan)
        phases = step.trace.texts("phase")[0]
        both = zip(step.trace.names(), phases, strict=True)
        return [name for name, phase in both if phase == "optimizer"]

    assert names(rule) == names(f"{rule}-fused" if rule in SPLIT_FUSED else f"{rule}-foreach")
    assert len(names(f"{rule}-forloop")) > len(names(f"{rule}-foreach"))
    if f"{rule}-fused" in OPTIMIZERS and rule not in SPLIT_FUSED:
        with pytest.raises(ConfigError, match=f"fused {rule} does not take .*{rule}-foreach"):
            names(f"{rule}-fused")
