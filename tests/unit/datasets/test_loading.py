"""The settings of a data set, from a mapping (a YAML file, a run's record) to the loaded graphs."""

from dataclasses import replace
from pathlib import Path

import pytest
from dgrl_files import write_family
from raw_graphs import chain

from layerdag.datasets.loading import (
    data_config,
    kind_of_folder,
    load_config,
    load_dataset,
    read_dataset,
    read_learned_dataset,
)
from layerdag.datasets.settings import (
    CorpusConfig,
    FolderConfig,
    LatentPreferentialConfig,
)
from layerdag.errors import ConfigError, DataError, UsageError
from layerdag.graph.attributed_graph import AttributedGraph, write_json


def test_the_name_decides_which_settings_there_are():
    assert data_config({"name": "corpus", "families": ["mlp"]}) == CorpusConfig(families=("mlp",))
    assert data_config({"name": "latent_preferential", "rho": 0.5, "num_train": 8}) == (
        LatentPreferentialConfig(rho=0.5, num_train=8)
    )


@pytest.mark.parametrize("values", [None, "corpus", ["corpus"], {"folder": "data"}])
def test_settings_without_a_name_are_refused(values):
    with pytest.raises(ConfigError, match="must be a group of settings with a name"):
        data_config(values)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"name": "corpsu"}, "Did you mean 'corpus'"),
        ({"name": "corpus", "max_node": 5}, "Did you mean 'data.max_nodes'"),
        ({"name": "corpus", "max_nodes": "many"}, "data.max_nodes"),
        ({"name": "tpu_tile"}, "'data.folder' is missing"),
    ],
)
def test_what_no_data_set_takes_is_one_sentence(values, sentence):
    with pytest.raises(ConfigError, match=sentence):
        data_config(values)


def test_loading_from_settings_is_loading_by_hand(tmp_path):
    for i in range(8):
        write_json(tmp_path / f"g{i}.json", chain(f"g{i}", "ab" * (i + 1)))
    data = load_config(FolderConfig(folder=tmp_path, held_out=0.5, max_nodes=14))
    counts = [len(data.graphs[split]) for split in ("train", "val", "test")]
    assert sum(counts) == 7
    assert [line.split(":")[0] for line in data.left_out] == ["g7"]
    assert data.split == load_dataset(tmp_path, held_out=0.5, max_nodes=14).split


def own_graphs(folder: Path) -> Path:
    for i in range(12):
        write_json(folder / f"g{i}.json", chain(f"g{i}", "ab" * (i % 4 + 1)))
    (folder / "labels.csv").write_text("name,label\n" + "".join(f"g{i},{i}\n" for i in range(12)))
    return folder


def test_a_name_is_generated_with_the_options_of_its_loader():
    data = load_dataset("latent_preferential", num_train=3, num_val=2, num_test=1)
    assert [len(data.graphs[split]) for split in ("train", "val", "test")] == [3, 2, 1]
    assert repr(data) == "GraphDataset('latent_preferential', flow, train=3, val=2, test=1)"


def test_a_folder_of_graphs_takes_its_labels_and_options(tmp_path):
    data = load_dataset(own_graphs(tmp_path), held_out=0.5)
    assert [len(data.graphs[split]) for split in ("train", "val", "test")] != [8, 2, 2]
    assert all("label" in dag.conditions for dag in data.graphs["train"])
    (tmp_path / "other.csv").write_text(
        (tmp_path / "labels.csv").read_text().replace(",", ",1").replace("1label", "label")
    )
    other = load_dataset(tmp_path, labels=tmp_path / "other.csv")
    assert min(dag.conditions["label"] for dag in other.graphs["train"]) >= 10


def test_a_family_of_computational_graphs_is_told_by_its_files(tmp_path):
    write_family(tmp_path)
    assert len(load_dataset(tmp_path).graphs["train"]) == 24
    with pytest.raises(UsageError, match=r"has its labels; leave the label file left/out\.csv out"):
        read_dataset(tmp_path, labels="left/out.csv")


