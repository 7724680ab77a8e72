"""Private words of a user's graphs do not reach a schema."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from host_json import MM, node, tensor, write_host
from random_jobs import random_job
from raw_graphs import chain

from layerdag.codec.unfolding import unfold
from layerdag.codec.vocabulary import OTHER
from layerdag.datasets.folder import load_folder
from layerdag.datasets.private_words import is_public, rename_private_words
from layerdag.datasets.settings import FolderConfig
from layerdag.errors import ConfigError, DataError
from layerdag.graph.attributed_graph import AttributedGraph, write_json
from layerdag.graph.formats.graphml import write_graphml
from layerdag.kinds.job import JOB
from layerdag.traces.builder import NodeSpec, build_trace
from layerdag.traces.chakra.files import write_trace
from layerdag.traces.chakra.workload import write_workload
from layerdag.traces.trace import NodeType


def test_workloads_are_read_with_their_labels(tmp_path):
    for seed in range(3):
        unfolded = unfold(random_job(seed, 2), 2)
        write_workload(unfolded.workload, tmp_path / "runs" / f"job{seed}")
    labels = tmp_path / "labels.csv"
    rows = "".join(f"runs/job{i},{i}.5,{s}\n" for i, s in enumerate(("train", "train", "test")))
    labels.write_text("name,label,split\n" + rows)
    data = load_folder(FolderConfig(folder=tmp_path, labels=labels))
    assert data.schema.kind == JOB
    assert data.names["train"] == ("runs/job0", "runs/job1")
    assert data.graphs["train"][1].conditions["label"] == 1.5
    assert data.graphs["train"][0].conditions["world_size"] == "2"
    assert data.left_out == ()


def test_graphml_files_get_the_attributes_that_any_of_them_has(tmp_path):
    from dataclasses import replace

    import numpy as np

    plain = chain("a", "abc")
    more = replace(plain, numbers={"size": np.arange(3.0)})
    write_graphml(tmp_path / "a.graphml", plain)
    write_graphml(tmp_path / "b.graphml", more)
    (tmp_path / "broken.graphml").write_text("<graphml>")
    data = load_folder(FolderConfig(folder=tmp_path))
    assert [attribute.name for attribute in data.schema.attributes] == ["kind", "size"]
    assert sum(len(names) for names in data.names.values()) == 2
    assert len(data.left_out) == 1


def test_jobs_are_read_whatever_wrote_them(tmp_path):
    write_workload(unfold(random_job(0, 2), 2).workload, tmp_path / "chakra")
    product = node(3, "aten::mm", MM, (tensor(1), tensor(2)), (tensor(3),))
    (tmp_path / "deep").mkdir()
    write_host(tmp_path / "deep" / "run_rank0.json", [product])
    (tmp_path / "labels.csv").write_text("name,split\nchakra,train\ndeep/run,val\n")
    data = load_folder(FolderConfig(folder=tmp_path, labels=tmp_path / "labels.csv"))
    assert data.names == {"train": ("chakra",), "val": ("deep/run",), "test": ()}
    with pytest.raises(DataError, match=r"data\.avoid_copies is of programs, and it holds none"):
        load_folder(FolderConfig(folder=tmp_path, avoid_copies=True))


def test_a_text_attribute_that_names_nodes_is_left_out(tmp_path):
    from dataclasses import replace

    big = chain("a", "ab" * 300)
    named = replace(big, categories={**big.categories, "id": [f"n{i}" for i in range(600)]})
    write_json(tmp_path / "a.json", named)
    data = load_folder(FolderConfig(folder=tmp_path))
    assert [attribute.name for attribute in data.schema.attributes] == ["kind"]


def test_a_folder_of_both_kinds_is_refused(tmp_path):
    write_graphml(tmp_path / "a.graphml", chain("a", "ab"))
    write_workload(unfold(random_job(0, 1), 1).workload, tmp_path / "job")
    with pytest.raises(DataError, match=r"traces \(1, such as .*\) and graphs \(1, such as"):
        load_folder(FolderConfig(folder=tmp_path))


def test_labels_that_name_no_graph_are_refused(tmp_path):
    write_graphml(tmp_path / "a.graphml", chain("a", "ab"))
    labels = tmp_path / "labels.json"
    labels.write_text('{"x": 1}')
    with pytest.raises(DataError, match="make the names agree"):
        load_folder(FolderConfig(folder=tmp_path, labels=labels))


def test_an_empty_or_missing_folder_is_refused(tmp_path):
    with pytest.raises(DataError, match="no graph could be read"):
        load_folder(FolderConfig(folder=tmp_path))
    with pytest.raises(DataError, match="no such folder"):
        load_folder(FolderConfig(folder=tmp_path / "none"))


def test_graphs_over_the_limit_and_damaged_ones_are_listed(tmp_path):
    for i in range(5):
        write_json(tmp_path / f"g{i}.json", chain(f"g{i}", "ab" * (i + 1)))
    (tmp_path / "broken.graphml").write_text("<graphml>")
    data = load_folder(FolderConfig(folder=tmp_path, max_nodes=8))
    told = {line.split(":")[0]: line for line in data.left_out}
    assert set(told) == {"g4", "broken"}
    assert told["g4"] == "g4: 10 nodes, more than 8"
    assert "is not readable GraphML" in told["broken"]


def test_a_folder_of_damaged_files_alone_tells_the_first_reason(tmp_path):
    (tmp_path / "a.graphml").write_text("<graphml>")
    with pytest.raises(
        DataError, match=r"no graph could be read; the first reason: a: .*a\.graphml"
    ):
        load_folder(FolderConfig(folder=tmp_path))


def test_the_split_of_a_label_file_is_kept(tmp_path):
    for i in range(6):
        write_json(tmp_path / f"g{i}.json", chain(f"g{i}", "ab" * (i + 1)))
    rows = ["name,split", *(f"g{i},{'test' if i > 3 else 'val'}" for i in range(2, 6))]
    (tmp_path / "labels.csv").write_text("\n".join(rows))
    data = load_folder(FolderConfig(folder=tmp_path, labels=tmp_path / "labels.csv"))
    assert {split: sorted(names) for split, names in data.names.items()} == {
        "train": ["g0", "g1"], "val": ["g2", "g3"], "test": ["g4", "g5"],
    }  # fmt: skip


def test_a_number_that_is_a_word_in_another_graph_is_a_word_in_both(tmp_path):
    for name, value in (("a", "3"), ("b", "relu"), ("c", "4")):
        body = f"<node id='x'><data key='k'>{value}</data></node><node id='y'/>"
        (tmp_path / f"{name}.graphml").write_text(
            f"<graphml><graph edgedefault='directed'>{body}</graph></graphml>"
        )
    graphs = [
        schema_words(load_folder(FolderConfig(folder=tmp_path, seed=seed))) for seed in range(3)
    ]
    # Whichever graph trains, the attribute is one of words, "" where a node lacks it.
    assert all("" in words for words in graphs)


def schema_words(data):
    [attribute] = [a for a in data.schema.attributes if a.name == "k"]
    return attribute.values


SECRET = "acme-kernel"


def flow(name: str, *kinds: str, edge: str = "data", **conditions: float | str) -> AttributedGraph:
    return replace(
        chain(name, "a" * len(kinds), **conditions),
        categories={"kind": list(kinds)},
        edge_type_names=(edge,),
    )


@pytest.mark.parametrize(
    "word", ["Conv2D", "aten::mm", "mm", "layer_norm", "MatMul", "gpt", "", "x", "H100"]
)
def test_words_of_public_frameworks_are_public(word):
    assert is_public(word)


@pytest.mark.parametrize(
    "word",
    [
        *(SECRET, "gpt-acme", "user@host", "/home/me", "1.2.3.4", "Bobnet", "acme::mm"),
        *("acme/a::add", "acme/conv2d", "4815162342", "3.5e-2", "-7", "7", "nan", "²"),
    ],
)
def test_other_words_and_numbers_are_not(word):
    assert not is_public(word)


def test_private_words_are_renamed_everywhere_and_the_same_in_all_graphs():
    graphs = [
        flow("g", "matmul", SECRET, edge="acme-bus", family="acmenet"),
        flow("h", SECRET, "zeta-op", edge="data", family="gpt"),
    ]
    (first, second), renamed = rename_private_words(graphs)
    assert first.categories["kind"] == ["matmul", "kind-0"]
    assert second.categories["kind"] == ["kind-0", "kind-1"]
    assert (first.edge_type_names, second.edge_type_names) == (("edge-0",), ("data",))
    assert (first.conditions["family"], second.conditions["family"]) == ("family-0", "gpt")
    assert renamed == {
        "kind": {"kind-0": SECRET, "kind-1": "zeta-op"},
        "edge": {"edge-0": "acme-bus"},
        "family": {"family-0": "acmenet"},
    }


def other_jobs(tmp_path: Path, known: int, unknown: int) -> Path:
    """Write a job of operators that PyTorch has, and of a team's own."""
    nodes = ["aten::mm"] * known + [f"acme::fused_{i}" for i in range(unknown)]
    specs = [NodeSpec(i, name, NodeType.COMP) for i, name in enumerate(nodes)]
    for job, name in enumerate("abc"):
        write_trace(build_trace(specs[: len(specs) - job]), tmp_path / f"{name}.et")
    return tmp_path


