"""A calibrated machine as JSON."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from layerdag._runtime import read_whole, write_text
from layerdag.errors import ConfigError, UsageError
from layerdag.simulator.calibration._calibration import CalibratedMachine, Link, Spread
from layerdag.simulator.calibration._costs import Costs, DeviceCosts, OperatorCosts, Rates
from layerdag.simulator.compute import Device

VERSION = 1
MAX_MACHINE_BYTES = 16 << 20
_KEY = "layerdag_machine"


def write_machine(machine: CalibratedMachine, path: str | Path) -> None:
    """Write ``machine``; the same machine gives the same bytes."""
    document = {
        _KEY: VERSION,
        "costs": _costs_document(machine.costs),
        "link": asdict(machine.link) if machine.link else None,
        "cores": machine.cores,
        "alone": asdict(machine.alone) if machine.alone else None,
        "together": asdict(machine.together) if machine.together else None,
    }
    write_text(path, json.dumps(document, indent=1) + "\n")


def require_replaceable_machine(path: str | Path) -> None:
    """Raise UsageError if something lies at ``path`` that ``write_machine`` did not write."""
    if not Path(path).exists():
        return
    try:
        read_machine(path)
    except ConfigError:
        raise UsageError(
            f"{path}: is there already and is no machine of 'layerdag calibrate', so it is not "
            "replaced; name another file."
        ) from None


def read_machine(path: str | Path) -> CalibratedMachine:
    """Read what ``write_machine`` or ``layerdag calibrate`` wrote.

    Raises:
        ConfigError: If the file is missing, no such JSON, or holds a value that is not possible.
    """
    try:
        document = json.loads(read_whole(Path(path), MAX_MACHINE_BYTES, ConfigError))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: is no JSON ({error!s:.100}).") from None
    if not isinstance(document, dict) or document.get(_KEY) != VERSION:
        raise ConfigError(
            f"{path}: is no machine of this version ('{_KEY}': {VERSION}); write one with "
            "'layerdag calibrate'."
        )
    try:
        cores = document.get("cores")
        if cores is not None and type(cores) is not int:
            raise ConfigError(f"cores is {cores!r:.40}; it must be a whole number or null.")
        return CalibratedMachine(
            _costs(document.get("costs")),
            _link(document.get("link")),
            cores,
            _spread(document.get("alone")),
            _spread(document.get("together")),
        )
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def _costs_document(costs: Costs) -> dict[str, Any]:
    if isinstance(costs, DeviceCosts):
        return {"kind": "device", **asdict(costs)}
    assert isinstance(costs, OperatorCosts)
    return {"kind": "operators", "rates": dict(costs.rates), "other": costs.other}


def _costs(document: object) -> Costs:
    known: Mapping[str, Callable[[dict[str, Any]], Costs]] = {
        "device": _device_costs,
        "operators": _operator_costs,
    }
    if not isinstance(document, dict) or document.get("kind") not in known:
        raise ConfigError(f"costs must be an object whose kind is one of {', '.join(known)}.")
    return known[document["kind"]](document)


def _device_costs(document: dict[str, Any]) -> Costs:
    device = document.get("device")
    if not isinstance(device, dict) or not isinstance(device.get("flops"), dict):
        raise ConfigError("costs.device must be an object with name, flops and bytes_per_s.")
    flops = {str(kind): _number(rate, f"flops.{kind}") for kind, rate in device["flops"].items()}
    rates = (*flops.values(), _number(device.get("bytes_per_s"), "bytes_per_s"))
    if min(rates) <= 0 or "f32" not in flops:
        raise ConfigError("the device needs positive rates, the one of f32 among them.")
    return DeviceCosts(
        Device(str(device.get("name", "")), flops, rates[-1]),
        _number(document.get("efficiency"), "efficiency"),
        _number(document.get("launch_ns", 0.0), "launch_ns"),
    )


def _operator_costs(document: dict[str, Any]) -> Costs:
    rates = document.get("rates")
    if not isinstance(rates, dict):
        raise ConfigError("costs.rates must be an object of three numbers for each operator.")
    of_name = {str(name): _rates(numbers, f"rates.{name}") for name, numbers in rates.items()}
    return OperatorCosts(of_name, _rates(document.get("other"), "other"))


def _rates(numbers: object, name: str) -> Rates:
    if not isinstance(numbers, list) or len(numbers) != 3:
        raise ConfigError(f"{name:.60} must be three numbers: ns of a call, operation and byte.")
    call, operation, byte = (_number(number, name) for number in numbers)
    return call, operation, byte


def _link(document: object) -> Link | None:
    """Return a link from an object with its fields, None from null."""
    numbers = _numbers_of(Link, document)
    return Link(**numbers) if numbers else None


def _spread(document: object) -> Spread | None:
    """Return a spread from an object with its fields, None from null."""
    numbers = _numbers_of(Spread, document)
    if not numbers:
        return None
    counts = {name: int(numbers.pop(name)) for name in ("runs", "most_ranks")}
    return Spread(runs=counts["runs"], most_ranks=counts["most_ranks"], **numbers)


def _numbers_of(kind: type[Link] | type[Spread], document: object) -> dict[str, float]:
    """Return the numbers of an object that has exactly the fields of ``kind``; none of null."""
    if document is None:
        return {}
    names = [field.name for field in fields(kind)]
    if not isinstance(document, dict) or set(document) != set(names):
        raise ConfigError(f"the {kind.__name__.lower()} must have exactly {', '.join(names)}.")
    return {name: _number(document[name], name) for name in names}


def _number(value: object, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ConfigError(f"{name:.60} is {value!r:.40}; it must be a number.")
    return float(value)
