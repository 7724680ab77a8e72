"""What reads folders of samples reads samples in parts, too."""

import dataclasses
import importlib.util
import json
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from dgrl_files import write_family
from sample_parts import TEN, written
from simulator_traces import comp, workload

from layerdag.dag.dag import DAG
from layerdag.datasets.loading import load_dataset, read_dataset
from layerdag.errors import CheckpointError, DataError, UsageError
from layerdag.graph.attributed_graph import AttributedGraph, write_json
from layerdag.samples.manifest import read_manifest
from layerdag.samples.stream import read_samples, stream_samples
from layerdag.sampling.folder import write_samples
from layerdag.schema.schema import GraphSchema
from layerdag.simulator.learned import OperatorTrees
from layerdag.surrogates.files import load_surrogate, save_surrogate
from layerdag.surrogates.operators import fit_operators, operator_errors
from layerdag.surrogates.targets import labeled, mask_attributes
from layerdag.surrogates.training_sets import (
    AUGMENTED,
    REAL,
    REDRAWN,
    SHUFFLED,
    SUBSAMPLE,
    SYNTHETIC,
    few_real,
    training_set,
)
from layerdag.traces.trace import Trace
from layerdag.training.checkpoint import checkpoint_schema

FORMATS = ["tar", "parquet"] if importlib.util.find_spec("pyarrow") else ["tar"]


@pytest.fixture(scope="module")
def ten(request, tmp_path_factory):
    """Return what writes the ten samples of a checkpoint, once: in a folder each, or in parts."""

    @cache
    def folder(kind, file_format="each"):
        checkpoint, out = request.getfixturevalue(kind), tmp_path_factory.mktemp("ten") / "s"
        if file_format == "each":
            return write_samples(checkpoint, TEN, out).parent
        return written(checkpoint, out, file_format)

    return folder


@pytest.mark.parametrize("kind", ["flow", "trace"])
@pytest.mark.parametrize("file_format", FORMATS)
def test_a_data_set_is_that_of_a_folder_of_each(ten, kind, file_format):
    one, other = load_dataset(ten(kind)), load_dataset(ten(kind, file_format))
    assert one.schema.sizes().attributes == other.schema.sizes().attributes
    assert {k: len(v) for k, v in one.graphs.items()} == {
        k: len(v) for k, v in other.graphs.items()
    }
    if file_format == "tar":
        assert one.fingerprint == other.fingerprint


@pytest.mark.parametrize("file_format", FORMATS)
def test_samples_for_surrogates_have_the_conditions_that_were_noted(flow, ten, file_format):
    schema = checkpoint_schema(flow)
    folders = (ten("flow"), ten("flow", file_format))
    found = zip(*(read_samples(folder, schema) for folder in folders), strict=True)
    for one, other in found:
        assert torch.equal(one.x_NA, other.x_NA)
        assert torch.equal(one.edge_index_2E, other.edge_index_2E)
        assert one.conditions == other.conditions


def test_the_manifest_of_parts_is_what_they_share(ten):
    each, shared = read_manifest(ten("flow")), read_manifest(ten("flow", "tar"))
    names = ("checkpoint_sha256", "split", "data", "model", "best_of", "temperature")
    assert {n: shared[n] for n in names} == {n: each[n] for n in names}


def _raw(label: float | str) -> AttributedGraph:
    return AttributedGraph(
        name="g",
        categories={"op": ["a", "b"]},
        numbers={"duration": np.array([1.0, 2.0])},
        edge_index_2E=np.array([[0], [1]]),
        edge_type_E=np.zeros(1, dtype=np.int64),
        conditions={"label": label},
    )


@pytest.fixture
def schema() -> GraphSchema:
    return GraphSchema.fit("flow", [_raw(1.0), _raw(2.0)])


def _encoded(schema: GraphSchema, label: float) -> DAG:
    return schema.encode(_raw(label))


