"""The graph of a point stands for its whole job."""

import csv
import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from small_spaces import small_space

from layerdag.codec.folding import EDGE_TYPES
from layerdag.codec.unfolding import unfold_sampled
from layerdag.codec.vocabulary import OTHER
from layerdag.datasets.loading import load_dataset
from layerdag.errors import ConfigError, UsageError
from layerdag.graph.attributed_graph import read_json
from layerdag.graph.rolled_blocks import REPEATS, is_rolled, unrolled
from layerdag.simulator.run import simulate
from layerdag.workloads.llm_corpus import (
    CorpusSpace,
    Machine,
    draw_points,
    labelled,
    matches_layers,
    point_graph,
    read_space,
    scaled,
    write_corpus,
)
from layerdag.workloads.transformer.costs import rank_memory
from layerdag.workloads.transformer.hugging_face import model

POINTS = [*itertools.islice(draw_points(small_space(), 0), 12)]


@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.job.plan.ranks)
def test_the_unrolled_graph_takes_as_long_as_the_job(point):
    machine = small_space().machine
    graph = labelled(point_graph(point), point, machine)
    ranks = point.job.plan.ranks
    cluster = machine.cluster(ranks)
    again = simulate(
        unfold_sampled(unrolled(graph, EDGE_TYPES), ranks).workload,
        cluster.simulated,
        compute=cluster.compute(0),
    )
    assert again.makespan_ns / 1e9 == pytest.approx(graph.conditions["label"], rel=1e-3)


@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.job.plan.ranks)
def test_blocks_are_the_layers_of_a_stage(point):
    graph = point_graph(point)
    assert is_rolled(graph, EDGE_TYPES)
    assert matches_layers(graph, point)
    assert graph.conditions[REPEATS] == point.job.shape.layers / point.job.plan.pipeline
    whole = unrolled(graph, EDGE_TYPES)
    attention = whole.categories["op"].count("attention.F")
    assert attention == point.job.shape.layers * point.job.step.micro_batches


def test_operators_are_public_words_and_sums_are_kept():
    point = next(p for p in POINTS if p.job.plan.ranks > 1)
    graph = point_graph(point)
    words = set(graph.categories["op"])
    assert OTHER not in words
    assert {"mm.qkv.F", "mm.qkv.B.dx", "adam", "loss.F"} <= words
    assert words & {"c10d::all_reduce", "c10d::send"}
    assert "duration" not in graph.numbers
    ranks = point.job.plan.ranks // point.job.plan.pipeline
    flops = float(np.nansum(unrolled(graph, EDGE_TYPES).numbers["flops"])) * ranks
    assert flops == pytest.approx(point.job.summary()["flops"], rel=1e-12)


def test_the_graph_is_as_large_for_more_layers():
    sizes = set()
    for layers in (4, 12, 40):
        space = small_space(
            models={"llama3": "llama3-8b"}, layers=[layers], hidden=[1024], sequence=[256],
            micro_batch_size=[1], tensor=[2], pipeline=[1], rounds=[1], world_size=[8], zero=[1],
            sequence_parallel=[True], recompute=["none"],
        )  # fmt: skip
        point = next(draw_points(space, 0))
        graph = point_graph(point)
        assert matches_layers(graph, point)
        sizes.add(graph.num_nodes)
    assert len(sizes) == 1
    assert max(sizes) < 80


def test_points_are_different_and_those_of_the_seed():
    space = small_space()
    first = [*itertools.islice(draw_points(space, 0), 30)]
    assert first == [*itertools.islice(draw_points(space, 0), 30)]
    assert len(set(first)) == 30
    assert first != [*itertools.islice(draw_points(space, 1), 30)]


def test_conditions_say_what_a_point_is():
    for point in itertools.islice(draw_points(small_space(), 0), 40):
        asked, plan = point.conditions, point.job.plan
        ranks = int(str(asked["tensor"])) * int(str(asked["pipeline"])) * int(str(asked["data"]))
        assert ranks == plan.ranks
        assert int(str(asked["micro_batches"])) * plan.pipeline <= 4
        assert asked["batch"] == point.job.step.batch
        assert asked["layers"] == point.job.shape.layers
        assert asked["hidden"] == point.job.shape.hidden
        assert asked["zero"] == "0" or plan.data > 1
        assert asked["sequence_parallel"] == "no" or plan.tensor > 1


def test_points_fit_into_the_memory_of_the_machine():
    small = small_space(machine={"memory_gib": 0.5})
    for point in itertools.islice(draw_points(small, 0), 10):
        stages = range(point.job.plan.pipeline)
        assert max(rank_memory(point.job.costs, s).total for s in stages) <= 0.5 * 2**30


def test_a_space_with_too_few_points_says_how_many_there_are():
    tiny = small_space(
        layers=[4], hidden=[512], sequence=[256], micro_batch_size=[1], world_size=[1],
        models={"gpt3": "gpt3-6.7b"}, recompute=["none"], rounds=[1],
    )  # fmt: skip
    with pytest.raises(UsageError, match="Only 1 different points"):
        list(draw_points(tiny, 0))


def test_an_unknown_model_is_refused():
    with pytest.raises(UsageError, match="gpt9"):
        next(draw_points(small_space(models={"gpt3": "gpt9"}), 0))


def test_a_scaled_model_keeps_its_proportions():
    shape = scaled(model("llama3-8b"), 40, 8192, 4096)
    assert (shape.layers, shape.hidden, shape.heads, shape.key_heads) == (40, 8192, 64, 16)
    assert shape.feed_forward * 4096 == model("llama3-8b").feed_forward * 8192


