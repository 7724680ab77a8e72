"""Meshes found from groups, and groups on other meshes."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from laws import tried

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
    assert mesh.coordinates(np.array([0])).shape == (1, 0)


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
    assert (mesh.ranks(mesh.position_RA) == np.arange(mesh.num_ranks)).all()


def test_places_count_up_on_the_axis_of_neighbors_first() -> None:
    """Rank = place on the first axis + 2 * place on the second + 6 * place on the third."""
    mesh = Mesh((2, 3, 2))
    assert mesh.num_ranks == 12
    assert mesh.coordinates(np.array([0, 1, 2, 5, 6, 11])).tolist() == [
        [0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 2, 0], [0, 0, 1], [1, 2, 1],
    ]  # fmt: skip
    assert mesh.ranks(np.array([[1, 2, 0], [0, 1, 1]])).tolist() == [5, 8]


def test_a_place_beyond_an_axis_is_no_rank() -> None:
    with pytest.raises(ValueError, match="invalid entry"):
        Mesh((2, 3)).ranks(np.array([[2, 0]]))


@pytest.mark.parametrize(
    ("extents", "groups"),
    [
        ((FULL, OWN, OWN), [[0, 1], [2, 3], [4, 5], [6, 7]]),
        ((OWN, FULL, OWN), [[0, 2], [1, 3], [4, 6], [5, 7]]),
        ((OWN, OWN, FULL), [[0, 4], [1, 5], [2, 6], [3, 7]]),
        ((FULL, OWN, FULL), [[0, 1, 4, 5], [2, 3, 6, 7]]),
        ((FULL, FULL, FULL), [[0, 1, 2, 3, 4, 5, 6, 7]]),
        ((OWN, OWN, OWN), [[rank] for rank in range(8)]),
    ],
)
def test_groups_along_axes_of_two_by_two_by_two(
    extents: tuple[str, ...], groups: list[list[int]]
) -> None:
    assert Mesh((2, 2, 2)).groups(extents).tolist() == groups


def test_extents_of_a_group_do_not_depend_on_the_order_of_its_ranks() -> None:
    mesh = Mesh((2, 3))
    assert mesh.extents((4, 0, 2)) == mesh.extents((0, 2, 4)) == (OWN, FULL)
    assert mesh.extents((3, 1)) == (OWN, (0, 1))


def test_the_same_extents_on_a_larger_mesh_are_larger_groups() -> None:
    """Data ranks of two tensor ranks: two of them before, four afterwards."""
    extents = Mesh((2, 2)).extents((0, 2))
    assert extents == (OWN, FULL)
    assert Mesh((2, 4)).groups(extents).tolist() == [[0, 2, 4, 6], [1, 3, 5, 7]]


def test_chosen_places_stay_where_another_axis_grows() -> None:
    """First and last stage of four, of one data rank before and of three afterwards."""
    extents = Mesh((1, 4)).extents((0, 3))
    assert extents == (FULL, (0, 3))
    assert Mesh((3, 4)).groups(extents).tolist() == [[0, 1, 2, 9, 10, 11]]
    assert Mesh((3, 4)).groups((OWN, (0, 3))).tolist() == [[0, 9], [1, 10], [2, 11]]


def test_a_job_without_groups_is_one_axis() -> None:
    assert mesh_of(6, [], "job") == Mesh((6,))
    assert mesh_of(6, [(0,), (5,)], "job") == Mesh((6,))  # groups of one rank say nothing


@pytest.mark.parametrize(
    ("groups", "sizes"),
    [
        ([(0, 1, 2, 3)], (4, 3)),  # neighbors
        ([(1, 4, 7, 10)], (3, 4)),  # every third, from whichever rank on
        ([(0, 1, 6, 7)], (2, 3, 2)),  # pairs, six apart
        ([(3, 2, 1, 0)], (4, 3)),  # in any order
        ([(0, 1), (0, 1, 2, 3), tuple(range(12))], (2, 2, 3)),
    ],
)
def test_axes_of_twelve_ranks(groups: list[tuple[int, ...]], sizes: tuple[int, ...]) -> None:
    assert mesh_of(12, groups, "job") == Mesh(sizes)


def test_steps_that_do_not_divide_the_ranks_are_left_out() -> None:
    """Five neighbors of twelve are no row of any grid."""
    assert mesh_of(12, [(0, 1, 2, 3, 4)], "job") == Mesh((12,))


def test_groups_that_form_no_grid_are_told_by_their_steps() -> None:
    with pytest.raises(TraceError) as error:
        mesh_of(12, [(0, 1, 2, 3), (0, 6)], "my job")
    assert str(error.value).startswith(
        "my job: the communicator groups do not form a grid of ranks"
    )
    assert "one has steps of 4, another of 6" in str(error.value)


@tried(40)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.data())
def test_places_and_ranks_are_two_names_of_one_thing(sizes: list[int], data: st.DataObject) -> None:
    mesh = Mesh(tuple(sizes))
    rank = data.draw(st.integers(0, mesh.num_ranks - 1))
    (place,) = mesh.coordinates(np.array([rank])).tolist()
    assert all(0 <= at < size for at, size in zip(place, sizes, strict=True))
    steps = [int(np.prod(sizes[:axis])) for axis in range(len(sizes))]
    assert rank == sum(at * step for at, step in zip(place, steps, strict=True))
    assert mesh.ranks(np.array([place])).tolist() == [rank]