def test_hidden_attributes_are_absent_everywhere(schema):
    dag = _encoded(schema, 1.0)
    assert dag.x_NA[:, 1].min() > 0
    dag = replace(dag, u_NA=torch.full_like(dag.u_NA, 0.25))
    hidden = mask_attributes([dag], schema, ["duration"])[0]
    assert hidden.x_NA[:, 1].tolist() == [0, 0]
    assert hidden.x_NA[:, 0].tolist() == dag.x_NA[:, 0].tolist()
    assert hidden.u_NA.tolist() == [[0.25, 0.0]] * 2  # a position in a bin tells the duration too
    with pytest.raises(UsageError, match="no attribute 'color' to exclude"):
        mask_attributes([dag], schema, ["color"])


def test_graphs_without_the_target_are_left_out(schema):
    known, unknown = _encoded(schema, 3.0), DAG.build(*_parts(_encoded(schema, 1.0)))
    kept = labeled([known, unknown], schema, "label", [])
    assert kept.target_B.tolist() == [3.0]
    with pytest.raises(DataError, match="--target"):
        labeled([unknown], schema, "label", [])


def _parts(dag: DAG):
    return dag.x_NA, dag.edge_index_2E


def test_a_family_of_computational_graphs_is_a_data_set_with_latencies(tmp_path):
    write_family(tmp_path)
    data = read_dataset(tmp_path)
    assert [len(data.graphs[split]) for split in ("train", "val", "test")] == [24, 3, 3]
    targets = labeled(data.graphs["train"], data.schema, "label", []).target_B
    assert set(targets % 1) == {0.5}


def test_folders_that_hold_nothing_are_one_sentence(tmp_path, schema):
    with pytest.raises(UsageError, match="is no data set"):
        read_dataset(tmp_path)
    with pytest.raises(DataError, match="manifest"):
        read_samples(tmp_path, schema)
    (tmp_path / "manifest.json").write_text('{"samples": [{"name": 1}]}')
    with pytest.raises(DataError, match="no manifest of samples"):
        read_samples(tmp_path, schema)


@pytest.mark.parametrize("entry", [{"name": "../a"}, {"name": "/a"}, {"name": "a", "file": "../a"}])
def test_a_sample_outside_of_its_folder_is_refused(tmp_path, schema, entry):
    (tmp_path / "manifest.json").write_text(json.dumps({"samples": [{"conditions": {}, **entry}]}))
    with pytest.raises(DataError, match="leads out of the folder"):
        read_samples(tmp_path, schema)


