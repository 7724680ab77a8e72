"""Settings of differential privacy: epsilon, units of privacy, the accountant.

How much noise a promise needs: the accountant of the library ``dp-accounting``.

The mechanism is the Gaussian one on a Poisson sample of the units, composed over all steps. Its
privacy loss is added up as a distribution ("connect the dots", arXiv 2207.04380), which errs on the
safe side.

The settings of differentially private tuning, checked when they are made.

The node ``privacy`` of configs/train.yaml has the same keys.

Units of privacy: which graphs belong to one run or one owner.

Shape letters: B graphs, G graphs of a micro-batch, U units.
"""

import importlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from layerdag.dag.dag import DAGBatch
from layerdag.errors import ConfigError, DataError
from layerdag.runtime.tables import read_table
from layerdag.training.batches import in_order, take_graphs

_TOLERANCE = 1e-3
"""Of the multiplier."""

_GRID = 1e-3
"""Distance of the points at which the privacy loss is tabulated; it errs on the safe side."""

_ENOUGH = 1.001
"""Factor by which a multiplier grows until its own epsilon is no more than what is asked for."""


@cache
def noise_multiplier(epsilon: float, delta: float, steps: int, rate: float) -> float:
    """Return the standard deviation of the noise over the clipping norm; 0 for infinity.

    Args:
        epsilon: That may be spent.
        delta: Likewise.
        steps: Of tuning.
        rate: Probability with which a unit takes part in a step.

    Raises:
        ConfigError: If ``dp-accounting`` is not installed.
    """
    if math.isinf(epsilon):
        return 0.0
    library = _library()
    found = float(
        library.calibrate_dp_mechanism(
            lambda: _accountant(library),
            lambda noise: _event(library, float(noise), steps, rate),
            epsilon,
            delta,
            tol=_TOLERANCE,
        )
    )
    while epsilon_of(found, delta, steps, rate) > epsilon:
        found *= _ENOUGH
    return found


def epsilon_of(multiplier: float, delta: float, steps: int, rate: float) -> float:
    """Return the epsilon that a noise multiplier gives; infinity without noise.

    Raises:
        ConfigError: If ``dp-accounting`` is not installed.
    """
    if multiplier == 0:
        return math.inf
    library = _library()
    accountant = _accountant(library)
    accountant.compose(_event(library, multiplier, steps, rate))
    return float(accountant.get_epsilon(delta))


def accountant_name() -> str:
    """Return the accountant with the version of its library."""
    from importlib.metadata import version

    return f"privacy loss distribution, dp-accounting {version('dp-accounting')}"


def require_accountant() -> None:
    """Raise ConfigError if ``dp-accounting`` is not installed."""
    _library()


def _library() -> Any:
    try:
        importlib.import_module("dp_accounting.pld")
        return importlib.import_module("dp_accounting")
    except ImportError as error:
        raise ConfigError(
            f"privacy.epsilon needs an accountant ({error}); install it with: "
            "pip install 'layerdag[privacy]'."
        ) from error


def _accountant(library: Any) -> Any:
    """Return an empty account of neighbors where one unit is replaced by an empty one."""
    return library.pld.PLDAccountant(
        neighboring_relation=library.NeighboringRelation.REPLACE_SPECIAL,
        value_discretization_interval=_GRID,
    )


def _event(library: Any, multiplier: float, steps: int, rate: float) -> Any:
    step = library.PoissonSampledDpEvent(rate, library.GaussianDpEvent(multiplier))
    return library.SelfComposedDpEvent(step, steps)


AUTO: Literal["auto"] = "auto"