def test_what_is_no_data_set_is_one_sentence(tmp_path):
    with pytest.raises(UsageError, match="is no data set; give a corpus folder"):
        load_dataset(tmp_path / "corpsu")
    with pytest.raises(UsageError, match="data=latent_preferential has no option 'num'; known"):
        load_dataset("latent_preferential", num=3)
    with pytest.raises(ConfigError, match=r"no data set 'corpsu'. Did you mean 'corpus'"):
        data_config({"name": "corpsu"})


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        ("index.jsonl", "corpus"),
        ("train.pth", "tpu_tile"),
        ("num-node-list.csv.gz", "dgrl"),
        ("labels.json", "folder"),
        ("deep/er/job.0.et.xz", "folder"),
    ],
)
def test_folders_are_told_by_a_file_in_them(tmp_path, file, kind):
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).touch()
    assert kind_of_folder(tmp_path, {}) == kind


def test_a_label_file_that_is_named_makes_a_folder_of_graphs(tmp_path):
    assert kind_of_folder(tmp_path, {"labels": "there.csv"}) == "folder"
    with pytest.raises(UsageError, match="is no data set"):
        kind_of_folder(tmp_path, {"labels": None})


def test_all_words_are_kept_on_request(tmp_path):
    for i in range(6):
        write_json(tmp_path / f"g{i}.json", replace_kind(i))
    assert read_dataset(tmp_path).renamed == {"kind": {"kind-0": "ourkernel"}}
    kept = read_dataset(tmp_path, public_words="all")
    assert kept.renamed == {}
    assert "ourkernel" in kept.schema.attributes[0].values
    named = read_dataset(tmp_path, public_words=("OurKernel",))
    assert "ourkernel" in named.schema.attributes[0].values


def replace_kind(i: int) -> AttributedGraph:
    graph = chain(f"g{i}", "ab" * (i + 1))
    words = ["ourkernel" if word == "b" else word for word in graph.categories["kind"]]
    return replace(graph, categories={"kind": words})


def test_options_that_a_folder_takes_are_told(tmp_path):
    own_graphs(tmp_path)
    with pytest.raises(UsageError, match=r"data=folder has no option 'color'; known are: folder"):
        load_dataset(tmp_path, color=1)


def test_graphs_of_ones_own_keep_their_words_unless_they_are_to_be_renamed(tmp_path):
    for i in range(6):
        write_json(tmp_path / f"g{i}.json", replace_kind(i))
    data = load_dataset(tmp_path)
    assert data.renamed == {}
    assert "ourkernel" in data.schema.attributes[0].values
    renamed = load_dataset(tmp_path, public_words=())
    assert renamed.renamed == {"kind": {"kind-0": "ourkernel"}}
    for learned in (data, renamed):
        assert read_learned_dataset(tmp_path, None, learned.split).split == learned.split


def test_notes_of_graphs_and_labels_are_those_of_the_data_set(tmp_path):
    for i in range(6):
        (tmp_path / f"g{i}.dot").write_text(f"digraph {{ a [cost={i}]; a -> b -> a }}")
    (tmp_path / "x.gml").write_text("graph [ directed 1 ]")
    (tmp_path / "labels.csv").write_text("name,label\ng0,1\ng1,nan\n")
    data = load_dataset(tmp_path)
    assert [(note.word, note.count) for note in data.notes] == [("nan", 1), ("a -> b -> a", 6)]
    assert any(reason.startswith("x.gml: is GML") for reason in data.left_out)


def test_graph_level_values_are_bounded(tmp_path):
    values = "; ".join(f"v{i}={i}" for i in range(300))
    (tmp_path / "g.dot").write_text(f"digraph {{ {values}; a -> b }}")
    with pytest.raises(DataError, match="more than 256 different graph-level values"):
        load_dataset(tmp_path)
