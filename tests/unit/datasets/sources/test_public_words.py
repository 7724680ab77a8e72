"""Private words of a user's graphs do not reach a schema."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from raw_graphs import chain

from layerdag.codec import AttributedGraph
from layerdag.datasets.files import write_json
from layerdag.datasets.sources import load_folder
from layerdag.datasets.sources._public_words import is_public, publish
from layerdag.errors import ConfigError

SECRET = "acme-kernel"


def flow(name: str, *kinds: str, edge: str = "data", **conditions: float | str) -> AttributedGraph:
    return replace(
        chain(name, "a" * len(kinds), **conditions),
        categories={"kind": list(kinds)},
        edge_type_names=(edge,),
    )


@pytest.mark.parametrize(
    "word", ["Conv2D", "aten::mm", "layer_norm", "MatMul", "gpt", "3.5e-2", "-7", "", "x", "H100"]
)
def test_words_of_public_frameworks_and_numbers_are_public(word: str):
    assert is_public(word)


@pytest.mark.parametrize("word", [SECRET, "gpt-acme", "user@host", "/home/me", "1.2.3.4", "Bobnet"])
def test_other_words_are_not(word: str):
    assert not is_public(word)


def test_private_words_are_renamed_everywhere_and_the_same_in_all_graphs():
    graphs = [
        flow("g", "matmul", SECRET, edge="acme-bus", family="acmenet"),
        flow("h", SECRET, "zeta-op", edge="data", family="gpt"),
    ]
    (first, second), renamed = publish(graphs)
    assert first.categories["kind"] == ["matmul", "kind-0"]
    assert second.categories["kind"] == ["kind-0", "kind-1"]
    assert (first.edge_type_names, second.edge_type_names) == (("edge-0",), ("data",))
    assert (first.conditions["family"], second.conditions["family"]) == ("family-0", "gpt")
    assert renamed == {
        "kind": {"kind-0": SECRET, "kind-1": "zeta-op"},
        "edge": {"edge-0": "acme-bus"},
        "family": {"family-0": "acmenet"},
    }


def test_a_new_word_never_means_an_old_one():
    (graph,), renamed = publish([flow("g", "kind-0", "zeta-op")])
    assert len(set(graph.categories["kind"])) == 2
    assert set(renamed["kind"].values()) == {"kind-0", "zeta-op"}


def test_words_that_are_declared_public_and_all_words_on_request_stay():
    graph = flow("g", SECRET, "zeta-op")
    (found,), _ = publish([graph], [SECRET])
    assert found.categories["kind"] == [SECRET, "kind-0"]
    (found,), renamed = publish([graph], "all")
    assert (found.categories["kind"], renamed) == ([SECRET, "zeta-op"], {})
    with pytest.raises(ConfigError, match="must be a list of words"):
        publish([graph], "some")


def test_the_schema_of_a_folder_holds_no_private_word(tmp_path: Path):
    for i in range(6):
        graph = flow(f"g{i}", "matmul", *["relu"] * i, SECRET, edge="acme-bus")
        write_json(tmp_path / f"g{i}.json", graph)
    rows = "".join(f"g{i},{i},acmenet\n" for i in range(6))
    (tmp_path / "labels.csv").write_text("name,label,family\n" + rows)
    data = load_folder(tmp_path, labels=tmp_path / "labels.csv")
    text = json.dumps(data.schema.to_dict())
    assert "acme" not in text
    assert data.renamed["family"] == {"family-0": "acmenet"}
    kept = load_folder(tmp_path, labels=tmp_path / "labels.csv", public_words="all")
    assert "acmenet" in json.dumps(kept.schema.to_dict())
