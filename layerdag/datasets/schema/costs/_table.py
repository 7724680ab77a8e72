"""Numbers of nodes that training jobs share, by operator, as they lie in a checkpoint's schema."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

from layerdag.datasets.schema.costs._durations import Durations
from layerdag.datasets.schema.costs._products import PRODUCTS
from layerdag.datasets.schema.costs._step_time import StepTime

COST_NAMES = ("flops", "bytes", "comm_bytes")
"""The numbers of a cost, in their order; 0 stands for absent."""
MOST = 1 << 62

Cost = tuple[int, int, int]


@dataclass(frozen=True)
class ByteRule:
    """Bytes that follow from the size of a node: ``times * size / per + plus``.

    The size is that of the message if the node communicates, else the FLOPs, which for element-wise
    operators count the elements.
    """

    times: int
    per: int
    plus: int

    def bytes_of(self, size: int) -> int:
        """Return the bytes of a size that is a multiple of ``per``."""
        return self.times * (size // self.per) + self.plus


@dataclass(frozen=True)
class OperatorCosts:
    """What calls of one operator cost.

    Attributes:
        costs: FLOPs, bytes, bytes of communication, as several training jobs have them together.
        shares: How often each of them occurs among the operator's calls.
        rules: How bytes follow from the size in several jobs, the most frequent first.
    """

    costs: tuple[Cost, ...]
    fractions: tuple[float, ...]
    rules: tuple[ByteRule, ...]


@dataclass(frozen=True)
class CostTable:
    """What nodes cost, and how costs of parents and children go together.

    Attributes:
        operators: By operator.
        steps: By the operators of a parent and its child along a data dependency: the share of such
            pairs in which the child's size is so many times the parent's.
        products: Matrix products whose FLOPs and bytes follow from shapes, as
            ``layerdag.datasets.schema.costs.PRODUCTS`` says.
        time: How the sum of durations goes with the step time; None if that is not known.
        durations: How long nodes take; None if that is not known.
    """

    operators: Mapping[str, OperatorCosts] = field(default_factory=dict)
    steps: Mapping[tuple[str, str], Mapping[Fraction, float]] = field(default_factory=dict)
    products: tuple[str, ...] = ()
    time: StepTime | None = None
    durations: Durations | None = None

    def __bool__(self) -> bool:
        """Return whether there is any operator."""
        return bool(self.operators)

    @cached_property
    def step_shares(self) -> Mapping[tuple[str, str], Mapping[float, float]]:
        """``steps`` with quotients as float64, as division of two whole numbers gives them."""
        return {
            pair: {
                ratio.numerator / ratio.denominator: fraction for ratio, fraction in found.items()
            }
            for pair, found in self.steps.items()
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the table as JSON-serializable data."""
        return {
            "operators": {
                name: {
                    "costs": [
                        [*cost, fraction]
                        for cost, fraction in zip(entry.costs, entry.fractions, strict=True)
                    ],
                    "rules": [[rule.times, rule.per, rule.plus] for rule in entry.rules],
                }
                for name, entry in self.operators.items()
            },
            "steps": [
                [*pair, [[r.numerator, r.denominator, fraction] for r, fraction in found.items()]]
                for pair, found in self.steps.items()
            ],
            "products": list(self.products),
            "time": None if self.time is None else self.time.to_dict(),
            **({} if self.durations is None else {"durations": self.durations.to_dict()}),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "CostTable":
        """Rebuild from ``to_dict``. Raises KeyError, TypeError or ValueError if malformed."""
        operators = {str(name): _entry(entry) for name, entry in data["operators"].items()}
        steps = {
            (str(parent), str(child)): {
                Fraction(_whole(top, 1), _whole(bottom, 1)): _fraction(fraction)
                for top, bottom, fraction in found
            }
            for parent, child, found in data["steps"]
        }
        products = tuple(str(name) for name in data["products"])
        if set(products) - set(PRODUCTS):
            raise ValueError(f"matrix products are {', '.join(PRODUCTS)}")
        time = None if data["time"] is None else StepTime.from_dict(data["time"])
        durations = Durations.from_dict(data["durations"]) if "durations" in data else None
        return cls(operators, steps, products, time, durations)


NO_COSTS = CostTable()


def _entry(data: Mapping[str, Any]) -> OperatorCosts:
    """Return the costs of one operator."""
    rows = [(_cost(row[:3]), _fraction(row[3])) for row in data["costs"]]
    return OperatorCosts(
        costs=tuple(cost for cost, _ in rows),
        fractions=tuple(fraction for _, fraction in rows),
        rules=tuple(
            ByteRule(_whole(times, 1), _whole(per, 1), _whole(plus, 0))
            for times, per, plus in data["rules"]
        ),
    )


def _cost(row: Any) -> Cost:
    """Return three whole numbers."""
    flops, moved, sent = (_whole(number, 0) for number in row)
    return flops, moved, sent


def _whole(number: Any, least: int) -> int:
    """Return a whole number within bounds."""
    if not isinstance(number, int) or not least <= number < MOST:
        raise ValueError(f"whole numbers from {least} are needed, found {number!r:.40}")
    return number


def _fraction(fraction: Any) -> float:
    """Return a share, above 0 and at most 1."""
    if not 0 < float(fraction) <= 1:
        raise ValueError(f"a share is above 0 and at most 1, found {fraction!r:.40}")
    return float(fraction)
