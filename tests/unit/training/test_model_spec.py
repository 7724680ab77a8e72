"""The description of a model takes its sizes and statistics from the data set."""

from dataclasses import replace

import pytest
from small_job_models import TINY, data_of, jobs

from layerdag.dag.shared_statistics import shared_statistics
from layerdag.datasets.dataset import GraphDataset
from layerdag.errors import ConfigError
from layerdag.models.config import FastConfig
from layerdag.models.spec import build_model
from layerdag.training.model_spec import spec_for


@pytest.fixture(scope="module")
def data() -> GraphDataset:
    return data_of(jobs())


def test_sizes_are_those_of_the_schema(data):
    assert spec_for(data, "fast", {}).sizes == data.schema.sizes()


def test_statistics_count_the_training_graphs_alone(data):
    statistics, sizes = spec_for(data, "reference", {}).statistics, data.schema.sizes()
    every = [dag for part in data.graphs.values() for dag in part]
    assert statistics == shared_statistics(data.graphs["train"], sizes)
    assert statistics != shared_statistics(every, sizes)


@pytest.mark.parametrize(("given", "settled"), [(None, False), (True, True), (False, False)])
def test_out_degrees_are_predicted_for_jobs_only_if_asked(data, given, settled):
    spec = spec_for(data, "fast", {"predict_out_degree": given})
    assert spec.arguments["predict_out_degree"] is settled
    assert (build_model(spec).heads.out_degree is not None) is settled


@pytest.mark.parametrize(
    ("asks", "given", "settled"),
    [
        (("num_nodes", "num_layers"), None, "encoded"),
        (("num_nodes",), None, "none"),
        ((), None, "none"),
        (("num_nodes", "num_layers"), "none", "none"),
    ],
)
def test_the_sizes_that_jobs_are_asked_for_are_counted_down(asks, given, settled):
    graphs = [replace(job, conditions=dict.fromkeys(asks, 9.0)) for job in jobs()]
    spec = spec_for(data_of(graphs), "fast", {"conditioning": {"remaining_sizes": given}})
    assert spec.arguments["conditioning"]["remaining_sizes"] == settled
    assert (build_model(spec).remaining is not None) is (settled == "encoded")


def test_settings_are_a_tree_or_plain_data_and_all_written_down(data):
    plain = spec_for(data, "fast", {"width": 32, "depth": 1})
    assert spec_for(data, "fast", FastConfig(width=32, depth=1)) == plain
    spec = spec_for(data, "reference", TINY["reference"])
    assert spec.arguments["node"]["blocks"] == 1
    assert spec.arguments["budget"] == 300_000
    assert "predict_out_degree" not in spec.arguments
    with pytest.raises(ConfigError, match="no model 'quick'"):
        spec_for(data, "quick", {})
    with pytest.raises(ConfigError, match=r"Unknown setting 'model\.encoder\.blok'"):
        spec_for(data, "fast", {"encoder": {"blok": 3}})
