"""One cost for each node of a sampled job, such that the costs of neighbors go together.

The model draws for each node bins of its numbers, which are right as often as they are in real jobs
but know nothing of each other. Within them, nodes are given costs that programs have: first
in topological order, each node's cost given those of its parents, then once more given those
of parents and children (Gibbs sampling). How sizes change along a data dependency, by the
operators at its ends, was counted in training.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from layerdag.codec import AttributedGraph
from layerdag.datasets.schema import NumericAttribute
from layerdag.datasets.schema.costs import COST_NAMES, Cost, CostTable, data_edges
from layerdag.sampling.numbers._candidates import CandidateIndex, Candidates, JobCandidates

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
        """Shared costs by operator and bins."""
        return CandidateIndex.of(self.table, self.attributes)

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
        """Return the candidates of each node."""
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
        """Return parents and children along data dependencies of which changes are known."""
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
    """Return the cost of a node as its only candidate."""
    flops, moved, sent = (int(np.nan_to_num(graph.numbers[name][node])) for name in COST_NAMES)
    return Candidates([(flops, moved, sent)], [0.0])


def _weights(
    options: Sequence[Candidates],
    chosen: Sequence[int],
    node: int,
    parents: Sequence[tuple[int, Mapping[float, float]]],
    children: Sequence[tuple[int, Mapping[float, float]]],
) -> list[float]:
    """Return how likely each candidate of a node is, given what its neighbors have."""
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
