"""Means of losses between two lines of the log, and the share of the budget that is spent."""

import pytest
import torch

from layerdag.training import TrainSettings
from layerdag.training.monitoring._budget import Budget
from layerdag.training.monitoring._meter import Meter


def test_a_window_tells_means_and_speed_and_starts_anew() -> None:
    meter = Meter(10.0)
    meter.add({"node": torch.tensor(1.0), "edge": torch.tensor(4.0)}, graphs=3)
    meter.add({"node": torch.tensor(2.0)}, graphs=5)
    assert meter.flush(14.0) == {
        "train/node": 1.5,
        "train/edge": 4.0,
        "train/graphs_per_second": 2.0,
        "seconds": 14.0,
    }
    assert meter.note == " node 1.500 edge 4.000"
    meter.add({"node": torch.tensor(5.0)}, graphs=1)
    assert meter.flush(15.0) == {
        "train/node": 5.0, "train/graphs_per_second": 1.0, "seconds": 15.0,
    }  # fmt: skip


def test_no_time_at_all_is_no_division_by_0() -> None:
    meter = Meter(3.0)
    meter.add({"node": torch.tensor(1.0)}, graphs=1)
    assert meter.flush(3.0)["train/graphs_per_second"] == pytest.approx(1e9)


@pytest.mark.parametrize(
    ("limits", "step", "seconds", "share"),
    [
        ({"max_steps": 8}, 2, 100.0, 0.25),
        ({"max_steps": 8}, 20, 0.0, 1.0),
        ({"max_steps": None, "max_seconds": 1000.0}, 5, 250.0, 0.25),
        ({"max_steps": 10, "max_seconds": 1000.0}, 1, 500.0, 0.5),
        ({"max_steps": 10, "max_seconds": 1000.0}, 9, 500.0, 0.9),
    ],
)
def test_the_spent_share_is_that_of_the_limit_that_is_further(limits, step, seconds, share) -> None:
    with Budget(TrainSettings(**limits), step, seconds) as budget:
        assert budget.used(step) == pytest.approx(share, abs=0.01)
        assert budget.seconds() == pytest.approx(seconds, abs=2.0)
        budget.show(step, "node 1.0")
