"""Costs and durations of sampled nodes that fit together.

Shapes of matrix products within bounds of FLOPs and bytes.

Shapes are looked up in a grid of sizes as programs have them: one to seven times a power of two.

Which costs a node can have, given its operator and the bins that the model drew.

1. Those that several training jobs share, in these bins.
2. For a matrix product, those of shapes in these bins, or else the nearest shapes. One of which
   FLOPs or bytes were not drawn, which no program has, gets those of the nearest shared ones.
3. A size in its bin from which bytes in theirs follow by a rule of the operator; first a size that
   the job already has, so that an optimizer's operators agree on its parameters.
4. Whole elements in the bins.

One cost for each node of a sampled job, such that the costs of neighbors go together.

The model draws for each node bins of its numbers, which are right as often as they are in real jobs
but know nothing of each other. Within them, nodes are given costs that programs have: first
in topological order, each node's cost given those of its parents, then once more given those
of parents and children (Gibbs sampling). How sizes change along a data dependency, by the
operators at its ends, was counted in training.

Where nothing keeps nodes from it, what follows from other numbers of the job is then computed, see
``computed_numbers.py``.

Numbers of nodes that are given, not sampled: those of first and of last nodes.

Shape letters: N nodes.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial

import numpy as np

from layerdag.dag.dag import DAG
from layerdag.graph.attributed_graph import LABEL, AttributedGraph
from layerdag.graph.rolled_blocks import copies_of
from layerdag.runtime.rng import numpy_generator
from layerdag.sampling.computed_numbers import Computed, ComputedNumbers
from layerdag.sampling.job_sizes import element_bytes
from layerdag.schema.attributes import NumericAttribute
from layerdag.schema.costs import (
    COST_NAMES,
    PRODUCTS,
    ByteRule,
    Cost,
    CostTable,
    ProductForm,
    cost_columns,
    data_edges,
)
from layerdag.schema.durations import Durations, costs_and_ranks, ranks_of
from layerdag.schema.schema import GraphSchema

_LARGEST = 1 << 13
_BATCHES = 1 << np.arange(11)
_MOST_FOUND = 4
_ODD_WEIGHT = 1 / 16

Bounds = tuple[float, float]


def product_costs(
    form: ProductForm, element: int, flops: Bounds, moved: Bounds, rng: np.random.Generator
) -> list[tuple[int, int]]:
    """Return FLOPs and bytes of a few shapes within bounds, or of the nearest one outside.

    Args:
        form: The operator's rule.
        element: Bytes of an element.
        flops: Least and most.
        moved: Least and most bytes.
        rng: Chooses among many shapes; each size that is no power of two makes one rarer.
    """
    flops_S, elements_S, odd_S = _grid(form)
    first, last = np.searchsorted(flops_S, [flops[0], np.nextafter(flops[1], np.inf)])
    bytes_S = elements_S[first:last] * element
    fits = first + np.flatnonzero((bytes_S >= moved[0]) & (bytes_S <= moved[1]))
    if not fits.size:
        fits = _nearest(flops_S, elements_S * element, flops, moved)
    weight = _ODD_WEIGHT ** odd_S[fits].astype(np.float64)
    chosen = rng.choice(
        fits, min(_MOST_FOUND, fits.size), replace=False, p=weight / weight.sum()
    ).tolist()
    return [(int(flops_S[index]), int(elements_S[index]) * element) for index in chosen]


def _nearest(flops_S: np.ndarray, bytes_S: np.ndarray, flops: Bounds, moved: Bounds) -> np.ndarray:
    """Return the shape with the least distance to the bounds, in logarithms."""
    distance_S = sum(
        np.abs(np.log(value_S / np.clip(value_S, max(low, 1), max(high, 1))))
        for value_S, (low, high) in ((flops_S, flops), (bytes_S, moved))
    )
    return np.array([int(np.argmin(distance_S))])


@cache
def _grid(form: ProductForm) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    factors = np.array([4, 6] if form.batched else [4, 5, 6, 7])
    sizes = np.unique(np.concatenate([[1, 2, 3], *(factors << k for k in range(12))]))
    sizes = sizes[sizes <= (_LARGEST >> 2 if form.batched else _LARGEST)]
    batches = _BATCHES if form.batched else _BATCHES[:1]
    b_S, m_S, k_S, n_S = (axis.ravel() for axis in np.meshgrid(batches, sizes, sizes, sizes))
    flops_S, elements_S = form.cost(b_S, m_S, k_S, n_S)
    odd_S = sum((size_S & (size_S - 1) > 0).astype(np.int8) for size_S in (m_S, k_S, n_S))
    order_S = np.argsort(flops_S, kind="stable")
    return flops_S[order_S], elements_S[order_S], odd_S[order_S]


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
    def from_table(
        cls, table: CostTable, attributes: Mapping[str, NumericAttribute]
    ) -> "CandidateIndex":
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
    many = math.lcm(element // math.gcd(rule.times, element), even // math.gcd(rule.per, even))
    return ByteRule(rule.times * many, rule.per * many, rule.plus)


def _within(bounds: Bounds, unit: int, rng: np.random.Generator) -> int:
    """Return a multiple of ``unit`` within bounds, the nearest one if there is none; 0 for none."""
    if not bounds[1]:
        return 0
    low, high = math.ceil(bounds[0] / unit), math.floor(bounds[1] / unit)
    return max(_round_between(low, high, rng) if low <= high else low, 1) * unit


def _round_between(low: int, high: int, rng: np.random.Generator) -> int:
    drawn = round(max(low, 1) * (max(high, 1) / max(low, 1)) ** rng.random())
    step = 1 << max((high - low + 1).bit_length() - 3, 0)
    found = drawn // step * step
    return min(max(found if found >= low else found + step, low), high)


UNSEEN = 0.003
"""Weight of a change of sizes that was not counted, beside the shares of those that were."""
_SWEEPS = 2

NodeAllows = Callable[[int, Sequence[Cost]], Sequence[bool]]
"""Which of these costs a node may have, given its row."""
Neighbors = Sequence[Sequence[tuple[int, Mapping[float, float]]]]
"""For each node, its neighbors on one side with the known changes of sizes on the way."""


@dataclass(frozen=True)
class CostAssigner:
    """Gives nodes of sampled jobs costs that programs have.

    Attributes:
        table: Costs of training jobs.
        attributes: The schema's numbers by name, ``COST_NAMES`` among them.
    """

    table: CostTable
    attributes: Mapping[str, NumericAttribute]

    @cached_property
    def _index(self) -> CandidateIndex:
        return CandidateIndex.from_table(self.table, self.attributes)

    def assigned(
        self,
        graph: AttributedGraph,
        codes: Mapping[str, np.ndarray],
        rng: np.random.Generator,
        kept: Sequence[int] = (),
        allows: NodeAllows | None = None,
    ) -> dict[str, np.ndarray]:
        """Return ``COST_NAMES`` of all nodes, NaN for absent.

        Args:
            graph: Operators and edges.
            codes: Drawn bins of each number.
            rng: Of this job.
            kept: Nodes that keep their costs.
            allows: Which costs nodes may have; all by default.
        """
        options = self._options(graph, codes, rng, allows)
        for node in kept:
            options[node] = _kept(graph, node)
        parents, children = self._neighbors(graph)
        chosen = [0] * graph.num_nodes
        order = np.argsort(graph.layer_N, kind="stable").tolist()
        nothing: Neighbors = [()] * graph.num_nodes
        for sweep in range(_SWEEPS):
            below = children if sweep else nothing
            for node, draw in zip(order, rng.random(graph.num_nodes).tolist(), strict=True):
                if len(options[node].costs) > 1:
                    weights = _weights(options, chosen, node, parents[node], below[node])
                    chosen[node] = _drawn(weights, draw)
        cost_NC = np.array(
            [option.costs[index] for option, index in zip(options, chosen, strict=True)],
            dtype=np.float64,
        ).reshape(-1, len(COST_NAMES))
        cost_NC[cost_NC == 0] = np.nan
        return dict(zip(COST_NAMES, cost_NC.T, strict=True))

    def _options(
        self,
        graph: AttributedGraph,
        codes: Mapping[str, np.ndarray],
        rng: np.random.Generator,
        allows: NodeAllows | None,
    ) -> list[Candidates]:
        job = JobCandidates(self._index, rng)
        operators = graph.categories["op"]
        dtypes = graph.categories.get("dtype", [""] * graph.num_nodes)
        columns = [codes[name].tolist() for name in COST_NAMES]
        keys = list(zip(operators, *columns, strict=True))
        if allows is None:
            return [job.of(key, dtype) for key, dtype in zip(keys, dtypes, strict=True)]
        return [
            job.allowed(key, dtype, partial(allows, row))
            for row, (key, dtype) in enumerate(zip(keys, dtypes, strict=True))
        ]

    def _neighbors(self, graph: AttributedGraph) -> tuple[Neighbors, Neighbors]:
        operators, steps = graph.categories["op"], self.table.step_shares
        parents: list[list[tuple[int, Mapping[float, float]]]] = [
            [] for _ in range(graph.num_nodes)
        ]
        children: list[list[tuple[int, Mapping[float, float]]]] = [
            [] for _ in range(graph.num_nodes)
        ]
        for source, target in graph.edge_index_2E[:, data_edges(graph)].T.tolist():
            known = steps.get((operators[source], operators[target]))
            if known is not None:
                parents[target].append((source, known))
                children[source].append((target, known))
        return parents, children


def _kept(graph: AttributedGraph, node: int) -> Candidates:
    flops, moved, sent = (int(np.nan_to_num(graph.numbers[name][node])) for name in COST_NAMES)
    return Candidates([(flops, moved, sent)], [0.0])


def _weights(
    options: Sequence[Candidates],
    chosen: Sequence[int],
    node: int,
    parents: Sequence[tuple[int, Mapping[float, float]]],
    children: Sequence[tuple[int, Mapping[float, float]]],
) -> list[float]:
    mine = options[node]
    logs = list(mine.log_weights)
    for other, steps in parents:
        size = options[other].sizes[chosen[other]]
        if size:
            for index, own in enumerate(mine.sizes):
                logs[index] += math.log(UNSEEN + steps.get(own / size, 0.0))
    for other, steps in children:
        size = options[other].sizes[chosen[other]]
        if size:
            for index, own in enumerate(mine.sizes):
                logs[index] += math.log(UNSEEN + (steps.get(size / own, 0.0) if own else 0.0))
    most = max(logs)
    return [math.exp(log - most) for log in logs]


def _drawn(weights: Sequence[float], draw: float) -> int:
    """Return a place with the chance of its weight; ``draw`` is uniform in [0, 1)."""
    left = draw * sum(weights)
    for index, weight in enumerate(weights):
        left -= weight
        if left < 0:
            return index
    return len(weights) - 1


def assigned_durations(
    times: CostTable, graph: AttributedGraph, kept: Sequence[int], rng: np.random.Generator
) -> np.ndarray:
    """Return durations of all nodes in ns, NaN where none was drawn.

    Each is drawn for the node's operator and costs, where training jobs tell, and else the one
    that the model drew. Where the sum is not one that jobs with this step time and number of
    nodes have, all are multiplied by the factor that makes it one.

    Args:
        times: How long nodes of training jobs take.
        graph: With the costs that its nodes were given.
        kept: Rows of the nodes that keep their durations.
        rng: Of this job.
    """
    drawn_N = graph.numbers["duration"]
    found_N = (
        drawn_N if times.durations is None else _draw_durations(times.durations, graph, kept, rng)
    )
    if times.time is None:
        return found_N
    whole_N = np.repeat(found_N, copies_of(graph))
    return found_N * times.time.factor(whole_N, graph.conditions.get(LABEL))


def _draw_durations(
    table: Durations, graph: AttributedGraph, kept: Sequence[int], rng: np.random.Generator
) -> np.ndarray:
    """Return durations drawn for operators and costs; a job that goes on keeps its speed."""
    operators, drawn_N = graph.categories["op"], graph.numbers["duration"]
    cost_N4 = costs_and_ranks(cost_columns(graph.numbers, graph.num_nodes), ranks_of(graph))
    usual_N = table.usual(operators, cost_N4)
    draw_N = rng.random(graph.num_nodes)
    label = graph.conditions.get(LABEL)
    speed = table.job_factor(usual_N + np.log(copies_of(graph)), label, float(rng.random()))
    given_N = np.log(drawn_N[kept]) - usual_N[kept]
    if np.isfinite(given_N).any():
        speed = float(np.median(given_N[np.isfinite(given_N)]))
    new_N = np.exp(usual_N + table.node_factors(operators, draw_N) + speed)
    return np.where(np.isfinite(usual_N) & np.isfinite(drawn_N), new_N, drawn_N)


@dataclass(frozen=True, eq=False)
class GivenNumbers:
    """The numbers of the given nodes of a sample.

    Attributes:
        first: Values of each numeric attribute of the first nodes, float64, NaN for absent.
        last: The same of the last nodes, which may be none.
    """

    first: Mapping[str, np.ndarray]
    last: Mapping[str, np.ndarray]

    @classmethod
    def of_first(cls, numbers: Mapping[str, np.ndarray]) -> "GivenNumbers":
        """Return the numbers of the first nodes, where no last ones are given."""
        return cls(numbers, {name: value_N[:0] for name, value_N in numbers.items()})

    def in_place_of(self, drawn: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the numbers of all nodes, of which ``drawn`` has too many."""
        return {
            name: np.concatenate(
                [value_N, drawn[name][len(value_N) : len(drawn[name]) - len(self.last[name])],
                 self.last[name]]
            )
            for name, value_N in self.first.items()
        }  # fmt: skip

    def rows(self, num_nodes: int) -> list[int]:
        """Return the places of the given nodes among all of a sample."""
        first, last = (len(next(iter(part.values()), ())) for part in (self.first, self.last))
        return [*range(first), *range(num_nodes - last, num_nodes)]


