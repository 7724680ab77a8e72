from contextlib import contextmanager

import pytest
from device_rows import random_batch, random_spec
from step_watch import Phase, watched

from layerdag.training.settings import TrainSettings


def test_phases_observe_whole_windows_of_a_run_one_after_the_other():
    seen: list[str] = []

    @contextmanager
    def observer():
        seen.append("begins")
        yield "what it saw"
        seen.append("ends")

    dags, batch = random_batch(50, 6)
    spec = random_spec("fast", dags, {"width": 32, "depth": 1})
    settings = TrainSettings(batch_graphs=2, log_every=3, max_steps=1)
    first, plain, watching = watched(spec, batch, settings, "cpu", [Phase(), Phase(observer)])
    assert [w.steps for w in (first, plain, watching)] == [3, 3, 3]
    assert [w.graphs for w in (plain, watching)] == pytest.approx([6, 6], rel=1e-3)
    assert [w.found for w in (first, plain, watching)] == [None, None, "what it saw"]
    assert seen == ["begins", "ends"]
    assert min(w.seconds for w in (first, plain, watching)) > 0


def test_a_phase_goes_on_until_it_has_taken_its_time():
    dags, batch = random_batch(50, 2)
    spec = random_spec("fast", dags, {"width": 32, "depth": 1})
    settings = TrainSettings(batch_graphs=2, log_every=1)
    _, short, long = watched(spec, batch, settings, "cpu", [Phase(), Phase(seconds=0.3)])
    assert short.steps == 1
    assert long.seconds >= 0.3
    assert long.graphs == pytest.approx(2 * long.steps, rel=1e-3)
