"""Communicator groups as arrays, against plain Python."""

import itertools

import numpy as np
import pytest
from hypothesis import given, strategies as st
from laws import tried
from simulator_traces import comp, workload

from layerdag.errors import SimulationError
from layerdag.simulator.engine import refuse_described_world
from layerdag.simulator.engine._groups import GroupIndex, Line, is_group_name

groups_of = st.dictionaries(
    st.integers(1, 99).map(str),
    st.lists(st.integers(0, 7), min_size=1, max_size=8, unique=True).map(tuple),
    max_size=4,
)


def index(groups: dict[str, tuple[int, ...]], ranks: int = 8) -> GroupIndex:
    return GroupIndex.build(workload(*[[comp(0, 1)]] * ranks, groups=groups))


@given(groups_of)
@tried(25)
def test_members_and_places_are_those_of_the_group_file(groups):
    found = index(groups)
    assert found.names.tolist() == [int(name) for name in groups]
    assert {name: found.index_of[name] for name in groups} == {n: i for i, n in enumerate(groups)}
    for at, members in enumerate(groups.values()):
        assert found.rank[found.ptr[at] : found.ptr[at + 1]].tolist() == list(members)
        assert found.size(at) == len(members)
    for rank in range(8):
        rows = slice(found.rank_ptr[rank], found.rank_ptr[rank + 1])
        own = [
            (at, members.index(rank))
            for at, members in enumerate(groups.values())
            if rank in members
        ]
        assert list(zip(found.of_rank[rows], found.position[rows], strict=True)) == own


def slow_lines(members: tuple[int, ...], sizes: tuple[int, ...]) -> tuple[Line, ...] | None:
    """Return the lines of a group by trying every grid of lines that tile their dimensions."""
    choices = []
    for d, size in enumerate(sizes):
        below = int(np.prod(sizes[:d]))
        choices.append(
            [
                (Line(count, step * below), [start + i * step for i in range(count)])
                for count in range(1, size + 1)
                for step in (range(1, size) if count > 1 else [1])
                for start in range(size)
                if size % (count * step) == 0 and start // step % count == 0
                and start + (count - 1) * step < size
            ]
        )  # fmt: skip
    for grid in itertools.product(*choices):
        places = itertools.product(*(place for _, place in grid))
        ranks = {sum(at * int(np.prod(sizes[:d])) for d, at in enumerate(p)) for p in places}
        if ranks == set(members):
            return tuple(line for line, _ in grid)
    return None


@given(
    st.sampled_from([(2, 2, 2), (4, 2), (2, 4), (1, 8), (8,), (2, 1, 4)]),
    st.lists(st.integers(0, 7), min_size=1, max_size=8, unique=True),
)
@tried(60)
def test_a_group_fills_lines_where_it_is_a_grid_of_them(sizes, members):
    assert index({"5": tuple(members)}).lines(0, sizes) == slow_lines(tuple(members), sizes)


@pytest.mark.parametrize(
    ("sizes", "members", "expected"),
    [
        ((2, 4), (0, 1), [(2, 1), (1, 2)]),
        ((2, 4), (7, 1, 3, 5), [(1, 1), (4, 2)]),
        ((2, 4), (0, 2), [(1, 1), (2, 2)]),
        ((2, 4), (2, 4), None),  # 1 and 2 of 0 to 3: no half of the dimension
        ((2, 4), tuple(range(8)), [(2, 1), (4, 2)]),
        ((4, 2), (1, 3, 5, 7), [(2, 2), (2, 4)]),  # every second rank of both nodes
        ((2, 2, 2), (0, 3, 4, 7), None),
        ((8,), (0, 3), None),
        ((8,), (1, 5), [(2, 4)]),
    ],
)
def test_lines_by_hand(sizes, members, expected):
    found = index({"1": members}).lines(0, sizes)
    assert found == (expected and tuple(Line(*pair) for pair in expected))


@given(st.sampled_from([(8, 2), (4, 4), (2, 8), (16,)]), st.data())
@tried(40)
def test_the_rank_tells_its_place_on_every_line(sizes, data):
    """What the kernel relies on (native/sim/collective.c): rank / stride modulo members."""
    groups = {}
    for number in range(1, 4):
        step, count = data.draw(st.sampled_from([1, 2, 4])), data.draw(st.sampled_from([2, 4]))
        groups[str(number)] = tuple(range(0, step * count, step))
    found = index(groups, ranks=16)
    for at, members in enumerate(groups.values()):
        for line in found.lines(at, sizes) or ():
            places = {rank // line.stride % line.members for rank in members}
            assert places == set(range(line.members))


def test_a_world_group_of_all_ranks_needs_no_entry():
    found = index({"0": tuple(range(8)), "3": (1, 0)})
    assert found.names.tolist() == [3]


def test_a_world_group_of_some_ranks_is_no_name():
    with pytest.raises(SimulationError, match=r"group '0' has no integer above 0 as its name"):
        index({"0": (0, 1)})


def test_names_of_one_number_are_refused_with_both():
    with pytest.raises(SimulationError, match=r"groups '7' and '07' have the same number; rename"):
        index({"7": (0, 1), "07": (2, 3)})


@pytest.mark.parametrize(
    ("name", "usable"),
    [
        ("1", True),
        ("007", True),
        (str(2**31 - 1), True),
        (str(2**31), False),
        ("99999999999", False),
        ("0", False),
        ("-1", False),
        ("1.0", False),
        ("", False),
        ("tensor", False),
        ("\u0663", False),
    ],
)
def test_names_of_groups_are_positive_32_bit_integers(name, usable):
    assert is_group_name(name) is usable


def test_a_file_that_describes_the_world_is_refused_as_the_reference_aborts():
    nodes = [comp(0, 1)]
    refuse_described_world(workload(nodes, nodes, groups={"1": (0, 1)}))
    with pytest.raises(SimulationError) as caught:
        refuse_described_world(workload(nodes, nodes, groups={"0": (0, 1)}))
    assert 'describe group "0"' in str(caught.value)
    assert "remove the entry from the group file, or give the group a number" in str(caught.value)
