"""A process group that does not exist: its ranks as a mesh, their groups and roles."""

import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import combinations

import numpy as np
import torch
from torch import distributed
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._redistribute import _gen_transform_infos
from torch.testing._internal.distributed.fake_pg import FakeStore

from layerdag.errors import UsageError

Ranks = tuple[int, ...]


@dataclass(frozen=True)
class FakeWorld:
    """Ranks as a mesh, the last dimension fastest."""

    degrees: Mapping[str, int]  # length of each dimension by its name
    # PyTorch's mesh with those dimensions that are longer than 1; None for one rank
    mesh: DeviceMesh | None = field(default=None, repr=False)
    rank: int = 0
    # Groups across a dimension by their role, int64 (groups, members) each, such as the stages that
    # hold the same parameter
    across: Mapping[str, np.ndarray] = field(default_factory=dict, repr=False)

    @property
    def size(self) -> int:
        """Number of ranks."""
        return int(np.prod(list(self.degrees.values()), dtype=np.int64))

    def along(self, *names: str) -> DeviceMesh | None:
        """Return the part of the mesh along those of the dimensions that are longer than 1."""
        found = tuple(name for name in names if self.degrees.get(name, 1) > 1)
        return self.mesh[found] if self.mesh is not None and found else None

    def groups(self) -> dict[Ranks, str]:
        """Return the role of each group of this rank, such as "data+tensor"."""
        found: dict[Ranks, str] = {}
        long = [name for name, length in self.degrees.items() if length > 1]
        for count in range(1, len(long) + 1):
            for names in combinations(long, count):
                role = "+".join(names)
                found.setdefault(self.own(role), role)
        for role in self.across:
            found.setdefault(self.own(role), role)
        found.pop((), None)
        return found

    def own(self, role: str) -> Ranks:
        """Return the group of a role that this rank is in, empty if it is in none."""
        member_GM = self.members(role)
        of_rank_GM = member_GM[(member_GM == self.rank).any(1)]
        return tuple(of_rank_GM[0].tolist()) if len(of_rank_GM) else ()

    def members(self, role: str) -> np.ndarray:
        """Return the ranks of all groups of a role, int64 (groups, members)."""
        if role in self.across:
            return self.across[role]
        rank_D = np.arange(self.size).reshape(tuple(self.degrees.values()))
        names, inside = list(self.degrees), role.split("+")
        axes = sorted(range(len(names)), key=lambda at: names[at] in inside)
        count = int(np.prod([self.degrees[name] for name in inside], dtype=np.int64))
        return rank_D.transpose(axes).reshape(-1, count)


@contextmanager
def fake_world(
    degrees: Mapping[str, int], rank: int = 0, across: Mapping[str, np.ndarray] | None = None
) -> Iterator[FakeWorld]:
    """Make this process a rank of a world that does not exist; it ends with the ``with`` block.

    Only the groups of this rank are made, so that a world of 32,768 ranks costs what one of 8
    costs.

    Raises:
        UsageError: If torch.distributed is in use.
    """
    world = FakeWorld(dict(degrees), None, rank, dict(across or {}))
    if world.size == 1:
        yield world
        return
    if distributed.is_initialized():
        raise UsageError(
            "torch.distributed is in use in this process; capture before init_process_group(), "
            "after destroy_process_group(), or in a process of its own."
        )
    hook = sys.excepthook
    # It would say that splits move by all-gather on processors, as docs/how-to/capture.md does.
    logger = logging.getLogger("torch.distributed.tensor._collective_utils")
    level = logger.level
    logger.setLevel(logging.ERROR)
    distributed.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world.size)
    try:
        long = {name: length for name, length in degrees.items() if length > 1}
        groups = [
            distributed.new_group(list(world.own(name)), use_local_synchronization=True)
            for name in long
        ]
        rank_D = torch.arange(world.size).view(tuple(long.values()))
        only = groups[0] if len(groups) == 1 else groups
        mesh = DeviceMesh.from_group(only, "cpu", mesh=rank_D, mesh_dim_names=tuple(long))
        yield replace(world, mesh=mesh)
    finally:
        distributed.destroy_process_group()
        logger.setLevel(level)
        sys.excepthook = hook  # PyTorch's would begin every traceback of this process with a rank
        # As torch.distributed.tensor.debug does it, which imports PyTorch's compiler.
        DTensor._op_dispatcher.sharding_propagator.propagate_op_sharding.cache_clear()
        torch._C._clear_DTensor_sharding_propagator_cache()
        _gen_transform_infos.cache_clear()


def group_ranks() -> dict[str, Ranks]:
    """Return the ranks of each process group that there is, by PyTorch's name."""
    if not distributed.is_initialized():
        return {}
    known = distributed.distributed_c10d._world.pg_group_ranks
    return {group.group_name: tuple(sorted(ranks)) for group, ranks in known.items()}
