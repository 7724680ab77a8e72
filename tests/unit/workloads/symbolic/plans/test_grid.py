"""Ranks as coordinates: which ranks are in a group, and who is a neighbor."""

import itertools

import numpy as np
import pytest

from layerdag.workloads.symbolic import Plan
from layerdag.workloads.symbolic.plans import PEERS, ROLES, Grid

PLANS = [
    Plan(),
    Plan(tensor=4),
    Plan(data=3),
    Plan(pipeline=3, tensor=2),
    Plan(tensor=2, context=3, data=2, pipeline=2, expert=6),
    Plan(data=4, context=2, expert=4),
]


def place(plan: Plan, rank: int) -> tuple[int, int, int, int]:
    """Return (stage, data, context, tensor) of a rank, tensor fastest."""
    rest, tensor = divmod(rank, plan.tensor)
    rest, context = divmod(rest, plan.context)
    stage, data = divmod(rest, plan.data)
    return stage, data, context, tensor


@pytest.mark.parametrize("plan", PLANS, ids=str)
@pytest.mark.parametrize(
    ("role", "free"), [("tensor", (3,)), ("context", (2,)), ("data", (1, 2))], ids=str
)
def test_members_of_a_group_differ_in_the_coordinates_of_its_role_alone(
    role: str, free: tuple[int, ...], plan: Plan
) -> None:
    for members in Grid(plan).groups(role).tolist():
        places = [place(plan, rank) for rank in members]
        for axis in range(4):
            if axis not in free:
                assert len({one[axis] for one in places}) == 1
        assert len(set(places)) == len(members)


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_groups_have_the_size_of_their_degree(plan: Plan) -> None:
    sizes = {role: Grid(plan).groups(role).shape[1] for role in ROLES}
    assert sizes == {
        "tensor": plan.tensor,
        "context": plan.context,
        "data": plan.data * plan.context,
        "expert": plan.expert,
        "expert_data": plan.data * plan.context // plan.expert,
        "embedding": 2 if plan.pipeline > 1 else 1,
    }


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_expert_ranks_and_their_replicas_make_up_the_data_ranks(plan: Plan) -> None:
    """Each pair of ranks that share dense weights shares experts, or shares tokens of experts."""
    grid = Grid(plan)
    same = {
        role: {
            pair
            for members in grid.groups(role).tolist()
            for pair in itertools.permutations(members, 2)
        }
        for role in ("data", "expert", "expert_data")
    }
    assert not same["expert"] & same["expert_data"]
    assert same["expert"] | same["expert_data"] <= same["data"]


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_neighbors_are_one_stage_away_at_the_same_place(plan: Plan) -> None:
    grid = Grid(plan)
    after = grid.peer_R("next")
    for rank, other in enumerate(after.tolist()):
        stage, *rest = place(plan, rank)
        assert place(plan, other) == ((stage + 1) % plan.pipeline, *rest)
        assert (grid.stage(rank), grid.stage(other)) == (stage, (stage + 1) % plan.pipeline)
    assert grid.peer_R("previous")[after].tolist() == list(range(plan.ranks))


def test_one_rank_is_alone_in_every_group_and_its_own_neighbor() -> None:
    grid = Grid(Plan())
    assert all(grid.groups(role).tolist() == [[0]] for role in ROLES)
    assert all(grid.peer_R(peer).tolist() == [0] for peer in PEERS)


def test_tied_embeddings_join_the_first_and_the_last_stage_and_no_other() -> None:
    groups = Grid(Plan(pipeline=4, tensor=2)).groups("embedding")
    np.testing.assert_array_equal(groups, [[0, 6], [1, 7]])