class NumberAssigner:
    """Gives the nodes of sampled jobs numbers that go together.

    Costs take the place of those drawn, in the same bins wherever a program can have them (see
    ``CostAssigner``), and durations that of nodes of their operators and costs (see
    ``assigned_durations``).
    """

    def __init__(self, schema: GraphSchema) -> None:
        """Use the costs of a schema, which must have some."""
        self._schema = schema

    @cached_property
    def _numbers(self) -> dict[str, NumericAttribute]:
        return {a.name: a for a in self._schema.attributes if isinstance(a, NumericAttribute)}

    @cached_property
    def _costs(self) -> CostAssigner:
        return CostAssigner(self._schema.costs, self._numbers)

    def assigned(
        self,
        dag: DAG,
        seed: int,
        given: GivenNumbers | None = None,
        allows: NodeAllows | None = None,
    ) -> Computed:
        """Return the costs, and durations if there are any, of all nodes; NaN for absent.

        Where no nodes are given, all costs are allowed and no block stands for several, those that
        follow from others are computed, see ``ComputedNumbers``.

        Args:
            dag: Codes, and the conditions it was asked for with.
            seed: Of the sample.
            given: All numbers of nodes that are to be kept.
            allows: Which costs nodes may have, by row; all by default.
        """
        column = {attribute.name: i for i, attribute in enumerate(self._schema.attributes)}
        codes = {name: dag.x_NA[:, column[name]].numpy() for name in COST_NAMES}
        graph = self._schema.decode(dag)
        kept: list[int] = []
        if given is not None:
            kept = given.rows(dag.num_nodes)
            graph = replace(graph, numbers=given.in_place_of(graph.numbers))
        rng = numpy_generator(seed, "costs of nodes")
        found = Computed(self._costs.assigned(graph, codes, rng, kept, allows), (), {})
        times, duration = self._schema.costs, self._numbers.get("duration")
        graph = replace(graph, numbers={**graph.numbers, **found.numbers})
        if not kept and allows is None and not self._schema.rolls_blocks:
            found = ComputedNumbers(graph, times.step_shares).computed()
            graph = replace(graph, numbers={**graph.numbers, **found.numbers})
        if duration is None or not duration.bins or not (times.time or times.durations):
            return found
        assigned_N = assigned_durations(times, graph, kept, numpy_generator(seed, "durations"))
        least, most = duration.bins[0][0], duration.bins[-1][-1]
        duration_N = np.clip(np.rint(assigned_N), least, most)
        duration_N[kept] = graph.numbers["duration"][kept]
        return replace(found, numbers={**found.numbers, "duration": duration_N})
