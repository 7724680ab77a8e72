from dataclasses import replace

import pytest
from random_jobs import random_job
from raw_graphs import chain

from layerdag.codec._unfold import unfold
from layerdag.codec.blocks import rolled
from layerdag.datasets.files import write_graphml, write_json
from layerdag.datasets.sources import load_folder
from layerdag.errors import DataError
from layerdag.traces import write_workload


def test_workloads_are_read_with_their_labels(tmp_path):
    for seed in range(3):
        unfolded = unfold(random_job(seed, 2), 2)
        write_workload(unfolded.workload, tmp_path / "runs" / f"job{seed}")
    labels = tmp_path / "labels.csv"
    rows = "".join(f"runs/job{i},{i}.5,{s}\n" for i, s in enumerate(("train", "train", "test")))
    labels.write_text("name,label,split\n" + rows)
    data = load_folder(tmp_path, labels=labels)
    assert data.schema.kind == "trace"
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
    data = load_folder(tmp_path)
    assert [attribute.name for attribute in data.schema.attributes] == ["kind", "size"]
    assert sum(len(names) for names in data.names.values()) == 2
    assert len(data.left_out) == 1


def test_a_text_attribute_that_names_nodes_is_left_out(tmp_path):
    from dataclasses import replace

    big = chain("a", "ab" * 300)
    named = replace(big, categories={**big.categories, "id": [f"n{i}" for i in range(600)]})
    write_json(tmp_path / "a.json", named)
    data = load_folder(tmp_path)
    assert [attribute.name for attribute in data.schema.attributes] == ["kind"]


def test_a_folder_of_both_kinds_is_refused(tmp_path):
    write_graphml(tmp_path / "a.graphml", chain("a", "ab"))
    write_workload(unfold(random_job(0, 1), 1).workload, tmp_path / "job")
    with pytest.raises(DataError, match="1 workloads and 1 flow graphs"):
        load_folder(tmp_path)


def test_labels_that_name_no_graph_are_refused(tmp_path):
    write_graphml(tmp_path / "a.graphml", chain("a", "ab"))
    labels = tmp_path / "labels.json"
    labels.write_text('{"x": 1}')
    with pytest.raises(DataError, match="make the names agree"):
        load_folder(tmp_path, labels=labels)


def test_an_empty_or_missing_folder_is_refused(tmp_path):
    with pytest.raises(DataError, match="no graph could be read"):
        load_folder(tmp_path)
    with pytest.raises(DataError, match="no such folder"):
        load_folder(tmp_path / "none")


def test_graphs_over_the_limit_and_damaged_ones_are_listed(tmp_path):
    for i in range(5):
        write_json(tmp_path / f"g{i}.json", chain(f"g{i}", "ab" * (i + 1)))
    (tmp_path / "broken.graphml").write_text("<graphml>")
    data = load_folder(tmp_path, max_nodes=8)
    told = {line.split(":")[0]: line for line in data.left_out}
    assert set(told) == {"g4", "broken"}
    assert told["g4"] == "g4: 10 nodes, more than 8"
    assert "is not readable GraphML" in told["broken"]


def test_a_folder_of_damaged_files_alone_tells_the_first_reason(tmp_path):
    (tmp_path / "a.graphml").write_text("<graphml>")
    with pytest.raises(
        DataError, match=r"no graph could be read; the first reason: a: .*a\.graphml"
    ):
        load_folder(tmp_path)


def test_the_split_of_a_label_file_is_kept(tmp_path):
    for i in range(6):
        write_json(tmp_path / f"g{i}.json", chain(f"g{i}", "ab" * (i + 1)))
    rows = ["name,split", *(f"g{i},{'test' if i > 3 else 'val'}" for i in range(2, 6))]
    (tmp_path / "labels.csv").write_text("\n".join(rows))
    data = load_folder(tmp_path, labels=tmp_path / "labels.csv")
    assert {split: sorted(names) for split, names in data.names.items()} == {
        "train": ["g0", "g1"], "val": ["g2", "g3"], "test": ["g4", "g5"],
    }  # fmt: skip


def test_a_number_that_is_a_word_in_another_graph_is_a_word_in_both(tmp_path):
    for name, value in (("a", "3"), ("b", "relu"), ("c", "4")):
        body = f"<node id='x'><data key='k'>{value}</data></node><node id='y'/>"
        (tmp_path / f"{name}.graphml").write_text(
            f"<graphml><graph edgedefault='directed'>{body}</graph></graphml>"
        )
    graphs = [schema_words(load_folder(tmp_path, seed=seed)) for seed in range(3)]
    # Whichever graph trains, the attribute is one of words, "" where a node lacks it.
    assert all("" in words for words in graphs)


def schema_words(data):
    [attribute] = [a for a in data.schema.attributes if a.name == "k"]
    return attribute.values


def test_graphs_that_are_rolled_up_keep_their_words_and_stay_rolled(tmp_path):
    for seed in range(3):
        write_json(tmp_path / f"job{seed}.json", rolled(random_job(seed, 2)))
    data = load_folder(tmp_path, blocks="rolled", held_out=0.4)
    assert data.schema.kind == "trace"
    assert data.schema.rolls_blocks
    assert data.renamed == {}
    assert "repeats" in data.schema.condition_names


def test_words_of_edges_that_no_rolled_graph_has_are_renamed(tmp_path):
    for seed in range(3):
        graph = rolled(random_job(seed, 2))
        names = tuple(f"secret {name}" for name in graph.edge_type_names)
        write_json(tmp_path / f"job{seed}.json", replace(graph, edge_type_names=names))
    data = load_folder(tmp_path, held_out=0.4)
    assert not any("secret" in word for word in data.schema.edge_types)


def test_relative_numbers_need_conditions_to_follow(tmp_path):
    for seed in range(3):
        write_json(tmp_path / f"job{seed}.json", random_job(seed, 2))
    with pytest.raises(DataError, match="numbers=absolute"):
        load_folder(tmp_path, numbers="relative", held_out=0.4)
