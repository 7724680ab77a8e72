"""The programs of the embedded corpus."""

import importlib
import json
import lzma
import shutil
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from layerdag.dag.program_numbers import program_numbers
from layerdag.datasets.folder import load_folder
from layerdag.datasets.programs import load_programs, program_rows
from layerdag.datasets.run_plans import STEPS, run_plans
from layerdag.datasets.settings import FolderConfig, ProgramsConfig
from layerdag.errors import CheckpointError, DataError
from layerdag.graph.formats.program_json import program_graph
from layerdag.programs.inference import ShapeInference
from layerdag.sampling.program_draws import COPY, ProgramDraws
from layerdag.sampling.settings import GenerationSettings
from layerdag.schema.schema import GraphSchema
from layerdag.training.model_spec import spec_for

DATA = Path(__file__).resolve().parents[3] / "data"


@pytest.fixture(scope="module")
def mlps():
    return load_programs(ProgramsConfig(families=("mlp",)))


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def known(cache):
    """The same, read into an empty cache, with the hashes of its structures."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAYERDAG_CACHE", cache)
        return load_programs(ProgramsConfig(families=("mlp",), avoid_copies=True))


def test_programs_of_one_structure_are_in_one_split(mlps):
    graphs = {part: [mlps.schema.decode(dag, "it") for dag in mlps.graphs[part]]
              for part in ("train", "val", "test")}  # fmt: skip
    numbers = program_numbers([graph for part in graphs.values() for graph in part]).tolist()
    found = {}
    for part, held in graphs.items():
        found[part] = {numbers.pop(0) for _ in held}
    assert found["train"].isdisjoint(found["test"] | found["val"])
    assert found["test"].isdisjoint(found["val"])


def test_the_table_of_sizes_is_no_condition(mlps):
    names = {c.name for c in (*mlps.schema.numeric_conditions, *mlps.schema.category_conditions)}
    assert names == {"family", "num_nodes", "num_layers", "depth"}
    assert {c.entry for c in mlps.schema.sizes_of_programs.columns} == {"B0", "w0"}


def test_measured_steps_are_conditions_and_plans():
    data = load_programs(ProgramsConfig(corpus="h100", families=("resnet18",)))
    assert {c.name for c in data.schema.numeric_conditions} >= {"label", "peak_bytes"}
    rows = [dag.conditions for part in data.graphs.values() for dag in part]
    assert all(0.001 < row["label"] < 10 and row["peak_bytes"] > 1e6 for row in rows)


@pytest.mark.parametrize("line", ["{", '{"run": "a"}', "[]"])
def test_a_damaged_measurement_is_told(line, tmp_path):
    (tmp_path / "mlp.jsonl.xz").write_bytes((DATA / "programs/mlp.jsonl.xz").read_bytes())
    (tmp_path / STEPS).write_text(f"{line}\n")
    with pytest.raises(DataError, match="line 1 is no measured step"):
        load_programs(ProgramsConfig(folder=tmp_path))


def test_programs_impose_the_places_of_arguments(mlps):
    spec = spec_for(mlps, "fast", {})
    assert spec.arguments["constraints"]["edge_types"] == "observed"
    assert any(spec.statistics.edge_type_sets)


def test_a_folder_without_programs_is_refused(tmp_path):
    with pytest.raises(DataError, match="holds no FAMILY"):
        load_programs(ProgramsConfig(folder=tmp_path))


@pytest.mark.parametrize("family", ["mlp", "gpt"])
def test_the_corpus_holds_what_its_plan_records(family, monkeypatch):
    """The first run of a family, recorded again."""
    monkeypatch.syspath_prepend(str(DATA / "collect"))
    try:
        plan, recording = map(importlib.import_module, ("plan", "programs"))
        run = next(p for p in plan.corpus_plan() if p.family == family and p.phase == "training")
        again = recording.program_of(run)
    finally:
        for name in ("plan", "programs", "models", "steps", "collectives"):
            sys.modules.pop(name, None)
    lines = lzma.decompress((DATA / "programs" / f"{family}.jsonl.xz").read_bytes()).splitlines()
    known = next(data for line in lines if (data := json.loads(line))["name"] == run.run)
    assert program_graph(again.to_json(), "it").categories == program_graph(known, "it").categories
    assert again.sizes == known["sizes"]


def test_hashes_of_structures_are_kept_only_where_they_are_asked_for(mlps, known):
    assert not mlps.schema.structures
    assert known.fingerprint == mlps.fingerprint
    held = [dag for split in known.graphs.values() for dag in split]
    assert known.schema.structures == set(known.schema.structure_hashes(held))
    assert known.schema.are_copies(held) == [True] * len(held)
    assert mlps.schema.are_copies(held) == [False] * len(held)
    data = json.loads(json.dumps(known.schema.to_dict()))
    assert GraphSchema.from_dict(data).structures == known.schema.structures
    with pytest.raises(CheckpointError, match="structures are no hashes"):
        GraphSchema.from_dict({**data, "structures": "a path/word"})


def test_public_architectures_run_with_sizes_that_all_differ():
    data = load_programs(ProgramsConfig(corpus="public", families=("llama", "gpt2", "timm-resnet")))
    inference = ShapeInference()
    train = [data.schema.decode(dag) for dag in data.graphs["train"]]
    assert {graph.conditions["family"] for graph in train} == {"llama", "gpt2", "timm-resnet"}
    assert all(inference.runs(graph) for graph in train)


def test_the_schema_holds_the_plans_of_training_runs_alone(mlps):
    columns = {(c.strategy, c.setting): c for c in mlps.schema.plans.columns}
    assert set(columns["", "strategy"].values) == {"single", "data", "fsdp", "pipeline", "tensor"}
    assert columns["data", "data"].values == (2, 4)
    plan_of = run_plans(DATA)
    trained = [plan_of[name].strategy for name in mlps.names["train"] if name in plan_of]
    counts = dict(
        zip(columns["", "strategy"].values, columns["", "strategy"].programs, strict=True)
    )
    assert sum(counts.values()) <= len(trained) + 5 * len(counts)
    assert run_plans(DATA / "programs") == {}
    assert plan_of["0000_mlp_single_ws1"].settings == {
        "optimizer": "sgd-forloop", "clip": 0, "accumulate": 1,
    }  # fmt: skip


def test_a_word_that_few_programs_have_is_left_out_with_them(tmp_path):
    (tmp_path / "read").mkdir()
    rows = {"mlp": [], "moe": []}
    for family in rows:
        shutil.copy(DATA / "programs" / f"{family}.jsonl.xz", tmp_path / "read")
    for row in program_rows(tmp_path / "read"):
        rows[row["name"].split("_")[1]].append(row)
    lines = ["name,split"]
    for row in (*rows["mlp"][:40], rows["moe"][0]):
        (tmp_path / f"{row['name']}.program.json").write_text(json.dumps(row))
        lines.append(f"{row['name']},{'val' if row is rows['mlp'][0] else 'train'}")
    (tmp_path / "labels.csv").write_text("\n".join(lines))
    data = load_folder(
        FolderConfig(folder=tmp_path, labels=tmp_path / "labels.csv", min_programs=3)
    )
    train = [data.schema.decode(dag) for dag in data.graphs["train"]]
    holders = Counter(
        call
        for graph in dict(zip(program_numbers(train).tolist(), train, strict=True)).values()
        for call in {*graph.categories["call"]}
    )
    assert min(holders.values()) >= 3
    rare = rows["moe"][0]["name"]
    assert rare not in data.names["train"]
    told = [line for line in data.left_out if line.startswith(rare)]
    assert "fewer than 3 programs have its call" in told[0]
    with pytest.raises(DataError, match=r"lower data\.min_programs"):
        load_folder(
            FolderConfig(folder=tmp_path, labels=tmp_path / "labels.csv", min_programs=1000)
        )
    avoided = load_folder(
        FolderConfig(folder=tmp_path, labels=tmp_path / "labels.csv", avoid_copies=True)
    ).schema
    again = load_folder(FolderConfig(folder=tmp_path, labels=tmp_path / "labels.csv"))
    dags = [dag for split in again.graphs.values() for dag in split]
    assert avoided.structures == frozenset(avoided.structure_hashes(dags))
    assert again.schema.structures == frozenset()
    with pytest.raises(DataError, match=r"min_programs is 0; it must be 1 or more"):
        load_folder(FolderConfig(folder=tmp_path, min_programs=0))


def test_kept_programs_are_those_that_were_read(known, cache, monkeypatch):
    monkeypatch.setenv("LAYERDAG_CACHE", cache)
    monkeypatch.setattr("layerdag.datasets.programs._built", pytest.fail)
    kept = load_programs(ProgramsConfig(families=("mlp",), avoid_copies=True))
    assert (kept.schema, kept.names, kept.split) == (known.schema, known.names, known.split)
    same = zip(known.graphs["train"], kept.graphs["train"], strict=True)
    assert all(torch.equal(one.x_NA, other.x_NA) for one, other in same)


def test_a_copy_counts_against_a_candidate_where_hashes_are_kept(mlps, known):
    held = known.graphs["train"][0]
    edited = replace(held, x_NA=held.x_NA.roll(1, dims=0))
    for data, faults in ((known, [COPY, 0]), (mlps, [0, 0])):
        draws = ProgramDraws(data.schema, GenerationSettings())
        assert draws.faults([held, edited], [{}, {}]) == faults
