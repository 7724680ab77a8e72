"""Single jobs that a report shows."""

from dataclasses import replace

import numpy as np
import pytest
from random_jobs import random_job

from layerdag.api import stages
from layerdag.datasets import GraphDataset


@pytest.fixture(scope="module")
def data() -> GraphDataset:
    jobs = [random_job(seed, 2, layers=4) for seed in range(8)]
    return GraphDataset.build("jobs", "trace", {"train": jobs[:5], "test": jobs[5:]}, num_bins=2)


def test_samples_stand_beside_real_jobs_with_their_operators(data: GraphDataset) -> None:
    sample = data.graphs["test"][0]
    (pair,) = stages.neighbors_of(data, [sample])
    assert pair.compared == 8
    # The sample is one of the real jobs, which is found again.
    assert pair.distance == pytest.approx(0, abs=1e-6)
    assert (pair.sample.title, pair.real.title) == ("Sample", "Nearest real graph")
    assert pair.sample.label_N == pair.real.label_N


def test_a_real_job_and_a_sample_run_on_the_same_cluster(data: GraphDataset) -> None:
    real, sample = stages.timelines_of(data, data.graphs["test"], data.graphs["train"])
    assert real.title.startswith("A real job")
    assert sample.title.startswith("A sample")
    for job in (real, sample):
        assert job.ranks == 2
        ends = [float(lane.end_ms_S.max()) for lane in job.lanes]
        assert max(ends) == pytest.approx(job.duration_ms)
        assert all((lane.start_ms_S <= lane.end_ms_S).all() for lane in job.lanes)
        assert all(len(lane.kind_S) == lane.start_ms_S.size for lane in job.lanes)


def test_lanes_tell_computation_from_communication(data: GraphDataset) -> None:
    (job,) = stages.timelines_of(data, (), data.graphs["train"])
    names = {lane.name for lane in job.lanes}
    assert "rank 0 computes" in names
    for lane in job.lanes:
        alone = set(lane.kind_S) == {"communication"}
        assert alone is lane.name.endswith("communicates")


def test_a_sample_without_real_jobs_stands_alone(data: GraphDataset) -> None:
    assert len(stages.timelines_of(data, (), data.graphs["train"])) == 1
    assert stages.timelines_of(data, data.graphs["test"], ()) == ()


def test_what_has_no_operators_is_not_drawn(data: GraphDataset) -> None:
    kept = [a for a in data.schema.attributes if a.name != "op"]
    bare = replace(data, schema=replace(data.schema, attributes=tuple(kept)))
    assert not stages.can_be_drawn(bare)
    assert stages.neighbors_of(bare, data.graphs["test"]) == ()
    assert stages.timelines_of(bare, data.graphs["test"], data.graphs["train"]) == ()


def test_times_are_milliseconds(data: GraphDataset) -> None:
    (job,) = stages.timelines_of(data, (), data.graphs["train"][:1])
    lane = job.lanes[0]
    assert np.all(lane.end_ms_S <= job.duration_ms + 1e-9)
    assert job.duration_ms < 1e6
