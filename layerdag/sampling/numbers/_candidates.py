"""Which costs a node can have, given its operator and the bins that the model drew.

1. Those that several training jobs share, in these bins.
2. For a matrix product, those of shapes in these bins, or else the nearest shapes. One of which
   FLOPs or bytes were not drawn, which no program has, gets those of the nearest shared ones.
3. A size in its bin from which bytes in theirs follow by a rule of the operator; first a size that
   the job already has, so that an optimizer's operators agree on its parameters.
4. Whole elements in the bins.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from layerdag.datasets.schema import NumericAttribute
from layerdag.datasets.schema.costs import COST_NAMES, PRODUCTS, ByteRule, Cost, CostTable
from layerdag.sampling.numbers._products import Bounds, element_bytes, product_costs

BinKey = tuple[str, int, int, int]
"""Operator and codes of ``COST_NAMES``."""
_ABSENT: Bounds = (0.0, 0.0)
_USED_SIZES = 8
_MOST_WIDENED = 8
Allows = Callable[[Sequence[Cost]], Sequence[bool]]
"""Which of these costs a node may have."""
CONVOLUTIONS = frozenset({"aten::convolution", "aten::convolution_backward"})
"""Operators of which each element takes a multiplication and an addition, products aside."""


@dataclass(frozen=True, eq=False)
class Candidates:
    """Costs and how likely each is before neighbors are looked at.

    Attributes:
        costs: FLOPs, bytes, bytes of communication.
        log_weights: Logarithms of their shares among the operator's calls.
        sizes: Size of each, which those of neighbors are compared with.
    """

    costs: Sequence[Cost]
    log_weights: Sequence[float]
    sizes: Sequence[int] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sizes", [sent or flops for flops, _, sent in self.costs])

    def those(self, wanted: Sequence[bool]) -> "Candidates":
        """Return the wanted ones."""
        if all(wanted):
            return self
        rows = [row for row, is_wanted in enumerate(wanted) if is_wanted]
        return Candidates([self.costs[r] for r in rows], [self.log_weights[r] for r in rows])


@dataclass(frozen=True, eq=False)
class CandidateIndex:
    """Shared costs by operator and bins, and bounds of the bins."""

    table: CostTable
    shared: Mapping[BinKey, Candidates]
    bounds: Sequence[Sequence[Bounds]]

    @classmethod
    def of(cls, table: CostTable, attributes: Mapping[str, NumericAttribute]) -> "CandidateIndex":
        """Sort the costs of a table into the bins of the attributes ``COST_NAMES``."""
        rows = [
            (name, cost, fraction)
            for name, entry in table.operators.items()
            for cost, fraction in zip(entry.costs, entry.fractions, strict=True)
        ]
        cost_RC = np.array([cost for _, cost, _ in rows], dtype=np.float64).reshape(-1, 3)
        cost_RC[cost_RC == 0] = np.nan
        code_RC = np.stack(
            [attributes[name].encode(cost_RC[:, i])[0] for i, name in enumerate(COST_NAMES)], axis=1
        )
        groups: dict[BinKey, list[tuple[Cost, float]]] = defaultdict(list)
        for (name, cost, fraction), codes in zip(rows, code_RC.tolist(), strict=True):
            groups[name, codes[0], codes[1], codes[2]].append((cost, float(np.log(fraction))))
        shared = {
            key: Candidates(*(list(part) for part in zip(*found, strict=True)))
            for key, found in groups.items()
        }
        bounds = [
            [_ABSENT, *((row[0], row[-1]) for row in attributes[name].bins)] for name in COST_NAMES
        ]
        return cls(table, shared, bounds)

    def whole(self, key: BinKey) -> BinKey:
        """Return the key; of a matrix product without FLOPs or bytes, the nearest shared one."""
        if key[0] not in self.table.products or (key[1] and key[2]):
            return key
        return min(
            (other for other in self.shared if other[0] == key[0] and other[1] and other[2]),
            key=lambda other: sum(
                abs(own - code) for own, code in zip(key[1:], other[1:], strict=True) if own
            ),
            default=key,
        )

    def bounds_of(self, key: BinKey) -> tuple[Bounds, Bounds, Bounds]:
        """Return the least and the most of each number."""
        flops, moved, sent = (rows[code] for rows, code in zip(self.bounds, key[1:], strict=True))
        return flops, moved, sent


class JobCandidates:
    """The candidates of one job's nodes; nodes with the same operator and bins have the same."""

    def __init__(self, index: CandidateIndex, rng: np.random.Generator) -> None:
        self._index = index
        self._rng = rng
        self._made: dict[tuple[BinKey, int, int], Candidates] = {}
        self._sizes: list[int] = []

    def of(self, key: BinKey, dtype: str) -> Candidates:
        """Return the candidates of a node with this operator, these bins and this data type."""
        found = self._index.shared.get(self._index.whole(key))
        if found is not None:
            return found
        return self._new(key, dtype, widened=0)

    def allowed(self, key: BinKey, dtype: str, allows: Allows) -> Candidates:
        """Return those candidates of a node that it may have.

        Where it may have none, the bounds of its bins are widened step by step until there is one;
        if there is none in the end, all are returned.
        """
        found = kept = self.of(key, dtype)
        for widened in range(_MOST_WIDENED):
            kept = kept.those(allows(kept.costs))
            if kept.costs:
                return kept
            kept = self._new(key, dtype, widened=widened)
        return kept.those(allows(kept.costs)) if any(allows(kept.costs)) else found

    def _new(self, key: BinKey, dtype: str, widened: int) -> Candidates:
        """Return candidates that no job has to share, the same ones for every node of the job."""
        element = element_bytes(dtype)
        made = self._made.get((key, element, widened))
        if made is None:
            costs = self._new_costs(key, element, widened)
            made = Candidates(costs, [0.0] * len(costs))
            self._made[key, element, widened] = made
        return made

    def _new_costs(self, key: BinKey, element: int, widened: int) -> list[Cost]:
        """Return costs that follow from shapes or from a rule of the operator."""
        by = 2.0 ** (widened / 4)
        flops, moved, sent = ((low / by, high * by) for low, high in self._index.bounds_of(key))
        if key[0] in self._index.table.products and flops[1] and moved[1] and not sent[1]:
            found = product_costs(PRODUCTS[key[0]], element, flops, moved, self._rng)
            return [(operations, size, 0) for operations, size in found]
        if not moved[1]:
            return [(_within(flops, 2, self._rng), 0, _within(sent, element, self._rng))]
        entry = self._index.table.operators.get(key[0])
        even = 2 if key[0] in CONVOLUTIONS else 1
        for rule in self._usable(entry.rules if entry else (), element, even):
            size = self._size(rule, sent if sent[1] else flops, moved, reused=not widened)
            if size:
                self._sizes = [size, *self._sizes[: _USED_SIZES - 1]]
                if sent[1]:
                    return [(_within(flops, even, self._rng), rule.bytes_of(size), size)]
                return [(size, rule.bytes_of(size), 0)]
        moves = max(_within(moved, element, self._rng), element)
        return [(_within(flops, 2, self._rng), moves, _within(sent, element, self._rng))]

    def _usable(self, rules: Sequence[ByteRule], element: int, even: int) -> Sequence[ByteRule]:
        """Return rules for whole elements, those first that allow most of the job's sizes."""
        coarse = [_coarser(rule, element, even) for rule in rules if rule.plus % element == 0]
        return sorted(coarse, key=lambda rule: -sum(size % rule.per == 0 for size in self._sizes))

    def _size(self, rule: ByteRule, size: Bounds, moved: Bounds, *, reused: bool) -> int:
        """Return a size within bounds from which bytes within bounds follow; 0 if there is none.

        Args:
            rule: How bytes follow.
            size: Least and most.
            moved: Least and most bytes.
            reused: Whether a size that the job already has comes first.
        """
        if not size[1]:
            return 0
        low = math.ceil(max(max(size[0], 1) / rule.per, (moved[0] - rule.plus) / rule.times))
        high = math.floor(min(size[1] / rule.per, (moved[1] - rule.plus) / rule.times))
        if low > high:
            return 0
        for used in self._sizes if reused else ():
            if used % rule.per == 0 and low <= used // rule.per <= high:
                return used
        return _round_between(low, high, self._rng) * rule.per


def _coarser(rule: ByteRule, element: int, even: int) -> ByteRule:
    """Return the rule for those sizes alone of which the bytes are whole elements."""
    many = math.lcm(element // math.gcd(rule.times, element), even // math.gcd(rule.per, even))
    return ByteRule(rule.times * many, rule.per * many, rule.plus)


def _within(bounds: Bounds, unit: int, rng: np.random.Generator) -> int:
    """Return a multiple of ``unit`` within bounds, the nearest one if there is none; 0 for none."""
    if not bounds[1]:
        return 0
    low, high = math.ceil(bounds[0] / unit), math.floor(bounds[1] / unit)
    return max(_round_between(low, high, rng) if low <= high else low, 1) * unit


def _round_between(low: int, high: int, rng: np.random.Generator) -> int:
    """Return a number between two, evenly in logarithms, with as many factors of two as fit."""
    drawn = round(max(low, 1) * (max(high, 1) / max(low, 1)) ** rng.random())
    step = 1 << max((high - low + 1).bit_length() - 3, 0)
    found = drawn // step * step
    return min(max(found if found >= low else found + step, low), high)