def test_a_data_set_of_unknown_operators_is_refused_and_the_way_out_is_named(tmp_path):
    folder = other_jobs(tmp_path, known=2, unknown=6)
    with pytest.raises(DataError, match=r"most often 'acme::fused'.*public_words=all"):
        load_folder(FolderConfig(folder=folder))
    for words in ("all", ["acme::fused"]):
        schema = load_folder(FolderConfig(folder=folder, public_words=words)).schema
        assert schema.attributes[0].values == ("acme::fused", "aten::mm", OTHER)


def test_jobs_with_some_unknown_operators_are_a_data_set(tmp_path):
    schema = load_folder(FolderConfig(folder=other_jobs(tmp_path, known=6, unknown=4))).schema
    assert schema.attributes[0].values == ("aten::mm", OTHER)
    assert {c.name: c.values for c in schema.category_conditions} == {"world_size": ("1",)}


def test_a_new_word_never_means_an_old_one():
    (graph,), renamed = rename_private_words([flow("g", "kind-0", "zeta-op")])
    assert len(set(graph.categories["kind"])) == 2
    assert set(renamed["kind"].values()) == {"kind-0", "zeta-op"}


def test_words_that_are_declared_public_and_all_words_on_request_stay():
    graph = flow("g", SECRET, "zeta-op")
    (found,), _ = rename_private_words([graph], [SECRET])
    assert found.categories["kind"] == [SECRET, "kind-0"]
    (found,), renamed = rename_private_words([graph], "all")
    assert (found.categories["kind"], renamed) == ([SECRET, "zeta-op"], {})
    with pytest.raises(ConfigError, match="must be a list of words"):
        rename_private_words([graph], "some")


