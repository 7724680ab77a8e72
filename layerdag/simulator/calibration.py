"""A calibrated machine: its fitted costs and its file."""

import dataclasses
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, final

import numpy as np

from layerdag.errors import ConfigError, UsageError
from layerdag.hardware.devices import Device
from layerdag.runtime.files import write_text
from layerdag.runtime.json_shape import from_json, parse_json, require_finite, require_known
from layerdag.runtime.reading import read_whole
from layerdag.simulator.cluster import Cluster
from layerdag.simulator.compute import (
    ComputeModel,
    PredictedCompute,
    RooflineCompute,
    ScaledCompute,
)
from layerdag.simulator.config import (
    Dimension,
    NetworkConfig,
    SystemConfig,
    Topology,
    UnsupportedCollectives,
)
from layerdag.simulator.run import simulate
from layerdag.traces.trace import NodeType, Trace, Workload

Rates = tuple[float, float, float]
"""Of an operator: ns of a call, ns of an operation, ns of a byte."""


class FittedCosts(ABC):
    """Times of compute nodes."""

    @abstractmethod
    def model(self) -> ComputeModel:
        """Return the model that ``simulate`` takes."""


@final
@dataclass(frozen=True)
class FittedOperatorCosts(FittedCosts):
    """Each operator has rates of its own: time = call + operations x rate + bytes x rate.

    Made for steps whose operators run one after the other, as on a processor.

    Attributes:
        rates: By the operator's name.
        other: Of operators that no run had.
    """

    rates: Mapping[str, Rates]
    other: Rates

    def __post_init__(self) -> None:
        table_K3 = self._table_K3
        if not (np.isfinite(table_K3) & (table_K3 >= 0)).all():
            raise ConfigError("rates of operators must be three numbers from 0 up, in ns.")

    @cached_property
    def _table_K3(self) -> np.ndarray:
        return np.array([*self.rates.values(), self.other], dtype=np.float64)

    def model(self) -> ComputeModel:
        """See ``FittedCosts.model``."""
        code_of = {name: row for row, name in enumerate(self.rates)}

        def microseconds(trace: Trace, rows: np.ndarray) -> np.ndarray:
            names = trace.names()
            codes = [code_of.get(names[row], len(code_of)) for row in rows.tolist()]
            return (counts_of(trace, rows) * self._table_K3[codes]).sum(axis=1) / 1000

        return PredictedCompute(microseconds)


@final
@dataclass(frozen=True)
class DeviceCosts(FittedCosts):
    """A share, in (0, 1], of both of a device's data-sheet rates, and a fixed cost of each node."""

    device: Device
    efficiency: float = 1.0
    launch_ns: float = 0.0

    def __post_init__(self) -> None:
        self.model()  # refuses what is no efficiency

    def model(self) -> ComputeModel:
        """See ``FittedCosts.model``."""
        return RooflineCompute(self.device, self.efficiency, self.launch_ns)


def counts_of(trace: Trace, rows: np.ndarray) -> np.ndarray:
    """Return calls (1), operations and bytes of each node, float64 (M, 3)."""
    columns = [np.maximum(trace.integers(n)[0][rows], 0) for n in ("num_ops", "tensor_size")]
    return np.column_stack([np.ones(len(rows)), *columns]).astype(np.float64)


def compute_rows(trace: Trace) -> np.ndarray:
    """Return the positions of the compute nodes."""
    return np.flatnonzero(trace.type_N == NodeType.COMP)


@dataclass(frozen=True)
class FittedLink:
    """What connects two ranks, every pair with one of its own, in one direction."""

    latency_ns: float
    bytes_per_s: float


@dataclass(frozen=True)
class PredictionSpread:
    """How measured steps lay around predictions of runs that were left out of the fit.

    Attributes:
        runs: Number of runs.
        low: A tenth of the runs had a ratio of measured to predicted time below this.
        middle: Half of the runs.
        high: Nine tenths.
        most_ranks: Of the run with most ranks; beyond, the interval is a guess.
        error: Median relative error of the predictions.
    """

    runs: int
    low: float
    middle: float
    high: float
    most_ranks: int
    error: float


@dataclass(frozen=True)
class Prediction:
    """The time of a step that was not measured.

    ``low_s`` and ``high_s`` hold it for four in five runs that were left out of the fit; None
    without such runs. ``sharing`` is the number of ranks that took turns on a core.
    """

    seconds: float
    low_s: float | None
    high_s: float | None
    sharing: float


