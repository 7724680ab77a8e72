"""A sample from files or from a table."""

import json

import pytest
from raw_graphs import chain

from layerdag.datasets.files import encode_graphml, encode_json
from layerdag.datasets.samples import StoredSample
from layerdag.errors import DataError

META = json.dumps(
    {"name": "sample-00000", "seed": 5, "conditions": {"label": 1, "on": True, "family": "gpt"}}
).encode()


def sample(files: dict[str, bytes]) -> StoredSample:
    return StoredSample.of(META, "part.tar:sample-00000", files)


def test_conditions_are_numbers_and_words() -> None:
    assert sample({}).conditions == {"label": 1, "family": "gpt"}
    assert (sample({}).name, sample({}).seed) == ("sample-00000", 5)


@pytest.mark.parametrize(("ending", "encode"), [("json", encode_json), ("graphml", encode_graphml)])
def test_a_flow_graph_reads_from_its_file(ending: str, encode) -> None:
    graph = chain("g", "abca", label=2.0)
    found = sample({f"sample-00000.{ending}": encode(graph)})
    assert not found.is_job
    assert found.graph.categories == {"kind": ["a", "b", "c", "a"]}
    assert found.graph.conditions == {"label": 2.0}


@pytest.mark.parametrize(
    "files",
    [{}, {"sample-00000.json": b"{"}, {"sample-00000.graphml": b"<"}, {"sample-00000.0.et": b"x"},
     {"sample-00000.1.et": b""}],
)  # fmt: skip
def test_damaged_files_name_the_sample(files: dict[str, bytes]) -> None:
    with pytest.raises(DataError, match=r"part\.tar:sample-00000"):
        _ = sample(files).graph


def test_a_name_is_that_of_a_sample() -> None:
    with pytest.raises(DataError, match=r"'\.\./x' is no name of a sample"):
        StoredSample("../x", 1, {}, {}, "t.parquet")
