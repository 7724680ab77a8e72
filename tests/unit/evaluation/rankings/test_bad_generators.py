"""Bad generators change what they say, and nothing else."""

import numpy as np
import pytest
from random_jobs import random_job

from layerdag.evaluation.rankings import RankedJob, bad_generators, ranked_job


@pytest.fixture
def jobs() -> list[RankedJob]:
    found = [ranked_job(random_job(seed, 2, layers=4)) for seed in range(5)]
    return [job for job in found if job]


@pytest.fixture
def bad(jobs: list[RankedJob]) -> dict[str, tuple[RankedJob, ...]]:
    return bad_generators(jobs, np.random.default_rng(0))


def column(job: RankedJob, name: str) -> np.ndarray:
    assert job.graph is not None
    return np.nan_to_num(job.graph.numbers[name])


def test_every_generator_makes_as_many_jobs(jobs, bad) -> None:
    assert {name: len(made) for name, made in bad.items()} == dict.fromkeys(bad, len(jobs))
    assert len(bad) == 6


@pytest.mark.parametrize("name", ["messages exchanged", "messages at random"])
def test_other_messages_leave_durations_alone(jobs, bad, name: str) -> None:
    changed = 0
    for job, spoiled in zip(jobs, bad[name], strict=True):
        before, after = column(job, "comm_bytes"), column(spoiled, "comm_bytes")
        np.testing.assert_array_equal(before > 0, after > 0)
        np.testing.assert_array_equal(column(job, "duration"), column(spoiled, "duration"))
        changed += int((before != after).sum())
    assert changed


def test_exchanged_numbers_are_those_of_some_job(jobs, bad) -> None:
    for name in ("duration", "bytes", "comm_bytes"):
        known = set(np.concatenate([column(job, name) for job in jobs]).tolist())
        for spoiled in bad["numbers exchanged"]:
            assert set(column(spoiled, name).tolist()) <= known
    pairs = zip(jobs, bad["numbers exchanged"], strict=True)
    assert any((column(a, "duration") != column(b, "duration")).any() for a, b in pairs)


def test_rewired_jobs_have_as_many_other_edges(jobs, bad) -> None:
    for job, spoiled in zip(jobs, bad["edges rewired"], strict=True):
        before, after = job.graph.edge_index_2E, spoiled.graph.edge_index_2E
        assert before.shape == after.shape
        assert set(map(tuple, before.T.tolist())) != set(map(tuple, after.T.tolist()))
        assert spoiled.graph.checked().layer_N.min() == 0  # no cycle
        np.testing.assert_array_equal(column(job, "duration"), column(spoiled, "duration"))


def test_longer_durations_and_one_job(jobs, bad) -> None:
    longer = column(bad["durations too long"][1], "duration")
    np.testing.assert_allclose(longer, 100 * column(jobs[1], "duration"))
    assert {job.graph.name for job in bad["one job"]} == {jobs[0].graph.name}


def test_jobs_without_graphs_cannot_be_spoiled(jobs) -> None:
    lone = RankedJob(jobs[0].workload, "ddp x 2", (), 3)
    assert bad_generators([lone], np.random.default_rng(0)) == {}
