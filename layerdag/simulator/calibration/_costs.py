"""How long compute nodes take on a machine whose rates were fitted to measured steps."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import final

import numpy as np

from layerdag.errors import ConfigError
from layerdag.simulator.compute import ComputeModel, Device, PredictedCompute, RooflineCompute
from layerdag.traces import NodeType, Trace

Rates = tuple[float, float, float]
"""Of an operator: ns of a call, ns of an operation, ns of a byte."""


class Costs(ABC):
    """Times of compute nodes."""

    @abstractmethod
    def model(self) -> ComputeModel:
        """Return the model that ``simulate`` takes."""


@final
@dataclass(frozen=True)
class OperatorCosts(Costs):
    """Each operator has rates of its own: time = call + operations x rate + bytes x rate.

    Made for steps whose operators run one after the other, as on a processor.

    Attributes:
        rates: By the operator's name.
        other: Of operators that no run had.
    """

    rates: Mapping[str, Rates]
    other: Rates
    _codes: dict[str, int] = field(init=False, repr=False, compare=False)
    _table_K3: np.ndarray = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        table_K3 = np.array([*self.rates.values(), self.other], dtype=np.float64)
        if not (np.isfinite(table_K3) & (table_K3 >= 0)).all():
            raise ConfigError("rates of operators must be three numbers from 0 up, in ns.")
        object.__setattr__(self, "_codes", {name: row for row, name in enumerate(self.rates)})
        object.__setattr__(self, "_table_K3", table_K3)

    def model(self) -> ComputeModel:
        """See ``Costs.model``."""
        return PredictedCompute(self._microseconds)

    def _microseconds(self, trace: Trace, rows: np.ndarray) -> np.ndarray:
        """Return the time of each node, shape (M,)."""
        names = trace.names()
        codes = [self._codes.get(names[row], len(self._codes)) for row in rows.tolist()]
        return (counts_of(trace, rows) * self._table_K3[codes]).sum(axis=1) / 1000


@final
@dataclass(frozen=True)
class DeviceCosts(Costs):
    """A share of a device's data-sheet rates, and a fixed cost for each node.

    Attributes:
        device: The rates.
        efficiency: Share of both peaks that was reached, in (0, 1].
        launch_ns: Fixed cost of a node.
    """

    device: Device
    efficiency: float = 1.0
    launch_ns: float = 0.0

    def __post_init__(self) -> None:
        self.model()  # refuses what is no efficiency

    def model(self) -> ComputeModel:
        """See ``Costs.model``."""
        return RooflineCompute(self.device, self.efficiency, self.launch_ns)


def counts_of(trace: Trace, rows: np.ndarray) -> np.ndarray:
    """Return calls (1), operations and bytes of each node, float64 (M, 3)."""
    columns = [np.maximum(trace.integers(n)[0][rows], 0) for n in ("num_ops", "tensor_size")]
    return np.column_stack([np.ones(len(rows)), *columns]).astype(np.float64)


def compute_rows(trace: Trace) -> np.ndarray:
    """Return the positions of the compute nodes."""
    return np.flatnonzero(trace.type_N == NodeType.COMP)
