"""Machines as files, and what is no such file."""

import json
from pathlib import Path
from typing import Any

import pytest

from layerdag.errors import ConfigError, UsageError
from layerdag.simulator.calibration import (
    CalibratedMachine,
    DeviceCosts,
    Link,
    OperatorCosts,
    Spread,
    read_machine,
    require_replaceable_machine,
    write_machine,
)
from layerdag.simulator.compute import DEVICES

OPERATORS = CalibratedMachine(
    OperatorCosts({"mm": (1.0, 2.0, 3.0)}, (4.0, 5.0, 6.0)),
    Link(10.0, 1e9),
    2,
    Spread(12, 0.9, 1.0, 1.1, 1, 0.05),
    Spread(12, 0.5, 1.0, 2.0, 2, 0.3),
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
def test_a_machine_comes_back_as_it_was(machine: CalibratedMachine, tmp_path: Path) -> None:
    write_machine(machine, tmp_path / "a.json")
    found = read_machine(tmp_path / "a.json")
    assert found == machine
    write_machine(found, tmp_path / "b.json")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("layerdag_machine",), 2, "no machine of this version"),
        (("costs",), None, "kind is one of device, operators"),
        (("costs", "kind"), "magic", "kind is one of device, operators"),
        (("costs", "rates"), [], "object of three numbers"),
        (("costs", "rates", "mm"), [1, 2], "rates.mm must be three numbers"),
        (("costs", "rates", "mm"), [1, 2, "x"], "rates.mm is 'x'"),
        (("costs", "rates", "mm"), [1, 2, -3], "from 0 up"),
        (("costs", "other"), [1, 2, float("inf")], "other is inf"),
        (("link",), {"latency_ns": 1}, "exactly latency_ns, bytes_per_s"),
        (("link", "bytes_per_s"), 0, "second must be positive"),
        (("cores",), 1.5, "cores is 1.5"),
        (("cores",), 0, "cores is 0"),
        (("alone", "low"), True, "low is True"),
    ],
)
def test_a_damaged_file_is_refused_by_name(
    path: tuple[str, ...], value: Any, message: str, tmp_path: Path
) -> None:
    damage(OPERATORS, path, value, tmp_path / "m.json")
    with pytest.raises(ConfigError, match=message) as caught:
        read_machine(tmp_path / "m.json")
    assert "m.json" in str(caught.value)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("costs", "device"), None, "object with name, flops and bytes_per_s"),
        (("costs", "device", "flops"), {"bf16": 1}, "f32 among them"),
        (("costs", "device", "bytes_per_s"), -1, "positive rates"),
        (("costs", "efficiency"), 2, "efficiency is 2"),
    ],
)
def test_a_damaged_device_is_refused(
    path: tuple[str, ...], value: Any, message: str, tmp_path: Path
) -> None:
    damage(DEVICE, path, value, tmp_path / "m.json")
    with pytest.raises(ConfigError, match=message):
        read_machine(tmp_path / "m.json")


@pytest.mark.parametrize("content", ["", "{", "[]", '{"x": 1}'])
def test_what_is_no_machine_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "m.json").write_text(content)
    with pytest.raises(ConfigError, match=r"m\.json"):
        read_machine(tmp_path / "m.json")
    with pytest.raises(ConfigError):
        read_machine(tmp_path / "absent.json")


def test_only_a_machine_may_be_replaced(tmp_path: Path) -> None:
    require_replaceable_machine(tmp_path / "new.json")
    write_machine(DEVICE, tmp_path / "m.json")
    require_replaceable_machine(tmp_path / "m.json")
    (tmp_path / "runs.csv").write_text("workload,seconds\n")
    with pytest.raises(UsageError, match="is no machine"):
        require_replaceable_machine(tmp_path / "runs.csv")
