"""Splitting by run, and what each test needs."""

from pathlib import Path

import pytest
from traced_jobs import write_jobs

from layerdag.api.publication import ReleaseSettings
from layerdag.api.publication._split import (
    Need,
    dataset_of,
    held_out_of,
    needs_of,
    runs_for_membership,
    split_jobs,
)
from layerdag.api.publication.reading import read_jobs
from layerdag.evaluation.privacy import MARGIN, chance_half_width


def test_as_few_runs_are_held_out_as_an_attack_needs() -> None:
    for runs in (1000, 5000):
        held = held_out_of(runs)
        assert chance_half_width(runs - held, held) <= MARGIN
        assert held >= 0.2 * runs
        assert held == round(0.2 * runs) or chance_half_width(runs - held + 1, held - 1) > MARGIN


@pytest.mark.parametrize(("runs", "held"), [(8, 3), (32, 13), (100, 40), (500, 200)])
def test_of_few_runs_two_fifths_are_held_out(runs: int, held: int) -> None:
    assert held_out_of(runs) == held


def test_the_number_of_runs_for_membership_is_the_least_one() -> None:
    found = runs_for_membership()
    for runs, enough in ((found, True), (found - 5, False)):
        held = round(0.4 * runs)
        assert (chance_half_width(runs - held, held) <= MARGIN) is enough


def test_copies_of_a_run_are_in_one_part_and_the_order_does_not_matter(tmp_path: Path) -> None:
    folder = write_jobs(tmp_path / "traces", 12)
    for seed in range(12):
        data = (folder / f"secretproj-{seed}.0.et").read_bytes()
        (folder / f"another-{seed}.0.et").write_bytes(data)
    jobs = read_jobs(ReleaseSettings(folder, tmp_path / "out"))
    parts = split_jobs(jobs, 0)
    place = {graph.name: part for part, graphs in parts.items() for graph in graphs}
    assert len(place) == 24
    assert all(place[f"secretproj-{i}"] == place[f"another-{i}"] for i in range(12))
    assert {part: len(graphs) for part, graphs in parts.items()} == {
        "train": 14,
        "val": 4,
        "test": 6,
    }
    assert place != {g.name: p for p, graphs in split_jobs(jobs, 1).items() for g in graphs}


def test_needs_say_what_is_too_few(tmp_path: Path) -> None:
    folder = write_jobs(tmp_path / "traces", 20)
    data = dataset_of(read_jobs(ReleaseSettings(folder, tmp_path / "out")), 0)
    membership, similarity, usefulness = needs_of(data, 20, [True] * len(data.held_out))
    assert not membership.is_met
    assert membership.needed >= 500
    assert membership.found == 20
    assert similarity.is_met
    assert not usefulness.is_met
    assert Need("x", 3, 2).sentence() == "x: 2 held-out graphs, needs 3: too few to tell"
