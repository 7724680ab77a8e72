"""Samples as traces, and graphs as words and pictures."""

from collections import Counter

import pytest
from random_jobs import random_job

from layerdag.api import stages
from layerdag.datasets import GraphDataset
from layerdag.sampling import GeneratedGraph


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
    found = stages.decoded_jobs(sample.graph for sample in samples)
    assert [job.source for job in found.workloads] == ["sample-0", "sample-1"]
    alone = [stages.decoded_jobs([sample.graph]) for sample in samples]
    assert found.repairs == sum((Counter(one.repairs) for one in alone), Counter())
    assert found.completions == sum((Counter(one.completions) for one in alone), Counter())
    assert found.completions.keys() <= {"communication_order_added", "start_without_time"}