@pytest.mark.parametrize(("name", "hidden", "told"), [
    ("llama3-8b", 4096 + 64, "no whole number of heads"),
    ("qwen2.5-72b", 1024 + 128, "no whole number of heads"),
    ("gpt3-6.7b", 4096, "2048 positions"),
])  # fmt: skip
def test_a_model_that_cannot_be_scaled_is_refused(name, hidden, told):
    with pytest.raises(ConfigError, match=told):
        scaled(model(name), 8, hidden, 4096)


def test_what_a_file_leaves_out_is_as_without_one(tmp_path):
    file = tmp_path / "space.yaml"
    file.write_text("tensor: 4\nmodels: {mine: gpt3-13b}\nmachine: {node_ranks: 4}\n")
    space = read_space(file)
    assert space.tensor == (4,)
    assert space.models == {"mine": "gpt3-13b"}
    assert space.machine == Machine(node_ranks=4)
    assert space.layers == CorpusSpace().layers
    assert read_space() == CorpusSpace()


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ({"tensors": [1]}, "tensors"),
        ({"tensor": []}, "'tensor' is empty"),
        ({"models": {}, "zero": [3]}, "ZeRO stages 0 and 1"),
        ({"models": ["gpt2"]}, "must map families to models"),
        ({"machine": {"node_ranks": "many"}}, "node_ranks"),
        ({"layers": [8, 12], "test_layers": 12}, "'layers' and 'test_layers' both have 12"),
    ],
)
def test_what_is_not_possible_is_refused_by_name(content, told):
    with pytest.raises(ConfigError, match=told):
        read_space(content)


@pytest.mark.parametrize("text", ["- a\n- b\n", "tensor: [1\n"])
def test_a_file_that_is_no_mapping_is_refused_with_its_name(tmp_path, text):
    file = tmp_path / "space.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"space\.yaml"):
        read_space(file)


def test_ranks_fill_nodes_before_they_need_the_network_between():
    machine = Machine(node_ranks=8, node_gb_per_s=450.0, gb_per_s=50.0)
    assert [link.ranks for link in machine.cluster(4).network] == [4]
    assert [link.ranks for link in machine.cluster(8).network] == [8]
    wide = machine.cluster(32)
    assert [(link.ranks, link.gb_per_s) for link in wide.network] == [(8, 450), (4, 50)]
    with pytest.raises(ConfigError, match="12 ranks do not fill nodes of 8"):
        machine.cluster(12)


def _bytes(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*.*")}


def test_a_corpus_is_read_as_a_data_set_with_its_parts(tmp_path):
    made = write_corpus(tmp_path / "llm", 20, space=small_space())
    assert made["parts"] == {"train": 16, "val": 2, "test": 2}
    rows = [*csv.DictReader((tmp_path / "llm" / "labels.csv").read_text().splitlines())]
    assert rows[0].keys() == {"name", "split", "label"}
    assert json.loads((tmp_path / "llm" / "corpus.json").read_text())["seed"] == 0
    data = load_dataset(tmp_path / "llm")
    assert not data.renamed
    sizes = [len(data.graphs[part]) for part in ("train", "val", "test")]
    assert sum(sizes) + len(data.left_out) == 20
    assert sizes[0] == 16
    assert data.schema.kind == "trace"
    assert data.schema.rolls_blocks
    words = {c.name: c.values for c in data.schema.category_conditions}
    assert set(words) >= {"family", "tensor", "pipeline", "data", "zero", "world_size"}
    numbers = {c.name for c in data.schema.numeric_conditions}
    assert numbers >= {"layers", "hidden", "sequence", "batch", "repeats", "label"}
    label = {row["name"]: float(row["label"]) for row in rows}
    for name, dag in zip(data.names["train"], data.graphs["train"], strict=True):
        assert dag.conditions["label"] == label[name]


def test_the_same_seed_gives_the_same_bytes_and_more_points_begin_with_the_fewer(tmp_path):
    for name, num in (("a", 5), ("b", 5), ("c", 6)):
        write_corpus(tmp_path / name, num, 3, space=small_space())
    assert _bytes(tmp_path / "a") == _bytes(tmp_path / "b")
    more = _bytes(tmp_path / "c")
    assert all(more[k] == v for k, v in _bytes(tmp_path / "a").items() if k.endswith(".gz"))


def test_points_of_the_test_part_alone_have_the_layers_of_that_part(tmp_path):
    folder = tmp_path / "deeper"
    write_corpus(folder, 10, space=small_space(test_layers=32))
    rows = [*csv.DictReader((folder / "labels.csv").read_text().splitlines())]
    layers = [read_json(folder / f"{row['name']}.json.gz").conditions["layers"] for row in rows]
    deep = [number == 32 for number in layers]
    assert deep == [row["split"] == "test" for row in rows]
    assert sum(deep) == 1


def test_only_a_corpus_is_replaced_and_only_if_that_is_wanted(tmp_path):
    space = small_space()
    write_corpus(tmp_path / "llm", 1, space=space)
    with pytest.raises(UsageError, match="holds a corpus of training steps already"):
        write_corpus(tmp_path / "llm", 1, space=space)
    write_corpus(tmp_path / "llm", 2, space=space, overwrite=True)
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.tex").write_text("years of work")
    with pytest.raises(UsageError, match=r"thesis\.tex"):
        write_corpus(other, 1, space=space, overwrite=True)
    (tmp_path / "llm" / "corpus.json").write_text("{}")
    with pytest.raises(UsageError, match="not of a corpus"):
        write_corpus(tmp_path / "llm", 1, space=space, overwrite=True)