def test_the_schema_of_a_folder_holds_no_private_word(tmp_path):
    for i in range(6):
        graph = flow(f"g{i}", "matmul", *["relu"] * i, SECRET, edge="acme-bus")
        write_json(tmp_path / f"g{i}.json", graph)
    rows = "".join(f"g{i},{i},acmenet\n" for i in range(6))
    (tmp_path / "labels.csv").write_text("name,label,family\n" + rows)
    data = load_folder(FolderConfig(folder=tmp_path, labels=tmp_path / "labels.csv"))
    text = json.dumps(data.schema.to_dict())
    assert "acme" not in text
    assert data.renamed["family"] == {"family-0": "acmenet"}
    kept = load_folder(
        FolderConfig(folder=tmp_path, labels=tmp_path / "labels.csv", public_words="all")
    )
    assert "acmenet" in json.dumps(kept.schema.to_dict())


def test_programs_that_call_operators_of_others_are_refused(tmp_path):
    """Their names would lie in every checkpoint, and samples could not run them."""
    secret = {"operator": "acme.secret_kernel.default", "arguments": [{"edge": "#"}]}
    source = {"operator": "input", "arguments": [{"input": ["B0"], "dtype": "float32"}]}
    for at in range(8):
        nodes = [source, *({**secret, "inputs": [i]} for i in range(at + 1))]
        data = {"format": "layerdag-program/1", "name": "it", "sizes": {"B0": 4},
                "outputs": [at + 1], "nodes": nodes}  # fmt: skip
        (tmp_path / f"{at}.program.json").write_text(json.dumps(data))
    with pytest.raises(DataError, match=r"1 different calls of operators.*acme.secret_kernel"):
        load_folder(FolderConfig(folder=tmp_path))
