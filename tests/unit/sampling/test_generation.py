import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from random_jobs import random_job
from raw_graphs import chain
from tiny_checkpoints import SMALL_MODELS

from layerdag.dag.dag import graph_hash
from layerdag.dag.statistics import GraphStatistics
from layerdag.datasets.dataset import GraphDataset, encode_batch
from layerdag.errors import CheckpointError, UsageError, VocabularyError
from layerdag.graph.attributed_graph import read_json
from layerdag.graph.formats.graphml import read_graphml
from layerdag.models.base import SampleRequest, SampleResult
from layerdag.models.spec import ModelSpec, build_model
from layerdag.runtime.reading import Limits
from layerdag.sampling.folder import write_samples
from layerdag.sampling.generated import as_workload
from layerdag.sampling.generation import generate, generate_batched, sample_rows
from layerdag.sampling.output_size import volume_of
from layerdag.sampling.settings import GenerationSettings
from layerdag.traces.analysis import match_communication
from layerdag.traces.chakra.workload import read_workload
from layerdag.training.checkpoint import LoadedCheckpoint, checkpoint_schema

SMALL = GenerationSettings(num=4, seed=7, guidance=1.0, best_of=1, max_nodes=16)


def test_the_model_is_told_how_many_nodes_each_graph_is_to_have(monkeypatch):
    graphs = [chain(f"g{i}", "ab" * (1 + i), num_nodes=2.0 + 2 * i) for i in range(4)]
    data = GraphDataset.build("chains", "flow", {"train": graphs})
    statistics = GraphStatistics.measure(data.graphs["train"], data.schema.sizes())
    spec = ModelSpec("fast", data.schema.sizes(), statistics, SMALL_MODELS["fast"])
    model = build_model(spec, seed=1).eval()
    asked: list[SampleRequest] = []

    def sample(request: SampleRequest) -> SampleResult:
        asked.append(request)
        return SampleResult((data.graphs["train"][0],) * 2, (False, False))

    monkeypatch.setattr(model, "sample", sample)
    list(sample_rows(model, data.schema, [{"num_nodes": 4}, {}], SMALL))
    assert asked[0].nodes_B.nan_to_num(nan=-1).tolist() == [4, -1]


def test_the_same_seed_gives_the_same_graph_whatever_the_batch_size(flow):
    def hashes(settings: GenerationSettings) -> list[str]:
        found = generate(flow.model, checkpoint_schema(flow), settings)
        return [f"{sample.seed} {graph_hash(sample.dag)}" for sample in found]

    together = hashes(SMALL)
    assert hashes(replace(SMALL, batch_size=1)) == together
    assert hashes(replace(SMALL, num=2, seed=9)) == together[2:]


@pytest.mark.usefixtures("ready_processes")
def test_the_same_seed_gives_the_same_graph_in_batches_and_however_many_processes_draw(flow):
    def hashes(draw: Callable, processes: int) -> list[str]:
        settings = replace(SMALL, batch_size=1, processes=processes)
        found = draw(flow.model, checkpoint_schema(flow), settings)
        return [f"{sample.name} {sample.seed} {graph_hash(sample.dag)}" for sample in found]

    assert hashes(generate, 2) == hashes(generate, 1) == hashes(generate_batched, 1)


def test_given_conditions_are_kept_and_open_ones_drawn(flow):
    asked = replace(SMALL, conditions={"label": 3.0})
    samples = list(generate(flow.model, checkpoint_schema(flow), asked))
    assert {sample.dag.conditions["label"] for sample in samples} == {3.0}
    drawn = list(generate(flow.model, checkpoint_schema(flow), SMALL))
    assert all(1.0 <= sample.dag.conditions["label"] <= 8.0 for sample in drawn)


def test_a_predicted_label_depends_on_the_graph_and_not_on_the_request(flow):
    judged = replace(SMALL, labels="predicted", conditions={"label": 3.0})
    schema = checkpoint_schema(flow)
    samples = list(generate(flow.model, schema, judged))
    found_B1 = flow.model.predict_numeric_conditions(encode_batch(schema, [s.dag for s in samples]))
    for sample, scaled in zip(samples, found_B1[:, 0].tolist(), strict=True):
        expected = schema.numeric_conditions[0].decode(scaled)
        assert sample.dag.conditions["label"] == pytest.approx(expected, rel=1e-5)
    assert len({sample.dag.conditions["label"] for sample in samples}) > 1
    plain = list(generate(flow.model, schema, replace(judged, labels="requested")))
    assert [graph_hash(s.dag) for s in plain] == [graph_hash(s.dag) for s in samples]


def test_a_model_without_labels_cannot_predict_them(trace):
    with pytest.raises(UsageError, match="labels=requested"):
        list(generate(trace.model, checkpoint_schema(trace), replace(SMALL, labels="predicted")))


def test_an_unknown_condition_is_refused(flow):
    asked = replace(SMALL, conditions={"labels": 3.0})
    with pytest.raises(VocabularyError, match="Did you mean 'label'"):
        next(iter(generate(flow.model, checkpoint_schema(flow), asked)))


def test_traces_are_written_with_a_manifest(trace, tmp_path):
    run = {"data": {"name": "folder", "folder": "/home/me/runs", "max_nodes": 60}}
    manifest = write_samples(replace(trace, run_config=run), SMALL, tmp_path / "out")
    content = json.loads(manifest.read_text())
    assert content["format"] == "et"
    assert [sample["seed"] for sample in content["samples"]] == [7, 8, 9, 10]
    assert len(content["checkpoint_sha256"]) == 64
    assert content["split"] == trace.meta.split.to_dict()
    assert content["data"] == {"name": "folder", "max_nodes": 60}
    for sample in content["samples"]:
        workload = read_workload(tmp_path / "out" / sample["name"])
        assert workload.num_ranks == sample["ranks"]
        assert not match_communication(workload).mismatches


