import json

import pytest

from layerdag.errors import TraceError
from layerdag.traces.pytorch import declared_groups, number_groups, process_groups


def group(name: object, ranks: list[int], size: int) -> dict:
    return {"pg_name": name, "pg_desc": "x", "ranks": ranks, "group_size": size}


def test_no_ranks_means_all_and_names_become_integers_that_all_ranks_agree_on():
    first = [json.dumps([group("0", [], 4), group("tp_abc", [0, 1], 2)])]
    third = [json.dumps([group("0", [], 4), group("tp_xyz", [2, 3], 2)])]
    declared = [declared_groups(first, "r0"), declared_groups(third, "r2")]
    names = number_groups(declared)
    assert names == {(0, 1, 2, 3): "0", (0, 1): "1", (2, 3): "2"}
    assert process_groups(declared[1], names).alias == {"0": "0", "tp_xyz": "2"}


def test_schema_1_0_3_wrote_pairs():
    texts = [json.dumps([group(["7", "desc"], [], 2)])]
    assert declared_groups(texts, "r0") == {"7": (0, 1)}


def test_one_process_has_no_groups():
    assert number_groups([declared_groups([], "r0")]) == {}


@pytest.mark.parametrize("text", ["no json", '[{"pg_name": "0"}]', "[3]"])
def test_other_lists_are_refused(text):
    with pytest.raises(TraceError, match="r0: the process groups are not listed"):
        declared_groups([text], "r0")


@pytest.mark.parametrize(
    "row",
    [
        group("0", [], 2) | {"group_size": float("inf")},
        group("0", [], 2) | {"group_size": "many"},
        group("0", [-1], 2),
        group("0", [0, True], 2),
        group("0", [0, "1"], 2),
        group("0", [], 2) | {"ranks": "12"},
        group("0", [], 2) | {"ranks": None},
        group([], [], 2),
    ],
)
def test_a_group_that_is_none_is_refused(row):
    with pytest.raises(TraceError, match="r0: the process groups are not listed as PyTorch"):
        declared_groups([json.dumps([row])], "r0")


def test_deeply_nested_lists_are_refused():
    with pytest.raises(TraceError, match="r0: the process groups are not listed"):
        declared_groups(["[" * 100_000], "r0")


def test_a_group_of_more_ranks_than_any_job_has_is_not_written_down():
    texts = [json.dumps([group("0", [], 2**20 + 1)])]
    with pytest.raises(TraceError, match=r"r0: declares a process group of 1,048,577 ranks; .*"):
        declared_groups(texts, "r0")
    assert len(declared_groups([json.dumps([group("0", [], 2**10)])], "r0")["0"]) == 1024


def test_a_group_without_ranks_is_the_largest_group_that_is_declared():
    texts = [json.dumps([group("0", [], 4), group("all again", [], 2), group("tp", [1, 3], 2)])]
    found = declared_groups(texts, "r0")
    assert found == {"0": (0, 1, 2, 3), "all again": (0, 1, 2, 3), "tp": (1, 3)}


def test_the_world_is_zero_and_the_others_are_counted_by_their_ranks():
    declared = [{"a": (2, 3), "b": (0, 1)}, {"w": (0, 1, 2, 3), "c": (0, 2)}]
    names = number_groups(declared)
    assert names == {(0, 1, 2, 3): "0", (0, 1): "1", (0, 2): "2", (2, 3): "3"}
    assert number_groups(reversed(declared)) == names


def test_only_a_single_group_is_taken_for_granted():
    one = process_groups({"x": (0, 1)}, {(0, 1): "0"})
    assert one.only() == "0"
    two = process_groups({"x": (0, 1)}, {(0, 1): "0", (1,): "1"})
    assert two.only() is None
    assert process_groups({}, {}).only() is None
