"""What a rank holds, worked out by hand."""

import pytest
from simulator_traces import comp, ring, system, workload

from layerdag.evaluation.rankings import live_bytes
from layerdag.simulator import Cluster, simulate
from layerdag.traces import Attribute, Wire
from layerdag.traces.chakra import NodeSpec


def sized(id: int, deps: tuple[int, ...], size: int) -> NodeSpec:
    """Return a node of 1 us with a result of so many bytes."""
    attributes = (Attribute("tensor_size", Wire.UINT64, size),)
    return NodeSpec(**{**vars(comp(id, 1, deps)), "attributes": attributes})


def held(*ranks: list[NodeSpec]) -> int:
    return live_bytes(simulate(workload(*ranks), Cluster(ring(len(ranks)), system())))


def test_a_result_is_held_until_its_last_user_ends() -> None:
    chain = [sized(0, (), 100), sized(1, (0,), 30), sized(2, (1,), 5)]
    assert held(chain, chain) == 130
    kept = [*chain[:2], sized(2, (0, 1), 5)]
    assert held(kept, kept) == 135


def test_what_nobody_needs_is_held_while_it_is_made() -> None:
    alone = [sized(0, (), 100), sized(1, (), 70)]
    assert held(alone, alone) == 100


def test_the_fullest_rank_counts() -> None:
    assert held([sized(0, (), 100)], [sized(0, (), 300)]) == 300


@pytest.mark.parametrize("size", [0])
def test_nothing_is_held_where_no_node_states_bytes(size: int) -> None:
    assert held([sized(0, (), size)], [comp(0, 1, ())]) == 0