@dataclass(frozen=True)
class CalibratedMachine:
    """A machine as ``calibrate`` found it.

    Attributes:
        costs: Times of compute nodes where each rank has a core or device of its own.
        link: Between ranks; None where no run had several and none was stated.
        cores: Cores of the one host that all ranks share, so that more ranks than cores take
            turns: compute and communication then last ranks / cores times as long. None where
            each rank has a device of its own.
        alone: How far predictions of runs of one rank were off; None if there were too few.
        together: The same for runs of several ranks.
    """

    costs: FittedCosts
    link: FittedLink | None = None
    cores: int | None = None
    alone: PredictionSpread | None = None
    together: PredictionSpread | None = None

    def __post_init__(self) -> None:
        if self.cores is not None and self.cores < 1:
            raise ConfigError(f"cores is {self.cores}; it must be at least 1.")
        link = self.link
        if link and not (0 <= link.latency_ns < math.inf and 0 < link.bytes_per_s < math.inf):
            raise ConfigError(
                f"the link has {link.latency_ns} ns and {link.bytes_per_s} bytes per second; "
                "the first must not be negative, the second must be positive."
            )

    def spread(self, num_ranks: int) -> PredictionSpread | None:
        """Return how far predictions on ``num_ranks`` ranks may be off."""
        return self.alone if num_ranks == 1 else self.together

    def sharing(self, num_ranks: int) -> float:
        """Return how many ranks take turns on a core, at least 1."""
        return 1.0 if self.cores is None else max(1.0, num_ranks / self.cores)

    def with_ranks(self, num_ranks: int) -> Cluster:
        """Return the cluster of ``num_ranks`` ranks with its compute model.

        Raises:
            UsageError: If there are several ranks and no link.
        """
        link = self.link
        if link is None and num_ranks > 1:
            raise UsageError(
                f"the machine has no link, and the workload {num_ranks} ranks; calibrate with runs "
                "of several ranks, or state latency and bandwidth."
            )
        link, sharing = link or FittedLink(0.0, 1e9), self.sharing(num_ranks)
        bandwidth_gib, latency_ns = link.bytes_per_s / sharing / 2**30, link.latency_ns * sharing
        dimension = Dimension(Topology.FULLY_CONNECTED, num_ranks, bandwidth_gib, latency_ns)
        system = dataclasses.replace(
            SystemConfig.uniform("ring"),
            all_to_all=("direct",),  # every pair has a link, as NCCL uses them
            unsupported_collectives=UnsupportedCollectives.REPLAY,
        )
        model = self.costs.model()
        model = model if sharing == 1 else ScaledCompute(model, sharing)
        return Cluster(NetworkConfig((dimension,)), system, compute=model)

    def predict(
        self, workload: Workload, *, like: tuple[Workload, float] | None = None, weight: float = 0.5
    ) -> Prediction:
        """Return the time of a step of ``workload`` on this machine.

        Args:
            workload: Traces of all ranks; durations in them are not used.
            like: The same job on another number of ranks, and its measured seconds. The error of
                the prediction of that run is corrected, as far as ``weight`` says.
            weight: Share of that error, in logarithms: 0 ignores ``like``, 1 trusts its one
                measurement fully.

        Raises:
            SimulationError: If the workload cannot run.
            UsageError: If it has several ranks and the machine no link, or ``weight`` or the
                seconds of ``like`` are out of range.
        """
        seconds = simulate(workload, self).makespan_s
        if like is not None:
            other, measured_s = like
            if not 0 <= weight <= 1 or not 0 < measured_s < math.inf:
                raise UsageError(
                    f"weight is {weight} and the measured time {measured_s} s; the first must be "
                    "in [0, 1], the second must be positive."
                )
            seconds *= (measured_s / simulate(other, self).makespan_s) ** weight
        spread, sharing = self.spread(workload.num_ranks), self.sharing(workload.num_ranks)
        if spread is None:
            return Prediction(seconds, None, None, sharing)
        return Prediction(seconds, seconds * spread.low, seconds * spread.high, sharing)


VERSION = 1
MAX_MACHINE_BYTES = 16 << 20
_KEY = "layerdag_machine"
_KINDS: Mapping[str, type[DeviceCosts] | type[FittedOperatorCosts]] = {
    "device": DeviceCosts,
    "operators": FittedOperatorCosts,
}


def write_machine(machine: CalibratedMachine, path: str | Path) -> None:
    """Write ``machine``; the same machine gives the same bytes."""
    write_text(path, json.dumps(machine_document(machine), indent=1) + "\n")


def machine_document(machine: CalibratedMachine) -> dict[str, object]:
    """Return what a file of ``machine`` holds."""
    assert isinstance(machine.costs, DeviceCosts | FittedOperatorCosts)
    kind = next(word for word, cls in _KINDS.items() if isinstance(machine.costs, cls))
    return {
        _KEY: VERSION,
        "costs": {"kind": kind, **asdict(machine.costs)},
        "link": asdict(machine.link) if machine.link else None,
        "cores": machine.cores,
        "alone": asdict(machine.alone) if machine.alone else None,
        "together": asdict(machine.together) if machine.together else None,
    }


def require_replaceable_machine(path: str | Path) -> None:
    """Raise UsageError if there is something at ``path`` that ``write_machine`` did not write."""
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
        document = parse_json(read_whole(Path(path), MAX_MACHINE_BYTES, ConfigError))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: is no JSON ({error!s:.100}).") from None
    if not isinstance(document, dict) or document.get(_KEY) != VERSION:
        raise ConfigError(
            f"{path}: is no machine of this version ('{_KEY}': {VERSION}); write one with "
            "'layerdag calibrate'."
        )
    try:
        require_known(document, (_KEY, "costs", "link", "cores", "alone", "together"))
        require_finite(document)
        file = from_json(_MachineFile, document)
        return CalibratedMachine(
            _costs(file.costs), file.link, file.cores, file.alone, file.together
        )
    except (ConfigError, ValueError) as error:
        raise ConfigError(f"{path}: {error}") from None


@dataclass(frozen=True)
class _MachineFile:
    costs: dict[str, Any]
    link: FittedLink | None = None
    cores: int | None = None
    alone: PredictionSpread | None = None
    together: PredictionSpread | None = None


def _costs(document: dict[str, Any]) -> FittedCosts:
    kind = document.get("kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ConfigError(f"costs must be an object whose kind is one of {', '.join(_KINDS)}.")
    costs = from_json(_KINDS[kind], document, "costs")
    if isinstance(costs, DeviceCosts):
        if "efficiency" not in document:
            raise ConfigError("'costs.efficiency' is missing")
        rates = (*costs.device.flops.values(), costs.device.bytes_per_s)
        if min(rates) <= 0 or "f32" not in costs.device.flops:
            raise ConfigError("the device needs positive rates, the one of f32 among them.")
    return costs
