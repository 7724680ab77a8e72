"""Checkpoints of format 2 load after a conversion, and then name no training graph."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from costed_jobs import costed_jobs
from raw_graphs import chain

from layerdag.cli import main
from layerdag.datasets import GraphDataset
from layerdag.datasets.schema import GraphSchema
from layerdag.errors import CheckpointError, UsageError
from layerdag.graph import GraphStatistics, ListedNeighbors, shared_statistics
from layerdag.models import ModelSpec, build_model
from layerdag.sampling import (
    GenerationSettings,
    checkpoint_schema,
    generate,
    read_old_checkpoint,
    upgraded,
    with_costs,
    with_neighbor_kinds,
)
from layerdag.training import LoadedCheckpoint, load_checkpoint
from layerdag.training._checkpoint import CheckpointContents, CheckpointMeta, save_checkpoint

GRAPHS = [
    chain(f"g{i}", "abcab"[: 2 + i % 4], label=1.0 + i, family="gpt" if i % 3 else "mlp")
    for i in range(30)
]


@pytest.fixture(scope="module")
def data() -> GraphDataset:
    return GraphDataset.build("chains", "flow", {"train": GRAPHS})


def as_format_2(folder: Path, data: GraphDataset) -> None:
    """Turn a checkpoint into what layerdag wrote in format 2."""
    schema = json.loads((folder / "schema.json").read_text())
    del schema["condition_table"]
    numeric_BC, category_BM = data.schema.encode_conditions(g.conditions for g in GRAPHS)
    coarse = (numeric_BC * 4).round() / 4
    schema["condition_rows"] = sorted(
        [*codes, *numbers]
        for codes, numbers in zip(category_BM.tolist(), coarse.tolist(), strict=True)
    )
    schema["numeric_conditions"][0]["quantiles"] = [1.0 + 29 * i / 20 for i in range(21)]
    (folder / "schema.json").write_text(json.dumps(schema))
    meta = json.loads((folder / "meta.json").read_text())
    (folder / "meta.json").write_text(json.dumps({**meta, "format_version": 2}))


@pytest.fixture(params=["fast", "reference"])
def old(request: pytest.FixtureRequest, tmp_path: Path, data: GraphDataset) -> Path:
    sizes = data.schema.sizes()
    statistics = GraphStatistics.measure(data.graphs["train"], sizes)
    small = {"width": 32, "depth": 1} if request.param == "fast" else {"node": {"width": 32}}
    spec = ModelSpec(request.param, sizes, statistics, small)
    weights = build_model(spec, seed=1).state_dict()
    run = {"data": {"name": "folder", "folder": "/home/me/secret"}, "out": "/home/me/out"}
    contents = CheckpointContents(spec, weights, data.schema.to_dict(), run, CheckpointMeta())
    save_checkpoint(tmp_path / "old", contents)
    as_format_2(tmp_path / "old", data)
    return tmp_path / "old"


def test_an_old_checkpoint_says_how_to_convert_it(old: Path):
    with pytest.raises(CheckpointError, match="layerdag checkpoint upgrade"):
        load_checkpoint(old)


def test_the_command_converts_it_without_touching_the_weights(old: Path, tmp_path: Path):
    assert main(["checkpoint", "upgrade", str(old), str(tmp_path / "new")]) == 0
    weights = [(folder / "weights.safetensors").read_bytes() for folder in (old, tmp_path / "new")]
    assert weights[0] == weights[1]
    text = (tmp_path / "new" / "config.json").read_text()
    assert "/home/me" not in text
    loaded = load_checkpoint(tmp_path / "new")
    schema = checkpoint_schema(loaded)
    (sample,) = generate(
        loaded.model, schema, GenerationSettings(num=1, conditions={"family": "mlp"})
    )
    assert sample.dag.conditions["family"] == "mlp"
    assert main(["checkpoint", "upgrade", str(tmp_path / "new"), str(tmp_path / "newer")]) == 1


@pytest.mark.parametrize("with_data", [False, True])
def test_what_names_single_graphs_is_gone(old: Path, data: GraphDataset, with_data: bool):
    before = read_old_checkpoint(old)
    contents = upgraded(before, {}, data if with_data else None)
    assert "condition_rows" not in contents.schema
    low, *_, high = contents.schema["numeric_conditions"][0]["quantiles"]
    assert (low > 4.5, high < 26.5) == (True, True)
    statistics = contents.spec.statistics
    counts = [n for pairs in statistics.in_degrees for _, n in pairs]
    assert all(count % 5 == 0 for count in (*counts, *statistics.attributes[0]))
    GraphSchema.from_dict(contents.schema)
    build_model(contents.spec).load_state_dict(contents.weights)


def test_other_data_is_refused(old: Path):
    other = GraphDataset.build("others", "flow", {"train": GRAPHS[:20]})
    with pytest.raises(UsageError, match="trained on other graphs"):
        upgraded(read_old_checkpoint(old), {}, other)


def numbered(data_of: slice = slice(None)) -> GraphDataset:
    """Return graphs whose nodes have a number that grows from graph to graph."""
    graphs = [
        replace(graph, numbers={"size": np.arange(graph.num_nodes) + 10.0**i})
        for i, graph in enumerate(GRAPHS[data_of])
    ]
    return GraphDataset.build("numbers", "flow", {"train": graphs}, num_bins=2)


def old_numbers(folder: Path) -> LoadedCheckpoint:
    """Return a checkpoint of graphs with numbers, as format 2 described them."""
    data = numbered()
    sizes = data.schema.sizes()
    statistics = GraphStatistics.measure(data.graphs["train"], sizes)
    spec = ModelSpec("fast", sizes, statistics, {"width": 32, "depth": 1})
    schema = {**data.schema.to_dict(), "condition_rows": []}
    del schema["condition_table"]
    schema = json.loads(json.dumps(schema))
    model = build_model(spec, seed=1)
    return LoadedCheckpoint(model, spec, schema, {}, CheckpointMeta(), folder)


def test_the_extremes_of_numbers_are_replaced_by_their_neighbors(tmp_path: Path):
    before = old_numbers(tmp_path)
    contents = upgraded(before, {}, None)
    old_bins, new_bins = (s["numbers"][0]["bins"] for s in (before.schema, contents.schema))
    assert np.shape(old_bins) == np.shape(new_bins)
    assert new_bins[0][0] == old_bins[0][1]
    assert new_bins[-1][-1] == old_bins[-1][-2]
    inner = [quantile for row in old_bins for quantile in row][1:-1]
    assert [quantile for row in new_bins for quantile in row][1:-1] == inner
    # Without rows there is no table.
    assert contents.schema["condition_table"]["cells"] == []


def test_with_the_data_numbers_stay_within_what_several_graphs_reach(tmp_path: Path):
    before, data = old_numbers(tmp_path), numbered()
    bins = upgraded(before, {}, data).schema["numbers"][0]["bins"]
    allowed = data.schema.to_dict()["numbers"][0]["bins"]
    assert allowed[0][0] <= bins[0][0]
    assert bins[-1][-1] <= allowed[-1][-1]


@pytest.mark.parametrize("key", ["numbers", "numeric_conditions"])
def test_a_damaged_schema_is_told_by_its_checkpoint(tmp_path: Path, key: str):
    before = old_numbers(tmp_path)
    damaged = replace(before, schema={**before.schema, key: 3})
    with pytest.raises(CheckpointError, match=r"the schema cannot be read .*; copy the checkpoint"):
        upgraded(damaged, {}, None)


def test_a_checkpoint_gets_the_neighbors_of_its_training_graphs(tmp_path: Path):
    data = GraphDataset.build("chains", "flow", {"train": GRAPHS})
    sizes = data.schema.sizes()
    spec = ModelSpec(
        "fast",
        sizes,
        GraphStatistics.measure(data.graphs["train"], sizes),
        {"width": 32, "depth": 1},
    )
    model = build_model(spec, seed=1)
    schema = json.loads(json.dumps(data.schema.to_dict()))
    before = LoadedCheckpoint(model, spec, schema, {}, CheckpointMeta(), tmp_path)
    contents = with_neighbor_kinds(before, {}, data)
    statistics = contents.spec.statistics
    assert statistics.children == shared_statistics(data.graphs["train"], sizes).children
    assert any(statistics.children.multisets)
    nothing = ListedNeighbors.nothing(sizes.attributes[0])
    same = replace(statistics, parents=nothing, children=nothing, allowed_codes=())
    assert same == spec.statistics
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(contents.weights[name], tensor, rtol=0, atol=0)
    others = [chain(f"g{i}", "xyz", label=1.0, family="mlp") for i in range(6)]
    with pytest.raises(UsageError, match="names other kinds of nodes than data set 'others'"):
        with_neighbor_kinds(before, {}, GraphDataset.build("others", "flow", {"train": others}))


def test_costs_of_the_data_set_are_added_to_a_schema_without(tmp_path: Path) -> None:
    jobs = GraphDataset.build("jobs", "trace", {"train": costed_jobs([8, 16] * 10)}, num_bins=2)
    before = _checkpoint_without_costs(jobs, tmp_path)
    contents = with_costs(before, {"seed": 1}, jobs)
    assert GraphSchema.from_dict(contents.schema) == jobs.schema
    assert contents.run_config == {"seed": 1}
    assert contents.spec is before.spec


def test_costs_of_other_data_are_refused(tmp_path: Path, data: GraphDataset) -> None:
    jobs = GraphDataset.build("jobs", "trace", {"train": costed_jobs([8, 16] * 10)}, num_bins=2)
    others = GraphDataset.build("others", "trace", {"train": costed_jobs([8] * 10)}, num_bins=2)
    with pytest.raises(UsageError, match="other operators or bins than data set 'others'"):
        with_costs(_checkpoint_without_costs(jobs, tmp_path), {}, others)
    with pytest.raises(UsageError, match="Data set 'chains' has no costs"):
        with_costs(_checkpoint_without_costs(data, tmp_path), {}, data)


def _checkpoint_without_costs(data: GraphDataset, folder: Path) -> LoadedCheckpoint:
    sizes = data.schema.sizes()
    statistics = GraphStatistics.measure(data.graphs["train"], sizes)
    spec = ModelSpec("fast", sizes, statistics, {"width": 32, "depth": 1})
    schema = json.loads(json.dumps(data.schema.to_dict()))
    schema.pop("costs", None)
    return LoadedCheckpoint(build_model(spec, seed=1), spec, schema, {}, CheckpointMeta(), folder)
