"""Meshes found from groups, and groups on other meshes."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from layerdag.errors import TraceError
from layerdag.workloads.scaling._mesh import FULL, OWN, Mesh, mesh_of


def test_two_kinds_of_groups_are_two_axes() -> None:
    groups = [(0, 1), (2, 3), (0, 2), (1, 3)]
    assert mesh_of(4, groups, "job") == Mesh((2, 2))


def test_a_group_over_two_axes_does_not_join_them() -> None:
    assert mesh_of(8, [(0, 2, 4, 6), (0, 2)], "job") == Mesh((2, 2, 2))


def test_ends_of_a_chain_are_no_axis() -> None:
    """First and last of four stages of two ranks."""
    mesh = mesh_of(8, [(0, 6), (0, 1), (2, 3)], "job")
    assert mesh == Mesh((2, 4))
    extents = mesh.extents((0, 6))
    assert extents == (OWN, (0, 3))
    assert mesh.groups(extents).tolist() == [[0, 6], [1, 7]]


def test_groups_that_share_no_mesh_are_refused() -> None:
    with pytest.raises(TraceError, match="do not form a grid"):
        mesh_of(6, [(0, 1), (0, 1, 2)], "job")


def test_irregular_ranks_are_no_box() -> None:
    assert mesh_of(4, [(0, 1, 3)], "job").extents((0, 1, 3)) == ((0, 1, 3),)
    assert Mesh((2, 2)).extents((0, 1, 3)) is None
    assert mesh_of(8, [(0, 1, 4, 7)], "job") == Mesh((8,))


def test_one_rank_has_no_axis() -> None:
    mesh = mesh_of(1, [(0,)], "job")
    assert (mesh.sizes, mesh.num_ranks) == ((), 1)
    assert mesh.groups(()).tolist() == [[0]]
    assert mesh.places(np.array([0])).shape == (1, 0)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(2, 4), min_size=1, max_size=3), st.data())
def test_groups_part_the_ranks_and_are_found_again(sizes: list[int], data: st.DataObject) -> None:
    mesh = Mesh(tuple(sizes))
    extents = tuple(data.draw(st.sampled_from((FULL, OWN))) for _ in sizes)
    groups = mesh.groups(extents)
    assert sorted(groups.reshape(-1).tolist()) == list(range(mesh.num_ranks))
    for ranks in groups.tolist():
        assert mesh.extents(ranks) == extents
    every = [
        [FULL if at == axis else OWN for at in range(len(sizes))] for axis in range(len(sizes))
    ]
    assert mesh_of(mesh.num_ranks, [g for e in every for g in mesh.groups(e).tolist()], "") == mesh
    assert (mesh.ranks(mesh.place_RA) == np.arange(mesh.num_ranks)).all()
