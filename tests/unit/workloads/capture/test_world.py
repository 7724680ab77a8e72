"""Ranks as a mesh, and a process group that does not exist."""

import numpy as np
import pytest
import torch

from layerdag.workloads.capture._world import World, fake_world, group_ranks

CUBE = {"data": 2, "fsdp": 3, "tensor": 4}
ROLES = ("data", "fsdp", "tensor", "data+fsdp", "data+tensor", "fsdp+tensor", "data+fsdp+tensor")


def test_tensor_ranks_are_neighbors_and_replicas_far_apart() -> None:
    # rank = 12 data + 4 fsdp + tensor
    world = World(CUBE)
    assert world.size == 24
    assert world.members("tensor")[0].tolist() == [0, 1, 2, 3]
    assert world.members("fsdp")[0].tolist() == [0, 4, 8]
    assert world.members("data")[0].tolist() == [0, 12]
    assert world.members("data+tensor")[0].tolist() == [0, 1, 2, 3, 12, 13, 14, 15]


@pytest.mark.parametrize("role", ROLES)
def test_groups_of_a_role_hold_each_rank_once(role: str) -> None:
    members = World(CUBE).members(role)
    assert members.shape[1] == np.prod([CUBE[name] for name in role.split("+")])
    assert sorted(members.flatten().tolist()) == list(range(24))


def test_rank_0_has_one_group_for_each_choice_of_long_dimensions() -> None:
    assert sorted(World(CUBE).groups().values()) == sorted(ROLES)
    assert World({"data": 1, "fsdp": 1, "tensor": 4}).groups() == {(0, 1, 2, 3): "tensor"}
    assert World({"data": 1, "fsdp": 1, "tensor": 1}).groups() == {}


def test_a_world_of_one_rank_needs_no_process_group() -> None:
    with fake_world({"data": 1, "tensor": 1}) as world:
        assert not torch.distributed.is_initialized()
        assert (world.mesh, world.along("tensor"), group_ranks()) == (None, None, {})


def test_the_process_is_rank_0_until_the_block_ends() -> None:
    with fake_world({"data": 2, "fsdp": 1, "tensor": 4}) as world:
        assert torch.distributed.get_rank() == 0
        assert torch.distributed.get_world_size() == 8
        assert world.along("fsdp") is None
        tensor = world.along("tensor", "fsdp")
        assert tensor is not None
        assert tensor.mesh.tolist() == [0, 1, 2, 3]
        assert {(0, 1, 2, 3), (0, 4)} <= set(group_ranks().values())
    assert not torch.distributed.is_initialized()


def test_the_process_group_ends_when_the_block_fails() -> None:
    with pytest.raises(ZeroDivisionError), fake_world({"data": 2}):
        raise ZeroDivisionError
    assert not torch.distributed.is_initialized()
