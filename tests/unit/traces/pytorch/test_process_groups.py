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
