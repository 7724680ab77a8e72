"""Equality with the recorded outcome of our own golden cases, tick by tick (tests/golden)."""

import json
from pathlib import Path

import pytest
from golden_simulator import run_case

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "simulator"
CASES = sorted(GOLDEN.glob("case-*.json"))


def test_the_golden_cases_cover_what_a_cluster_can_be():
    cases = [json.loads(path.read_text()) for path in CASES]
    topologies = {name for case in cases for name in case["network"]["topology"]}
    assert topologies == {"Ring", "FullyConnected", "Switch"}
    assert {len(case["network"]["topology"]) for case in cases} == {1, 2, 3}
    flags = {word for case in cases for word in case["flags"]}
    assert {"aware", "--num-queues-per-dim", "--rendezvous-protocol"} <= flags


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_every_tick_of_a_golden_case_is_what_it_was(path, tmp_path):
    case = json.loads(path.read_text())
    assert run_case(case, tmp_path) == case["expected"]
