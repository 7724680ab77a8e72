from typing import Any

import pytest
from raw_graphs import chain

from layerdag.datasets import GraphDataset
from layerdag.graph import DAG
from layerdag.surrogates._seen import SeenCodes

KINDS = "abc"
GRAPHS = [chain(f"g{i}", KINDS[: 1 + i % 3] * 3, label=1.0) for i in range(12)]
DATA = GraphDataset.build("toy", "flow", {"train": GRAPHS, "test": GRAPHS[:1]})


def dag(letters: str) -> DAG:
    return DATA.schema.encode(chain("g", letters))


@pytest.fixture
def seen() -> SeenCodes:
    """Return what graphs of 3 to 9 nodes with the kinds a and b were like."""
    return SeenCodes.of([dag("aba"), dag("b" * 9)])


def test_graphs_like_those_of_the_fit_are_familiar(seen: SeenCodes) -> None:
    assert seen.outside(dag("aabb"), DATA.schema) == ""


def test_sizes_and_kinds_that_were_not_there_are_told(seen: SeenCodes) -> None:
    assert seen.outside(dag("ab" * 10), DATA.schema) == "20 nodes, fitted on 3 to 9"
    told = seen.outside(dag("acca"), DATA.schema)
    assert told == "50% of the nodes have a 'kind' that no graph of the fit has"
    assert "; " in seen.outside(dag("c" * 10), DATA.schema)


def test_one_rare_node_of_many_is_no_reason(seen: SeenCodes) -> None:
    large = SeenCodes(1, 100, seen.codes)
    assert large.outside(dag("a" * 30 + "c"), DATA.schema) == ""


def test_it_comes_back_from_plain_data(seen: SeenCodes) -> None:
    assert SeenCodes.from_dict(seen.to_dict()) == seen


@pytest.mark.parametrize(
    "data", [None, {}, {"fewest": 1, "most": "x", "codes": []}, {"fewest": 1, "most": 2}]
)
def test_anything_else_is_none(data: Any) -> None:
    assert SeenCodes.from_dict(data) is None