@dataclass(frozen=True)
class Privacy:
    """What is promised, and how the few parameters are tuned.

    The defaults were chosen on public graphs alone (docs/dev/decisions.md, "Differential
    privacy"). Parameters are in units of how often the public graphs have a code.

    Attributes:
        epsilon: Bound of the privacy loss; infinity clips and adds no noise. None: no private
            tuning.
        delta: Probability with which the bound may fail; "auto" is half of one over the number of
            units, rounded down to one digit.
        unit: Whose whole contribution is protected: each "run" (one graph), or each "owner".
        owners: CSV file with the columns ``graph`` and ``owner``, for ``unit="owner"``.
        clip: Largest norm of a unit's gradient, of nats per node. About half were smaller on public
            graphs: were all clipped, every unit would count alike, whatever its size.
        steps: Steps of tuning; at the same epsilon the noise in the sum of all of them hardly
            depends on their number.
        sampling_rate: Probability with which a unit takes part in a step, on its own draw.
        learning_rate: Of a step, times the mean clipped gradient over ``clip``.
        momentum: Of the steps.
        rank: Of the low-rank adapters of the readouts; 0 tunes their biases alone.
        canaries: Strange graphs that take part by a coin flip each, to measure a lower bound of the
            privacy loss; even. They cost utility: for runs that audit, not for weights to share.

    Raises:
        ConfigError: If a value is out of bounds.
    """

    epsilon: float | None = None
    delta: float | Literal["auto"] = AUTO
    unit: Literal["run", "owner"] = "run"
    owners: Path | None = None
    clip: float = 0.05
    steps: int = 100
    sampling_rate: float = 0.25
    learning_rate: float = 1.0
    momentum: float = 0.9
    rank: int = 1
    canaries: int = 0

    def __post_init__(self) -> None:
        _require(self.epsilon is None or self.epsilon > 0, "epsilon", self.epsilon, "above 0")
        is_share = self.delta == AUTO or 0 < float(self.delta) < 1
        _require(is_share, "delta", self.delta, "between 0 and 1, or auto")
        for name in ("clip", "learning_rate"):
            value = getattr(self, name)
            _require(0 < value < math.inf, name, value, "above 0")
        _require(0 < self.sampling_rate <= 1, "sampling_rate", self.sampling_rate, "in (0, 1]")
        _require(0 <= self.momentum < 1, "momentum", self.momentum, "in [0, 1)")
        _require(self.steps >= 1, "steps", self.steps, "at least 1")
        _require(self.rank >= 0, "rank", self.rank, "at least 0")
        even = self.canaries >= 0 and self.canaries % 2 == 0
        _require(even, "canaries", self.canaries, "an even number")
        _require(
            (self.unit == "owner") == (self.owners is not None), "owners", self.owners,
            "a CSV file with privacy.unit=owner, and nothing with privacy.unit=run",
        )  # fmt: skip

    @property
    def is_on(self) -> bool:
        """Whether private tuning is asked for."""
        return self.epsilon is not None

    def delta_for(self, num_units: int) -> float:
        """Return delta as a number, for so many units."""
        if self.delta != AUTO:
            return float(self.delta)
        most = 1 / (2 * max(num_units, 2))
        digit = 10.0 ** math.floor(math.log10(most))
        return float(f"{math.floor(most / digit) * digit:.0e}")


def _require(holds: bool, name: str, found: object, wanted: str) -> None:
    """Raise ConfigError about ``privacy.<name>`` unless the bound holds."""
    if not holds:
        raise ConfigError(f"privacy.{name} must be {wanted}, found {found!r:.60}.")


_COLUMNS = ("graph", "owner")
_BATCH_GRAPHS, _BATCH_NODES = 256, 3000


@dataclass(frozen=True, eq=False)
class Units:
    """Graphs by their unit.

    Attributes:
        graphs: All graphs.
        unit_B: Unit of each graph, from 0 on.
        count: Number of units.
    """

    graphs: DAGBatch
    unit_B: np.ndarray
    count: int

    @classmethod
    def from_owners(cls, graphs: DAGBatch, owners: Sequence[str]) -> "Units":
        """Return the units of some graphs.

        Args:
            graphs: All training graphs.
            owners: Name of the unit of each graph.
        """
        assert len(owners) == graphs.num_graphs, (len(owners), graphs.num_graphs)
        number = {owner: index for index, owner in enumerate(dict.fromkeys(owners))}
        return cls(graphs, np.array([number[owner] for owner in owners], np.int64), len(number))

    @property
    def nodes_U(self) -> Float[Tensor, " U"]:
        """Number of nodes of each unit, double precision."""
        sizes_B = self.graphs.node_ptr.diff().double().cpu()
        return torch.zeros(self.count, dtype=torch.float64).index_add(
            0, torch.from_numpy(self.unit_B), sizes_B
        )

    def batches(self, chosen_U: np.ndarray) -> Iterator[tuple[DAGBatch, Int[Tensor, " G"]]]:
        """Yield the graphs of some units in micro-batches, with the unit of each graph.

        Args:
            chosen_U: Whether a unit is wanted.
        """
        wanted_G = np.flatnonzero(chosen_U[self.unit_B])
        sizes_B = self.graphs.node_ptr.diff().cpu().numpy()
        order_G = wanted_G[np.argsort(sizes_B[wanted_G], kind="stable")]
        for graphs_G in in_order(order_G, sizes_B, _BATCH_GRAPHS, _BATCH_NODES):
            units_G = torch.from_numpy(self.unit_B)[graphs_G]
            yield take_graphs(self.graphs, graphs_G), units_G.to(self.graphs.x_NA.device)


def read_owners(file: Path, names: Sequence[str]) -> list[str]:
    """Return the owner of each graph.

    Args:
        file: CSV with the columns ``graph`` and ``owner``.
        names: Of the graphs.

    Raises:
        DataError: If the file cannot be read, or does not say who owns a graph.
    """
    owner_of = _owners(file)
    missing = [name for name in names if name not in owner_of]
    if missing:
        raise DataError(
            f"{file}: does not say who owns {missing[0]} ({len(missing)} graphs in all); give "
            "every graph of the training part a line."
        )
    return [owner_of[name] for name in names]


def _owners(file: Path) -> Mapping[str, str]:
    owners: dict[str, str] = {}
    for line, row in read_table(file, _COLUMNS).rows():
        name, owner = row["graph"], row["owner"]
        if owners.setdefault(name, owner) != owner:
            raise DataError(
                f"{file}: line {line}: graph '{name:.80}' has two owners; keep one of them."
            )
    return owners
