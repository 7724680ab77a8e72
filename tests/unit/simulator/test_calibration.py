"""What a known machine predicts, worked out by hand."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from simulator_traces import all_reduce, comp, workload

from layerdag.errors import ConfigError, UsageError
from layerdag.hardware.devices import DEVICES
from layerdag.simulator.calibration import (
    CalibratedMachine,
    DeviceCosts,
    FittedLink,
    FittedOperatorCosts,
    PredictionSpread,
    read_machine,
    require_replaceable_machine,
    write_machine,
)
from layerdag.simulator.report import describe
from layerdag.simulator.run import simulate
from layerdag.traces.trace import Workload

COSTS = FittedOperatorCosts({"n0": (1000.0, 2.0, 3.0)}, (500.0, 0.0, 0.0))
LINK = FittedLink(latency_ns=100.0, bytes_per_s=1e9)
NODES = [comp(0, 7, num_ops=10, tensor_size=100), comp(1, 7, (0,), num_ops=10, tensor_size=100)]
ALONE_NS = 1000 + 20 + 300 + 500


def seconds_on(machine: CalibratedMachine, job: Workload) -> float:
    return simulate(job, machine).makespan_s


def test_operators_take_their_own_rates_and_others_the_common_ones():
    found = seconds_on(CalibratedMachine(COSTS), workload(NODES))
    assert found == pytest.approx(ALONE_NS / 1e9)


@pytest.mark.parametrize(("cores", "sharing"), [(None, 1), (8, 1), (4, 1), (2, 2), (1, 4)])
def test_more_ranks_than_cores_take_turns(cores, sharing):
    machine = CalibratedMachine(COSTS, LINK, cores)
    assert machine.sharing(4) == sharing
    found = seconds_on(machine, workload(*[NODES] * 4))
    assert found == pytest.approx(sharing * ALONE_NS / 1e9)


def test_messages_take_turns_too():
    # 2 ranks, 2000 B: (2n-1) E + 2 (n-1) T = 30 + 2 (100 + 1000); with one core T is twice that.
    nodes = [all_reduce(0, 2000)]
    found = seconds_on(CalibratedMachine(COSTS, LINK), workload(nodes, nodes))
    assert found == pytest.approx(2230 / 1e9, rel=2e-3)
    found = seconds_on(CalibratedMachine(COSTS, LINK, cores=1), workload(nodes, nodes))
    assert found == pytest.approx(4430 / 1e9, rel=2e-3)


def test_the_interval_is_the_spread_of_as_many_ranks():
    alone = PredictionSpread(20, 0.9, 1.0, 1.2, 1, 0.05)
    together = PredictionSpread(20, 0.5, 1.0, 2.0, 2, 0.3)
    machine = CalibratedMachine(COSTS, LINK, alone=alone, together=together)
    for job, spread in ((workload(NODES), alone), (workload(NODES, NODES), together)):
        result, made = simulate(job, machine), machine.predict(job)
        assert (made.seconds, made.sharing) == (result.makespan_s, 1)
        assert made.low_s == spread.low * made.seconds
        assert made.high_s == spread.high * made.seconds
        told = describe(result, machine=machine)[0]["prediction"]
        assert told["low_s"] == pytest.approx(spread.low * result.makespan_s)
        assert told["high_s"] == pytest.approx(spread.high * result.makespan_s)
    machine = CalibratedMachine(COSTS)
    told = describe(simulate(workload(NODES), machine), machine=machine)[0]["prediction"]
    assert "low_s" not in told


@pytest.mark.parametrize(("weight", "factor"), [(0.0, 1), (0.5, 2), (1.0, 4)])
def test_what_a_measured_twin_missed_is_put_right(weight, factor):
    machine = CalibratedMachine(COSTS, LINK)
    twin = workload(NODES, NODES)
    plain = machine.predict(workload(*[NODES] * 4)).seconds
    made = machine.predict(
        workload(*[NODES] * 4), like=(twin, 4 * machine.predict(twin).seconds), weight=weight
    )
    assert made.seconds == pytest.approx(factor * plain)


def test_what_cannot_be_predicted_is_refused():
    with pytest.raises(UsageError, match="the machine has no link, and the workload 2 ranks"):
        CalibratedMachine(COSTS).predict(workload(NODES, NODES))
    with pytest.raises(UsageError, match=r"weight is 2\.0"):
        CalibratedMachine(COSTS).predict(workload(NODES), like=(workload(NODES), 1.0), weight=2.0)
    with pytest.raises(UsageError, match=r"measured time 0\.0 s"):
        CalibratedMachine(COSTS).predict(workload(NODES), like=(workload(NODES), 0.0))
    with pytest.raises(ConfigError, match="cores is 0"):
        CalibratedMachine(COSTS, cores=0)
    with pytest.raises(ConfigError, match=r"the link has -1\.0"):
        CalibratedMachine(COSTS, dataclasses.replace(LINK, latency_ns=-1.0))
    with pytest.raises(ConfigError, match="three numbers from 0 up"):
        FittedOperatorCosts({"a": (-1.0, 0.0, 0.0)}, (0.0, 0.0, 0.0))


OPERATORS = CalibratedMachine(
    FittedOperatorCosts({"mm": (1.0, 2.0, 3.0)}, (4.0, 5.0, 6.0)),
    FittedLink(10.0, 1e9),
    2,
    PredictionSpread(12, 0.9, 1.0, 1.1, 1, 0.05),
    PredictionSpread(12, 0.5, 1.0, 2.0, 2, 0.3),
)
DEVICE = CalibratedMachine(DeviceCosts(DEVICES["h100"], 0.5, 100.0))


def damage(machine: CalibratedMachine, path: tuple[str, ...], value: Any, file: Path) -> None:
    """Write a machine with another value at a path of keys."""
    write_machine(machine, file)
    document = json.loads(file.read_text())
    part = document
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    file.write_text(json.dumps(document))


@pytest.mark.parametrize("machine", [OPERATORS, DEVICE])
def test_a_machine_comes_back_as_it_was(machine, tmp_path):
    write_machine(machine, tmp_path / "a.json")
    found = read_machine(tmp_path / "a.json")
    assert found == machine
    write_machine(found, tmp_path / "b.json")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


@pytest.mark.parametrize(
    ("machine", "path", "value", "message"),
    [
        (OPERATORS, ("layerdag_machine",), 2, "no machine of this version"),
        (OPERATORS, ("costs",), None, "'costs' must be an object, found null"),
        (OPERATORS, ("costs", "kind"), "magic", "kind is one of device, operators"),
        (OPERATORS, ("costs", "rates"), [], "'costs.rates' must be an object, found"),
        (OPERATORS, ("costs", "rates", "mm"), [1, 2], "length 3"),
        (OPERATORS, ("costs", "rates", "mm"), [1, 2, "x"], "must be a number"),
        (OPERATORS, ("costs", "rates", "mm"), [1, 2, -3], "from 0 up"),
        (
            OPERATORS,
            ("costs", "other"),
            [1, 2, float("inf")],
            r"'costs.other\[2\]' must be a finite number",
        ),
        (OPERATORS, ("link",), {"latency_ns": 1}, "'link.bytes_per_s' is missing"),
        (OPERATORS, ("link", "bytes_per_s"), 0, "second must be positive"),
        (OPERATORS, ("cores",), 1.5, "'cores' must be a whole number or null, found 1.5"),
        (OPERATORS, ("cores",), 0, "cores is 0"),
        (OPERATORS, ("alone", "low"), True, "'alone.low' must be a number, found true"),
        (DEVICE, ("costs", "device"), None, "'costs.device' must be an object, found null"),
        (DEVICE, ("costs", "device", "flops"), {"bf16": 1}, "f32 among them"),
        (DEVICE, ("costs", "device", "bytes_per_s"), -1, "positive rates"),
        (DEVICE, ("costs", "efficiency"), 2, "efficiency is 2"),
    ],
)
def test_a_damaged_file_is_refused_by_name(machine, path, value, message, tmp_path):
    damage(machine, path, value, tmp_path / "m.json")
    with pytest.raises(ConfigError, match=message) as caught:
        read_machine(tmp_path / "m.json")
    assert "m.json" in str(caught.value)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"x": 1}'])
def test_what_is_no_machine_is_refused(content, tmp_path):
    (tmp_path / "m.json").write_text(content)
    with pytest.raises(ConfigError, match=r"m\.json"):
        read_machine(tmp_path / "m.json")
    with pytest.raises(ConfigError):
        read_machine(tmp_path / "absent.json")


def test_only_a_machine_may_be_replaced(tmp_path):
    require_replaceable_machine(tmp_path / "new.json")
    write_machine(DEVICE, tmp_path / "m.json")
    require_replaceable_machine(tmp_path / "m.json")
    (tmp_path / "runs.csv").write_text("workload,seconds\n")
    with pytest.raises(UsageError, match="is no machine"):
        require_replaceable_machine(tmp_path / "runs.csv")
