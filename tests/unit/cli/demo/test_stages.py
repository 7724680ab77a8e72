"""Stages of the demo by themselves."""

import dataclasses
import time
from pathlib import Path

import pytest
from random_jobs import random_job

from layerdag.cli.demo import DemoSettings, _stages as stages
from layerdag.datasets import GraphDataset
from layerdag.graph import DAG
from layerdag.sampling import GeneratedGraph
from layerdag.surrogates import Labeled, TransferReport


@pytest.fixture(scope="module")
def data() -> GraphDataset:
    jobs = [random_job(seed, 2, layers=4) for seed in range(6)]
    return GraphDataset.build("jobs", "trace", {"train": jobs[:4], "test": jobs[4:]}, num_bins=2)


@pytest.mark.parametrize(
    ("operator", "kind"),
    [
        ("aten::_foreach_add_", "optimizer"),
        ("aten::_fused_adam_", "optimizer"),
        ("aten::addmm", "matrix product"),
        ("aten::convolution_backward", "matrix product"),
        ("aten::_scaled_dot_product_attention", "matrix product"),
        ("aten::embedding", "data movement"),
        ("aten::copy_", "data movement"),
        ("aten::native_layer_norm", "reduction"),
        ("aten::_log_softmax", "reduction"),
        ("aten::relu", "element-wise"),
        ("sum", "element-wise"),  # without a namespace there is no name to go by
    ],
)
def test_operators_are_colored_by_what_they_do(operator: str, kind: str) -> None:
    assert stages.kind_of(operator, "COMP") == kind


def test_whatever_communicates_is_communication() -> None:
    assert stages.kind_of("aten::addmm", "COMM_COLL") == "communication"


def test_vocabularies_name_every_code_of_every_attribute(data: GraphDataset) -> None:
    found = stages.vocabularies(data)
    assert [len(words) for words in found] == [a.num_codes for a in data.schema.attributes]
    names = [a.name for a in data.schema.attributes]
    assert "COMM_COLL" in found[names.index("type")]
    # Numbers in bins have no words: their codes stand for themselves.
    assert found[names.index("duration")][:2] == ("0", "1")


def test_pictures_carry_operator_and_kind_of_each_node(data: GraphDataset) -> None:
    dag = data.graphs["test"][0]
    picture = stages.picture_of(data, dag, "a job")
    graph = data.schema.decode(dag)
    assert picture.title == "a job"
    assert list(picture.label_N) == graph.categories["op"]
    assert [kind == "communication" for kind in picture.class_N] == [
        word != "COMP" for word in graph.categories["type"]
    ]


def test_samples_become_workloads_and_repairs_are_added_up(data: GraphDataset) -> None:
    dags = data.graphs["test"]
    samples = [
        GeneratedGraph(f"sample-{i}", i, dag, False, data.schema) for i, dag in enumerate(dags)
    ]
    jobs, repairs = stages.synthetic_workloads(data, samples)
    assert [job.source for job in jobs] == ["sample-0", "sample-1"]
    alone = [stages.synthetic_workloads(data, [sample])[1] for sample in samples]
    assert repairs == {
        name: sum(found.get(name, 0) for found in alone) for found in alone for name in found
    }


def test_surrogates_of_the_demo_see_no_duration(
    data: GraphDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Labeled] = []
    nothing = TransferReport((), (), 0, ())

    def transferred(*parts: object, **_: object) -> TransferReport:
        seen.extend(parts[:3])
        return nothing

    monkeypatch.setattr(stages, "transfer", transferred)
    labeled = {
        split: tuple(_with_label(dag, float(i)) for i, dag in enumerate(dags))
        for split, dags in data.graphs.items()
    }
    with_labels = GraphDataset("jobs", data.schema, labeled, data.names)
    samples = [GeneratedGraph("s", 0, _with_label(data.graphs["test"][0], 7.0), False, data.schema)]
    stages.transfer_stage(DemoSettings(Path("c"), Path("o")), with_labels, samples)
    column = [a.name for a in data.schema.attributes].index("duration")
    real, synthetic, test = seen
    assert [part.target_B.tolist() for part in seen] == [[0, 1, 2, 3], [7], [0, 1]]
    for part in (real, synthetic, test):
        assert all((dag.x_NA[:, column] == 0).all() for dag in part.dags)
    # Only that column is hidden, and the data set itself keeps it.
    assert (data.graphs["train"][0].x_NA[:, column] != 0).any()
    kept = [i for i in range(len(data.schema.attributes)) if i != column]
    assert (real.dags[0].x_NA[:, kept] == data.graphs["train"][0].x_NA[:, kept]).all()


def _with_label(dag: DAG, label: float) -> DAG:
    return dataclasses.replace(dag, conditions={**dag.conditions, "label": label})


def test_the_short_demo_is_smaller_in_everything_that_takes_time() -> None:
    usual = DemoSettings(Path("c"), Path("o"), 3)
    short = DemoSettings.short(Path("c"), Path("o"), 3)
    assert (short.data, short.out, short.seed) == (usual.data, usual.out, usual.seed)
    for name in ("max_nodes", "train_steps", "width", "samples"):
        assert getattr(short, name) < getattr(usual, name)
    assert set(short.families) < set(usual.families)


def test_time_is_noted_by_stage() -> None:
    seconds: dict[str, float] = {}
    start = time.perf_counter() - 2.0
    now = stages.timed(seconds, "load", start)
    assert seconds["load"] == pytest.approx(2.0, abs=0.5)
    assert now == pytest.approx(start + seconds["load"])
