"""A fake process group of any size, in which this process is rank 0, and its mesh."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
import torch
from torch import distributed
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor._redistribute import _gen_transform_infos
from torch.distributed.tensor.debug import _clear_sharding_prop_cache
from torch.testing._internal.distributed.fake_pg import FakeStore

from layerdag.errors import UsageError

Ranks = tuple[int, ...]


@dataclass(frozen=True)
class World:
    """Ranks as a mesh, the last dimension fastest.

    Attributes:
        degrees: Length of each dimension by its name.
        mesh: PyTorch's mesh with those dimensions that are longer than 1; None for one rank.
    """

    degrees: Mapping[str, int]
    mesh: DeviceMesh | None = field(default=None, repr=False)

    @property
    def size(self) -> int:
        """Number of ranks."""
        return int(np.prod(list(self.degrees.values()), dtype=np.int64))

    def along(self, *names: str) -> DeviceMesh | None:
        """Return the part of the mesh along those of the dimensions that are longer than 1."""
        found = tuple(name for name in names if self.degrees.get(name, 1) > 1)
        return self.mesh[found] if self.mesh is not None and found else None

    def groups(self) -> dict[Ranks, str]:
        """Return the role of each group of rank 0 along some dimensions, such as "data+tensor"."""
        found: dict[Ranks, str] = {}
        long = [name for name, length in self.degrees.items() if length > 1]
        for count in range(1, len(long) + 1):
            for names in combinations(long, count):
                role = "+".join(names)
                found.setdefault(tuple(self.members(role)[0].tolist()), role)
        return found

    def members(self, role: str) -> np.ndarray:
        """Return the ranks of all groups of a role, int64 (groups, members)."""
        rank_D = np.arange(self.size).reshape(tuple(self.degrees.values()))
        names, inside = list(self.degrees), role.split("+")
        axes = [at for at, name in enumerate(names) if name not in inside]
        axes += [at for at, name in enumerate(names) if name in inside]
        count = int(np.prod([self.degrees[name] for name in inside], dtype=np.int64))
        return rank_D.transpose(axes).reshape(-1, count)


@contextmanager
def fake_world(degrees: Mapping[str, int]) -> Iterator[World]:
    """Make this process rank 0 of a world that does not exist; it ends with the ``with`` block.

    Only the groups of rank 0 are made, so that a world of 32,768 ranks costs what one of 8 costs.

    Raises:
        UsageError: If torch.distributed is in use.
    """
    world = World(dict(degrees))
    if world.size == 1:
        yield world
        return
    if distributed.is_initialized():
        raise UsageError(
            "torch.distributed is in use in this process; capture before init_process_group(), "
            "after destroy_process_group(), or in a process of its own."
        )
    distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=world.size)
    try:
        yield World(world.degrees, _mesh(world))
    finally:
        distributed.destroy_process_group()
        _forget_meshes()


def _forget_meshes() -> None:
    """Empty DTensor's caches, which hold this mesh: an equal one would find dead groups there."""
    _clear_sharding_prop_cache()
    _gen_transform_infos.cache_clear()


def _mesh(world: World) -> DeviceMesh:
    """Return the mesh of the dimensions that are longer than 1."""
    long = {name: length for name, length in world.degrees.items() if length > 1}
    groups = []
    for name in long:
        ranks = world.members(name)[0].tolist()
        groups.append(distributed.new_group(ranks, use_local_synchronization=True))
    rank_D = torch.arange(world.size).view(tuple(long.values()))
    only = groups[0] if len(groups) == 1 else groups
    return DeviceMesh.from_group(only, "cpu", mesh=rank_D, mesh_dim_names=tuple(long))


def group_ranks() -> dict[str, Ranks]:
    """Return the ranks of each process group that there is, by PyTorch's name."""
    if not distributed.is_initialized():
        return {}
    known = distributed.distributed_c10d._world.pg_group_ranks
    return {group.group_name: tuple(sorted(ranks)) for group, ranks in known.items()}
