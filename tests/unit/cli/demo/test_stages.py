"""Stages of the demo by themselves."""

import time
from pathlib import Path

import pytest

from layerdag.cli.demo import DemoSettings, _stages as stages


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
