"""Packed data sets against the same folder in memory."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from killing import states_when_killed
from random_jobs import random_job
from raw_graphs import chain

from layerdag.api.generator import train
from layerdag.codec.unfolding import unfold
from layerdag.dag.dag import DAGBatch
from layerdag.datasets import packing as _spool
from layerdag.datasets.dataset import GraphDataset
from layerdag.datasets.folder import load_folder
from layerdag.datasets.loading import FolderConfig
from layerdag.datasets.packed import PACKED, is_packed, open_array, renamed_file
from layerdag.datasets.packing import pack_folder
from layerdag.errors import DataError, UsageError
from layerdag.graph.attributed_graph import SPLITS, AttributedGraph, write_json
from layerdag.runtime.files import recover
from layerdag.traces.chakra.workload import write_workload
from layerdag.training.batches import take_graphs
from layerdag.training.run import TrainSettings
from layerdag.training.weight_transfer import spec_for

COUNT = 25


def write_graphs(folder: Path, count: int = COUNT) -> None:
    """Write flow graphs with words, numbers, edge types and conditions, some of them equal."""
    rng = np.random.default_rng(4)
    folder.mkdir()
    for i in range(count):
        write_json(folder / f"g{i:03}.json", flow_graph(rng, i))
    write_json(folder / "again.json", flow_graph(np.random.default_rng(4), 0))


def flow_graph(rng: np.random.Generator, i: int) -> AttributedGraph:
    size = int(rng.integers(2, 9))
    edges = [(a, b) for b in range(1, size) for a in range(b) if rng.random() < 0.5]
    kinds = [str(word) for word in rng.choice(["conv", "relu", "secret"], size)]
    return AttributedGraph(
        name=f"g{i}",
        categories={"kind": kinds if i % 7 else ["rare", *kinds[1:]]},
        numbers={"size": np.where(rng.random(size) < 0.2, np.nan, rng.exponential(9, size))},
        edge_index_2E=np.array(edges, dtype=np.int64).reshape(-1, 2).T,
        edge_type_E=rng.integers(0, 2, len(edges)),
        edge_type_names=("data", "control"),
        conditions={"label": float(rng.random()), **({"family": "gpt"} if i % 3 else {})},
    )


def write_jobs(folder: Path) -> None:
    for seed in range(8):
        write_workload(unfold(random_job(seed, 2), 2).workload, folder / f"job{seed}")
    folder.joinpath("labels.csv").write_text(
        "name,label,split\n"
        + "".join(f"job{i},{i}.5,{('train', 'val', 'test')[i % 3]}\n" for i in range(7))
    )


@pytest.fixture(params=[write_graphs, write_jobs], ids=["graphs", "jobs"])
def config(request, tmp_path) -> FolderConfig:
    write: Callable[[Path], None] = request.param
    write(tmp_path / "in")
    labels = tmp_path / "in/labels.csv"
    return FolderConfig(folder=tmp_path / "in", labels=labels if labels.is_file() else None)


def loaded(config: FolderConfig) -> GraphDataset:
    return load_folder(config.folder, labels=config.labels, public_words=config.public_words)


def require_equal(found: GraphDataset, wanted: GraphDataset) -> None:
    # Cells of few graphs have means that are no numbers, which equal nothing.
    assert repr(found.schema.to_dict()) == repr(wanted.schema.to_dict())
    assert found.names == wanted.names
    assert found.contents == wanted.contents
    assert (found.left_out, found.renamed) == (wanted.left_out, wanted.renamed)
    assert found.split == wanted.split
    for split in SPLITS:
        assert len(found.graphs[split]) == len(wanted.graphs[split])
        for one, other in zip(found.graphs[split], wanted.graphs[split], strict=True):
            for name in ("x_NA", "u_NA", "edge_index_2E", "edge_type_E", "layer_N"):
                assert torch.equal(getattr(one, name), getattr(other, name))
            assert dict(one.conditions) == dict(other.conditions)
            one.check()


def test_what_fits_into_memory_is_the_data_set_of_the_folder(config, tmp_path):
    header = pack_folder(config, tmp_path / "packed")
    wanted = loaded(config)
    found = load_folder(tmp_path / "packed")
    require_equal(found, wanted)
    assert found.fingerprint == wanted.fingerprint
    assert header.learned_from == len(wanted.graphs["train"])
    assert not PACKED.doubt(tmp_path / "packed")
    assert is_packed(tmp_path / "packed")


def test_micro_batches_are_those_of_memory(config, tmp_path, monkeypatch):
    monkeypatch.setattr(_spool, "_ROWS_AT_ONCE", 9)
    pack_folder(config, tmp_path / "packed")
    found, wanted = load_folder(tmp_path / "packed"), loaded(config)
    for split in ("train", "val"):
        mine, theirs = found.batch(split), wanted.batch(split)
        assert mine.x_NA.dtype == torch.int16
        chosen = torch.tensor([1, 0])
        require_same_batch(take_graphs(mine, chosen), take_graphs(theirs, chosen))
    assert spec_for(found, "fast", {}) == spec_for(wanted, "fast", {})


def require_same_batch(found: DAGBatch, wanted: DAGBatch) -> None:
    for name, tensor in vars(wanted).items():
        mine = getattr(found, name)
        assert mine.dtype == tensor.dtype, name
        torch.testing.assert_close(mine, tensor, rtol=0, atol=0, equal_nan=True)


def test_more_graphs_than_memory_is_granted_for_keep_split_and_words(config, tmp_path):
    config = replace(config, public_words="all")  # new words are another content
    wanted = loaded(config)
    header = pack_folder(config, tmp_path / "packed", schema_nodes=60)
    found = load_folder(tmp_path / "packed")
    assert 0 < header.learned_from < len(wanted.graphs["train"])
    assert found.names == wanted.names
    assert found.split == wanted.split
    kinds = [attribute for attribute in wanted.schema.attributes if hasattr(attribute, "values")]
    known = [attribute for attribute in found.schema.attributes if hasattr(attribute, "values")]
    assert known == kinds
    assert found.renamed == wanted.renamed
    for one, other in zip(found.graphs["train"], wanted.graphs["train"], strict=True):
        assert torch.equal(one.x_NA[:, : len(kinds)], other.x_NA[:, : len(kinds)])
        assert torch.equal(one.edge_index_2E, other.edge_index_2E)
    again = pack_folder(config, tmp_path / "packed", schema_nodes=60, overwrite=True)
    assert again == header


def test_private_words_are_renamed_in_the_second_pass_too(tmp_path):
    write_graphs(tmp_path / "in")
    config = FolderConfig(folder=tmp_path / "in")
    pack_folder(config, tmp_path / "packed", schema_nodes=60)
    found, wanted = load_folder(tmp_path / "packed"), loaded(config)
    assert found.renamed == wanted.renamed != {}
    assert found.schema.attributes[0] == wanted.schema.attributes[0]
    assert "secret" not in str(found.schema.to_dict())
    words = renamed_file(tmp_path / "packed")
    words.write_text("[1]")
    with pytest.raises(DataError, match=r"packed\.renamed\.json: .*it must be an object, found"):
        pack_folder(config, tmp_path / "packed", overwrite=True)
    assert words.read_text() == "[1]"


def test_losses_are_those_of_the_folder_in_memory(tmp_path):
    write_graphs(tmp_path / "in")
    pack_folder(FolderConfig(folder=tmp_path / "in"), tmp_path / "packed")
    settings = TrainSettings(max_steps=2, evaluate_every=2, batch_nodes=40, precision="float32")
    found, wanted = (
        train(load_folder(tmp_path / name), settings=settings, width=32, depth=1)
        for name in ("packed", "in")
    )
    assert found.meta.metrics == wanted.meta.metrics != {}
    assert found.meta.data_fingerprint == wanted.meta.data_fingerprint
    for name, weight in wanted.model.state_dict().items():
        assert torch.equal(found.model.state_dict()[name], weight)


def test_an_attribute_of_two_kinds_takes_all_graphs_in_memory(tmp_path):
    write_graphs(tmp_path / "in")
    mixed = flow_graph(np.random.default_rng(1), 1)
    words = [f"{value:g}" for value in mixed.numbers["size"].tolist()]
    write_json(
        tmp_path / "in/mixed.json",
        replace(mixed, numbers={}, categories={**mixed.categories, "size": words}),
    )
    config = FolderConfig(folder=tmp_path / "in")
    with pytest.raises(DataError, match="'size' is text in some graphs and a number in others"):
        pack_folder(config, tmp_path / "packed", schema_nodes=60)
    pack_folder(config, tmp_path / "packed")
    require_equal(load_folder(tmp_path / "packed"), loaded(config))


def test_only_some_conditions_are_kept_where_only_some_are_asked_for(config, tmp_path):
    pack_folder(config, tmp_path / "packed")
    found, wanted = (
        data.conditioned_on(["label"])
        for data in (load_folder(tmp_path / "packed"), loaded(config))
    )
    require_equal(found, wanted)
    require_same_batch(
        take_graphs(found.batch("train"), torch.arange(3)),
        take_graphs(wanted.batch("train"), torch.arange(3)),
    )


def test_graphs_are_a_sequence(tmp_path):
    write_graphs(tmp_path / "in")
    pack_folder(FolderConfig(folder=tmp_path / "in"), tmp_path / "packed")
    graphs = load_folder(tmp_path / "packed").graphs["train"]
    assert torch.equal(graphs[-1].x_NA, graphs[len(graphs) - 1].x_NA)
    assert [dag.num_nodes for dag in graphs[1:4]] == [graphs[i].num_nodes for i in (1, 2, 3)]
    with pytest.raises(IndexError, match="found 99"):
        graphs[99]


def test_settings_of_packing_may_be_left_out_but_not_changed(tmp_path):
    write_graphs(tmp_path / "in")
    config = FolderConfig(folder=tmp_path / "in", seed=3, public_words=("secret",))
    pack_folder(config, tmp_path / "packed")
    found = load_folder(tmp_path / "packed", seed=3)
    assert found.names == load_folder(tmp_path / "in", seed=3, public_words=("secret",)).names
    with pytest.raises(UsageError, match="packed with seed=3, not 4"):
        load_folder(tmp_path / "packed", seed=4)


def test_nothing_else_is_replaced(tmp_path):
    write_graphs(tmp_path / "in")
    config = FolderConfig(folder=tmp_path / "in")
    with pytest.raises(UsageError, match="name another one to write"):
        pack_folder(config, tmp_path / "in", overwrite=True)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.txt").write_text("years")
    with pytest.raises(UsageError, match=r"thesis\.txt"):
        pack_folder(config, tmp_path / "mine", overwrite=True)
    (tmp_path / "none").mkdir()
    with pytest.raises(DataError, match="no graph could be read"):
        pack_folder(FolderConfig(folder=tmp_path / "none"), tmp_path / "packed")
    assert not (tmp_path / "packed").exists()


def damage(folder: Path, name: str, change: Callable[[np.ndarray], np.ndarray]) -> None:
    """Change one array and let the header vouch for it."""
    from layerdag.datasets.packed import digest_of

    path = folder / f"{name}.npy"
    changed = change(np.load(path))
    path.unlink()
    np.save(path, changed)
    header = json.loads((folder / "packed.json").read_text())
    header["sha256"][path.name] = digest_of(path)
    (folder / "packed.json").write_text(json.dumps(header))


def first_set_to(value: float) -> Callable[[np.ndarray], np.ndarray]:
    def change(array: np.ndarray) -> np.ndarray:
        array.flat[0] = value
        return array

    return change


@pytest.fixture(scope="module")
def of_twenty(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("twenty")
    write_graphs(folder / "in", 20)
    pack_folder(FolderConfig(folder=folder / "in"), folder / "packed")
    return folder / "packed"


@pytest.fixture
def packed(of_twenty, tmp_path) -> Path:
    """Twenty packed graphs to be damaged."""
    return Path(shutil.copytree(of_twenty, tmp_path / "packed"))


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("x", lambda a: np.array([{"a": 1}], dtype=object), r"x\.npy: is no array of numpy"),
        ("x", first_set_to(999), "code or a position"),
        ("x", lambda a: a.astype(np.float64), "holds float64"),
        ("x", lambda a: a[:-1], "rows, and"),
        ("x", lambda a: a[:, :1], "1 columns, and"),
        ("u", first_set_to(np.nan), "code or a position"),
        ("layer", first_set_to(-1), "order of their layers"),
        ("layer", lambda a: a[::-1].copy(), "order of their layers"),
        ("edges", first_set_to(-1), "leaves its graph"),
        ("edges", lambda a: a[:, ::-1].copy(), "does not descend"),
        ("edge_types", first_set_to(9), "a type that the schema"),
        ("node_ptr", first_set_to(5), "node_ptr does not say"),
        ("edge_ptr", lambda a: a[:-1], "edge_ptr does not say"),
        ("numbers", lambda a: a[:-1], "conditions are not those"),
        ("words", first_set_to(77), "a word that the header"),
    ],
)
def test_arrays_are_not_trusted(name, change, message, packed):
    damage(packed, name, change)
    with pytest.raises(DataError, match=message):
        load_folder(packed)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 99}, "of version 99"),
        ({"splits": {"train": 1}}, "no header of a packed data set"),
        ({"splits": {"train": -1, "val": 0, "test": 0}}, "no header of a packed data set"),
        ({"schema": {}}, "schema cannot be read"),
        ({"words": []}, "no header of a packed data set"),
        ({"sha256": {}}, "is not the file that"),
        ({"more": 1}, "'more' is no key that is known"),
    ],
)
def test_headers_are_not_trusted(change, message, packed):
    path = packed / "packed.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(DataError, match=message):
        load_folder(packed)
    path.write_text("[")
    with pytest.raises(DataError, match="no header of a packed data set"):
        load_folder(packed)


def test_a_lost_file_is_named(packed):
    (packed / "u.npy").unlink()
    with pytest.raises(DataError, match=r"u\.npy: is not the file"):
        load_folder(packed)


def test_a_broken_header_of_an_array_is_one_sentence(tmp_path):
    head = b"{'descr': ("
    start = b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little")
    (tmp_path / "x.npy").write_bytes(start + head)
    with pytest.raises(DataError, match=r"x\.npy: is no array of numpy"):
        open_array(tmp_path, "x")


# A killed process leaves files open, here those of a draft.
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_kill_at_any_step_leaves_the_older_arrays_or_the_new_ones_with_their_words(tmp_path):
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        for i in range(4):
            graph = chain(f"{name}{i}", "ab" + "a" * i)
            words = [f"acme-{name}" if kind == "a" else kind for kind in graph.categories["kind"]]
            graph = replace(graph, categories={"kind": words})
            write_json(tmp_path / f"{name}/{name}{i}.json", graph)
    out = tmp_path / "packed"

    def packed(name: str) -> None:
        pack_folder(FolderConfig(folder=tmp_path / name), out, overwrite=True)

    def look() -> str:
        recover(out)
        data = load_folder(out)
        return " ".join((data.names["train"][0][:3], *sorted(data.renamed["kind"].values())))

    seen = states_when_killed(lambda: packed("old"), lambda: packed("new"), look)
    assert set(seen) == {"old acme-old", "new acme-new"}
    assert seen == sorted(seen, key=lambda line: line[:3] == "new")
    assert len(seen) > 3
