"""A captured step is the step that runs: compared with the profile of a real one."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from step_operators import edges
from torch import nn

from layerdag.capturing.fake_world import FakeWorld, fake_world, group_ranks
from layerdag.capturing.running import record
from layerdag.capturing.step import capture_model
from layerdag.capturing.transformer import Transformer
from layerdag.errors import ConfigError, UsageError
from layerdag.plan import FORMULAS, Plan, Step, read_recorded
from layerdag.traces.trace import Trace
from layerdag.workloads.transformer.shapes import ModelShape

LLAMA = ModelShape("tiny", 1, 32, 4, 64, 96, 2, gated=True, norm="rms", biases="none")
GPT = ModelShape("tiny-gpt", 1, 32, 4, 128, 96, positions=32, tied=True)


def operators(trace: Trace) -> Counter[tuple[str, int, int]]:
    """Name, operations and bytes; sums of gradients are in place in a real run (add_) only."""
    names = [name.removesuffix("_") for name in trace.names()]
    flops, sizes = (trace.integers(name)[0].tolist() for name in ("num_ops", "tensor_size"))
    return Counter(zip(names, flops, sizes, strict=True))


@pytest.mark.parametrize("shape", [LLAMA, GPT], ids=["llama", "gpt"])
def test_operators_sizes_and_data_flow_equal_those_of_a_profiled_step(shape):
    model = Transformer(shape)
    tokens = torch.zeros(2, 16, dtype=torch.long)
    captured = capture_model(model, (tokens, tokens)).trace
    measured = profiled(model, (tokens, tokens))
    assert operators(captured) == operators(measured)
    assert edges(captured) == edges(measured)


def profiled(model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> Trace:
    """Return the imported trace of a real second step."""
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)

    def step() -> None:
        model(*inputs).backward()
        optimizer.step()
        optimizer.zero_grad()

    step()
    with record() as found:
        step()
    return found.imported().trace


def test_ranks_are_the_product_of_the_degrees():
    plan = Plan(data=2, fsdp=3, tensor=4)
    assert plan.ranks == 24
    assert list(plan.mesh.items()) == [("pipeline", 1), ("data", 2), ("fsdp", 3), ("tensor", 4)]
    assert Plan().ranks == 1


def test_keywords_reach_the_plan_or_the_step():
    found = read_recorded({"tensor": 2, "sequence": 16, "phase": "inference"})
    assert found.plan == Plan(tensor=2)
    usual = read_recorded({}).step
    assert found.step == replace(usual, sequence=16, phase="inference")
    assert (found.step.training, Step().training) == (False, True)


def test_shared_parameters_have_two_names_in_every_source():
    assert read_recorded({"data": 4, "zero": 3}).plan == read_recorded({"fsdp": 4}).plan
    assert FORMULAS.read({"fsdp": 4}).plan == Plan(data=4, zero=3)
    with pytest.raises(ConfigError, match="zero is 1; PyTorch's fully_shard shares parameters"):
        read_recorded({"data": 4, "zero": 1})
    with pytest.raises(ConfigError, match="no 2 replicas of 4 fsdp ranks"):
        FORMULAS.read({"data": 2, "fsdp": 4})


def test_an_unknown_keyword_is_refused_with_the_nearest_and_all_known():
    with pytest.raises(UsageError, match=r"'optimiser'.*Did you mean 'optimizer'.*Known: .*tensor"):
        read_recorded({"optimiser": "sgd"})


@pytest.mark.parametrize("name", ["data", "fsdp", "tensor"])
@pytest.mark.parametrize("value", [0, -1, True])
def test_degrees_are_whole_numbers_of_at_least_1(name, value):
    with pytest.raises(ConfigError, match=f"plan: {name} is {value!r}; .* at least 1"):
        Plan(**{name: value})


@pytest.mark.parametrize(
    ("name", "value", "least"), [("batch", -1, 0), ("layers", -2, 0), ("sequence", 0, 1)]
)
def test_sizes_of_a_step_are_whole_numbers(name, value, least):
    with pytest.raises(ConfigError, match=f"step: {name} is {value!r}; .* at least {least}"):
        Step(**{name: value})


@pytest.mark.parametrize(
    ("name", "value", "nearest"),
    [
        ("phase", "inferenc", "inference"),
        ("precision", "bf61", "bf16"),
        ("optimizer", "adamww", "adamw"),
    ],
)
def test_unknown_words_are_refused_with_the_nearest(name, value, nearest):
    with pytest.raises(ConfigError, match=f"step: {name} is '{value}'.*Did you mean '{nearest}'"):
        Step(**{name: value})
    assert getattr(Step(**{name: nearest}), name) == nearest


CUBE = {"data": 2, "fsdp": 3, "tensor": 4}
ROLES = ("data", "fsdp", "tensor", "data+fsdp", "data+tensor", "fsdp+tensor", "data+fsdp+tensor")


def test_tensor_ranks_are_neighbors_and_replicas_far_apart():
    # rank = 12 data + 4 fsdp + tensor
    world = FakeWorld(CUBE)
    assert world.size == 24
    assert world.members("tensor")[0].tolist() == [0, 1, 2, 3]
    assert world.members("fsdp")[0].tolist() == [0, 4, 8]
    assert world.members("data")[0].tolist() == [0, 12]
    assert world.members("data+tensor")[0].tolist() == [0, 1, 2, 3, 12, 13, 14, 15]


@pytest.mark.parametrize("role", ROLES)
def test_groups_of_a_role_hold_each_rank_once(role):
    members = FakeWorld(CUBE).members(role)
    assert members.shape[1] == np.prod([CUBE[name] for name in role.split("+")])
    assert sorted(members.flatten().tolist()) == list(range(24))


def test_rank_0_has_one_group_for_each_choice_of_long_dimensions():
    assert sorted(FakeWorld(CUBE).groups().values()) == sorted(ROLES)
    assert FakeWorld({"data": 1, "fsdp": 1, "tensor": 4}).groups() == {(0, 1, 2, 3): "tensor"}
    assert FakeWorld({"data": 1, "fsdp": 1, "tensor": 1}).groups() == {}


def test_a_world_of_one_rank_needs_no_process_group():
    with fake_world({"data": 1, "tensor": 1}) as world:
        assert not torch.distributed.is_initialized()
        assert (world.mesh, world.along("tensor"), group_ranks()) == (None, None, {})


def test_the_process_is_rank_0_until_the_block_ends():
    with fake_world({"data": 2, "fsdp": 1, "tensor": 4}) as world:
        assert torch.distributed.get_rank() == 0
        assert torch.distributed.get_world_size() == 8
        assert world.along("fsdp") is None
        tensor = world.along("tensor", "fsdp")
        assert tensor is not None
        assert tensor.mesh.tolist() == [0, 1, 2, 3]
        assert {(0, 1, 2, 3), (0, 4)} <= set(group_ranks().values())
    assert not torch.distributed.is_initialized()


def test_the_process_group_ends_when_the_block_fails():
    with pytest.raises(ZeroDivisionError), fake_world({"data": 2}):
        raise ZeroDivisionError
    assert not torch.distributed.is_initialized()
