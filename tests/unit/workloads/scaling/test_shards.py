"""Shards of FSDP2: rows that do not divide, one class of ranks for each size."""

import pytest
from same_jobs import operators

from layerdag.codec import rank_classes
from layerdag.traces import read_index, read_runs
from layerdag.workloads.scaling import scale
from layerdag.workloads.scaling._rows import Unit
from layerdag.workloads.scaling._shards import Change


def test_ten_rows_on_two_and_four_ranks() -> None:
    unit = Unit(45, 2, 4, True, ((10, 8), (10, 1)))
    assert [unit.shard(n) for n in (2, 4)] == [45, 27]
    assert [unit.held(4, place) for place in range(4)] == [27, 27, 27, 9]
    assert unit.resized(40, 4, 3) == 8
    assert unit.resized(41, 4, 3) is None


def test_shards_of_shards_are_rounded_up_once() -> None:
    for size in range(1, 60):
        once = -(-size // 12)
        assert Change(3, 12).shard(-(-size // 3)) == once


@pytest.mark.parametrize(
    ("run", "classes"),
    [
        (
            "0766_cnn_fsdp2_ws4",
            [(0, 1, 2), (3,)],
        ),  # ten rows: three ranks hold three, one holds one
        ("0784_bert_fsdp2_ws4", [(0, 1), (2, 3)]),  # an embedding table of two rows
    ],
)
def test_ranks_that_hold_less_are_a_class_of_their_own(
    run: str, classes: list[tuple[int, ...]]
) -> None:
    (record,) = [r for r in read_index("data") if r.run == run]
    (target,) = read_runs("data", [record])
    (twin,) = [r for r in read_index("data/twins") if r.run == f"{run}.ws2"]
    (source,) = read_runs("data/twins", [twin])
    made = scale(source.workload(), ranks=4).workload
    assert [part.ranks for part in rank_classes(made)] == classes
    for rank, trace in enumerate(target.workload().traces):
        assert operators(made.traces[rank]) == operators(trace)