@pytest.mark.parametrize("content", [{}, {"samples": 3}, {"samples": [{"name": "a"}]}])
def test_a_manifest_without_samples_is_refused(tmp_path, schema, content):
    (tmp_path / "manifest.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match=r"is no manifest of samples .*; sample again"):
        read_samples(tmp_path, schema)


def test_samples_carry_the_conditions_of_the_manifest(tmp_path, schema):
    write_json(tmp_path / "a.json", _raw(1.0))
    entry = {"name": "a", "file": "a.json", "conditions": {"label": 7.5}}
    (tmp_path / "manifest.json").write_text(json.dumps({"samples": [entry, entry]}))
    first, second = read_samples(tmp_path, schema)
    # What was asked for, not what the file of the sample says.
    assert first.conditions == second.conditions == {"label": 7.5}
    assert first.x_NA.tolist() == _encoded(schema, 1.0).x_NA.tolist()


def test_a_stream_of_samples_knows_their_number_and_can_be_gone_through_again(schema, tmp_path):
    for name in ("a", "b"):
        write_json(tmp_path / f"{name}.json", replace(_raw(1.0), name=name))
    entries = [
        {"name": name, "file": f"{name}.json", "conditions": {"label": 7.0}} for name in ("a", "b")
    ]
    (tmp_path / "manifest.json").write_text(json.dumps({"samples": entries}))

    stream = stream_samples(tmp_path, schema)
    assert len(stream) == 2
    for found in (list(stream), list(stream), list(read_samples(tmp_path, schema))):
        assert [dag.conditions["label"] for dag in found] == [7.0, 7.0]


def trace_operators(nanoseconds: int, count: int = 30) -> Trace:
    """Return operators that all take the same time."""
    nodes = [comp(i, 9, duration_ns=nanoseconds, num_ops=1, tensor_size=8) for i in range(count)]
    return workload([dataclasses.replace(node, name="aten::add") for node in nodes]).traces[0]


@pytest.fixture(scope="module")
def trees() -> OperatorTrees:
    return OperatorTrees.fit([trace_operators(10_000)])


def test_errors_are_counted_over_all_operators_with_intervals_over_jobs(trees):
    jobs = [
        [trace_operators(10_000)],
        [trace_operators(11_900)],
        [trace_operators(20_000)],
        [trace_operators(10_500)],
    ]
    found = operator_errors(trees, jobs)
    assert found is not None
    assert (found.jobs, found.operators) == (4, 120)
    within, interval = found.figures["within_10_percent"]
    assert within == pytest.approx(0.5)
    assert interval is not None
    assert interval.low < 0.5 < interval.high
    assert found.figures["within_25_percent"][0] == pytest.approx(0.75)
    assert found.figures["median_factor"][0] == pytest.approx(1.05, abs=0.01)


def test_the_median_factor_counts_too_long_and_too_short_alike(trees):
    found = operator_errors(trees, [[trace_operators(5_000)], [trace_operators(20_000)]])
    assert found is not None
    assert found.figures["median_factor"][0] == pytest.approx(2.0, rel=0.01)


def test_jobs_without_measured_operators_say_nothing(trees):
    assert operator_errors(trees, []) is None
    assert operator_errors(trees, [[workload([comp(0, 0)]).traces[0]]]) is None


def test_one_workload_can_be_fitted_on_but_has_no_test_part(repository):
    trees, errors, jobs = fit_operators(repository / "data" / "examples" / "ddp_mlp")
    assert (errors, jobs) == (None, 1)
    assert np.isfinite(trees.start)


def test_a_folder_of_operators_is_no_surrogate_of_graphs(trees, tmp_path):
    save_surrogate(trees, tmp_path / "o")
    with pytest.raises(CheckpointError, match="--compute surrogate:"):
        load_surrogate(tmp_path / "o")


def test_training_sets_are_what_their_names_say(real):
    half = np.arange(30)
    first, second = real.taken(half), real.taken(half + 30)
    assert training_set(REAL, first, second, 0) is first
    assert training_set(SYNTHETIC, first, second, 0) is second
    assert len(training_set(AUGMENTED, first, second, 0).dags) == 60
    assert len(training_set(SUBSAMPLE, first, second, 0).dags) == 7
    shuffled = training_set(SHUFFLED, first, second, 0)
    assert shuffled.dags is first.dags
    assert sorted(shuffled.target_B) == sorted(first.target_B)
    assert (shuffled.target_B != first.target_B).any()


def test_real_graphs_drawn_again_are_as_many_with_their_own_targets(real):
    again = training_set(REDRAWN, real, real, 0)
    rows = [real.dags.index(dag) for dag in again.dags]
    assert len(rows) == 60
    assert len(set(rows)) < 60
    assert (again.target_B == real.target_B[rows]).all()


def test_few_real_graphs_are_the_same_alone_and_with_samples_and_among_more(real):
    samples = real.taken(np.arange(3))
    alone, more = (training_set(f"{count} real", real, samples, 5) for count in (10, 20))
    together = training_set("10 real + synthetic", real, samples, 5)
    assert together.dags == alone.dags + samples.dags
    assert more.dags[:10] == alone.dags
    assert training_set("10 real", real, samples, 6).dags != alone.dags


def test_conditions_of_few_graphs_are_named_and_bounded():
    assert few_real((10, 5, 10), 60) == (
        "10 real", "10 real + synthetic", "5 real", "5 real + synthetic",
    )  # fmt: skip
    with pytest.raises(UsageError, match="3 of 60 real training graphs; take from 4 to 60"):
        few_real((3,), 60)
