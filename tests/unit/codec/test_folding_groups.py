"""Roles of groups: who takes part, without naming a rank."""

import pytest
from hypothesis import given, strategies as st
from laws import tried

from layerdag.codec.folding import JobGroups, members
from layerdag.errors import TraceError

CLASSES = [(0, 1, 2, 3), (4, 5, 6, 7)]
GROUPS = {
    "1": tuple(range(8)),
    "2": (0, 1, 2, 3),
    "3": (2, 3),
    "4": (1, 3),
    "5": (0, 4),
    "6": (6,),
    "7": (3, 4, 5),
}


@pytest.fixture
def job() -> JobGroups:
    return JobGroups("job", CLASSES, GROUPS)


@pytest.mark.parametrize(
    ("group", "role", "classes"),
    [
        ("", "world", (0, 1)),
        ("0", "world", (0, 1)),
        ("1", "world", (0, 1)),
        ("2", "stage", (0,)),
        ("3", "contiguous2", (0,)),
        ("4", "strided2", (0,)),
        ("5", "strided2", (0, 1)),
        ("6", "contiguous1", (1,)),
        ("7", "contiguous3", (0, 1)),
    ],
)
def test_a_role_says_who_takes_part(job, group, role, classes):
    assert job.role(group) == role
    assert job.classes_of(group) == classes


def test_a_described_group_of_the_name_of_the_world_is_what_it_is_described_as():
    assert JobGroups("job", CLASSES, {"0": (0, 1)}).ranks("0") == {0, 1}


def test_unknown_groups_and_ranks_are_named(job):
    with pytest.raises(TraceError, match=r"job: a collective runs in group '9', .*add the communi"):
        job.role("9")
    with pytest.raises(TraceError, match="job: a message names rank 8, of which there is no trace"):
        job.stage_of(8)
    assert [job.stage_of(rank) for rank in (0, 3, 4, 7)] == [0, 0, 1, 1]
    assert job.num_classes == 2


@pytest.mark.parametrize(
    ("role", "domain", "rank", "expected"),
    [
        ("world", range(4), 2, (0, 1, 2, 3)),
        ("stage", range(4, 8), 6, (4, 5, 6, 7)),
        ("contiguous2", range(8), 5, (4, 5)),
        ("contiguous4", range(8), 5, (4, 5, 6, 7)),
        ("strided2", range(8), 5, (1, 5)),
        ("strided4", range(8), 5, (1, 3, 5, 7)),
        ("contiguous3", range(8), 5, (4, 5)),  # 2 is the largest size up to 3 that divides 8
        ("contiguous16", range(8), 5, tuple(range(8))),
        ("contiguous5", range(7), 3, (3,)),
        ("strided2", (3, 5, 8, 9), 8, (3, 8)),
        ("contiguous2", (3, 5, 8, 9), 8, (8, 9)),
        ("contiguous0", range(4), 1, (0, 1, 2, 3)),  # no shape
        ("diagonal2", range(4), 1, (0, 1, 2, 3)),
        ("contiguous12345678", range(4), 1, (0, 1, 2, 3)),
    ],
)
def test_members_share_a_group_with_a_rank(role, domain, rank, expected):
    assert members(role, list(domain), rank) == expected


@tried(60)
@given(
    st.sampled_from(["contiguous", "strided"]),
    st.integers(1, 20),
    st.lists(st.integers(0, 99), min_size=1, max_size=16, unique=True),
)
def test_groups_of_a_shape_partition_their_domain_into_equal_parts(shape, size, ranks):
    domain = sorted(ranks)
    groups = {members(f"{shape}{size}", domain, rank) for rank in domain}
    assert sorted(rank for group in groups for rank in group) == domain
    assert all(rank in members(f"{shape}{size}", domain, rank) for rank in domain)
    (length,) = {len(group) for group in groups}
    assert length == max(d for d in range(1, min(size, len(domain)) + 1) if len(domain) % d == 0)


@tried(40)
@given(st.sampled_from(["contiguous", "strided"]), st.sampled_from([2, 4, 8]), st.integers(1, 4))
def test_the_role_of_an_unfolded_group_is_the_role_that_it_was_unfolded_from(shape, size, times):
    """But for a group of neighbors that fills its domain, which is the whole stage."""
    domain = list(range(size * times))
    group = members(f"{shape}{size}", domain, 0)
    found = JobGroups("job", [tuple(domain), (1000,)], {"1": group}).role("1")
    if times == 1:
        assert found == "stage"
    else:
        assert found == f"{shape}{size}"