@pytest.mark.parametrize(("file_format", "read"), [("graphml", read_graphml), ("json", read_json)])
def test_flow_graphs_are_written_in_both_formats(flow, tmp_path, file_format, read):
    manifest = write_samples(flow, SMALL, tmp_path / "out", file_format=file_format)
    for sample in json.loads(manifest.read_text())["samples"]:
        graph = read(tmp_path / "out" / sample["file"])
        assert graph.num_nodes == sample["nodes"]
        assert set(graph.categories["kind"]) <= {"a", "b", "c"}


@pytest.mark.parametrize(
    ("file_format", "message"), [("et", "no execution traces"), ("dot", "no format 'dot'")]
)
def test_a_format_that_does_not_fit_is_refused(flow, tmp_path, file_format, message):
    with pytest.raises(UsageError, match=message):
        write_samples(flow, SMALL, tmp_path / "out", file_format=file_format)
    assert not (tmp_path / "out").exists()


def test_samples_replace_samples_when_allowed_and_no_other_folder_ever(flow, tmp_path):
    out = tmp_path / "out"
    write_samples(flow, SMALL, out)
    with pytest.raises(UsageError, match="holds samples already"):
        write_samples(flow, replace(SMALL, num=1), out)
    assert len(list(out.glob("*.graphml"))) == 4
    write_samples(flow, replace(SMALL, num=1), out, overwrite=True)
    assert len(list(out.glob("*.graphml"))) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_schema_of_another_model_is_refused(flow, trace, tmp_path):
    with pytest.raises(CheckpointError, match="the model was built"):
        write_samples(replace(flow, schema=trace.schema), SMALL, tmp_path / "out")


BAD_SETTINGS = [
    *(
        {"num": 0},
        {"ranks": 0},
        {"batch_size": 0},
        {"processes": 0},
        {"best_of": 0},
        {"steps": 0},
        {"seed": -1},
    ),
    {"labels": "guessed"},
]


@pytest.mark.parametrize("changes", BAD_SETTINGS)
def test_settings_out_of_bounds_are_refused(changes):
    with pytest.raises(UsageError, match=next(iter(changes))):
        GenerationSettings(**changes)


def test_ranks_that_do_not_fit_are_raised_and_counted():
    job = random_job(0, 3)
    unfolded = as_workload(job, ranks=1)
    assert unfolded.workload.num_ranks == 3
    assert unfolded.repairs["ranks_raised"] == 2
    assert as_workload(job).workload.num_ranks == 3


def test_a_sample_is_unfolded_as_its_graph_is(trace):
    (sampled,) = generate(trace.model, checkpoint_schema(trace), replace(SMALL, num=1))
    assert as_workload(sampled).repairs == as_workload(sampled.graph).repairs
    assert as_workload(sampled).workload.num_ranks == as_workload(sampled.graph).workload.num_ranks


def test_no_global_generator_is_touched(flow):
    state = torch.random.get_rng_state()
    list(generate(flow.model, checkpoint_schema(flow), SMALL))
    assert torch.equal(torch.random.get_rng_state(), state)


def test_more_than_the_limits_allow_is_refused_before_sampling(trace, tmp_path, monkeypatch):
    monkeypatch.setattr(type(trace.model), "sample", None)
    with pytest.raises(UsageError, match="more than max_ranks"):
        write_samples(trace, replace(SMALL, ranks=5000), tmp_path / "out")
    with pytest.raises(UsageError, match=r"1,000,000,000 jobs .* more than max_bytes"):
        write_samples(trace, replace(SMALL, num=10**9), tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_what_was_sampled_within_the_limit_of_bytes_is_kept(trace, tmp_path, monkeypatch):
    expected = volume_of(trace, SMALL)
    assert expected.graphs == SMALL.num
    small = replace(SMALL, limits=Limits(max_bytes=1))
    monkeypatch.setattr("layerdag.sampling.folder.volume_of", lambda *_: expected)
    with pytest.raises(UsageError, match=r"up to sample-00000: about .* more than max_bytes"):
        write_samples(trace, small, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def manifest_of(checkpoint: LoadedCheckpoint, out: Path, **changes: object) -> dict:
    settings = replace(GenerationSettings(num=1, seed=7, max_nodes=8), **changes)
    return json.loads(write_samples(checkpoint, settings, out).read_text())


def test_the_manifest_says_how_many_graphs_were_drawn_for_each_one(flow, reference, tmp_path):
    assert manifest_of(flow, tmp_path / "fast")["best_of"] == 4
    assert manifest_of(reference, tmp_path / "reference")["best_of"] == 1
    assert manifest_of(flow, tmp_path / "two", best_of=2)["best_of"] == 2


@pytest.mark.parametrize(
    ("model", "changes", "message"),
    [
        ("reference", {"best_of": 4}, "leave best_of out, or ask for best_of=1"),
        ("reference", {"labels": "predicted"}, "labels=requested"),
        ("reference", {"steps": 5}, "'steps' must be from 1 to 4"),
        ("flow", {"steps": 5}, "'steps' would change nothing"),
        ("flow", {"ranks": 2}, "leave ranks out"),
    ],
)
def test_what_a_model_cannot_do_is_refused_before_anything_is_written(
    model, changes, message, tmp_path, request
):
    loaded = request.getfixturevalue(model)
    with pytest.raises(UsageError, match=message):
        write_samples(loaded, replace(SMALL, **changes), tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_the_reference_honors_its_steps(reference, tmp_path):
    few = manifest_of(reference, tmp_path / "few", steps=1)
    assert few["steps"] == 1
    assert manifest_of(reference, tmp_path / "all")["steps"] is None
