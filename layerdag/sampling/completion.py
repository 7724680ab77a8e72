"""Completion: samples that begin or end with given layers.

Graphs that have given layers of another, and the conditions they fit.

Shape letters: C numeric conditions, E edges, M categorical conditions, N nodes, O options.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from layerdag.codec.folding import job_graph, rank_classes
from layerdag.dag.dag import DAG, DAGBatch
from layerdag.dag.partial import Gap, Prefix, require_layers
from layerdag.errors import DataError, VocabularyError
from layerdag.graph.attributed_graph import (
    SIZE_CONDITIONS,
    AttributedGraph,
    Condition,
)
from layerdag.models.base import DAGModel
from layerdag.runtime.rng import numpy_generator
from layerdag.sampling.generated import GeneratedGraph
from layerdag.schema.schema import GraphSchema, complete_conditions
from layerdag.traces.trace import Workload

COMPARED = 64
"""Requests drawn, among which each completed graph's is chosen by the likelihood of the prefix."""


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


@dataclass(frozen=True, eq=False)
class GivenLayers:
    """The first layers of a graph, or the first and the last ones, in the words of a checkpoint.

    Attributes:
        schema: Of the checkpoint.
        conditions: What is known of the whole graph; without its size if all layers are given.
        numbers: Numbers of the given nodes.
        prefix: The first given nodes in codes.
        gap: What is drawn anew, if last layers are given, too.
    """

    schema: GraphSchema
    conditions: Mapping[str, Condition]
    numbers: GivenNumbers
    prefix: Prefix
    gap: Gap | None = None

    @classmethod
    def from_graph(
        cls,
        given: Workload | AttributedGraph,
        num_layers: int | None,
        schema: GraphSchema,
        suffix_layers: int | None = None,
    ) -> "GivenLayers":
        """Encode the first layers of a job's traces or of a graph; half of them by default.

        Args:
            given: The traces, or the graph.
            num_layers: How many first layers are kept.
            schema: Of the checkpoint.
            suffix_layers: How many last layers are kept; None is none.

        Raises:
            DataError: If the checkpoint samples another kind of graph, a node lacks an attribute,
                or the ranks of the job contradict each other.
            VocabularyError: If the checkpoint has no word for a value of a node.
            UsageError: If the graph does not have so many layers.
        """
        if isinstance(given, Workload) and schema.kind != "trace":
            raise DataError(
                f"{given.source}: is a job's traces, and the checkpoint samples flow graphs; give "
                "it a prefix of its kind, or another checkpoint."
            )
        graph = _job(given) if isinstance(given, Workload) else given
        layers = int(graph.layer_N.max(initial=-1)) + 1
        wanted = max(1, layers // 2) if num_layers is None else num_layers
        require_layers(wanted, layers)
        row_N = np.argsort(graph.layer_N, kind="stable")
        if suffix_layers is not None:
            return cls._around_gap(_induced(graph, row_N), wanted, suffix_layers, schema)
        row_N = row_N[: int((graph.layer_N < wanted).sum())]
        first = _induced(graph, row_N)
        dag = _encoded(first, schema, "Give fewer layers, or take")
        degree_N = np.bincount(graph.edge_index_2E[0], minlength=graph.num_nodes)
        sizes = SIZE_CONDITIONS if wanted == layers else ()
        conditions = {name: v for name, v in graph.conditions.items() if name not in sizes}
        prefix = Prefix(dag, tuple(degree_N[row_N].tolist()))
        return cls(schema, conditions, GivenNumbers.of_first(first.numbers), prefix)

    @classmethod
    def _around_gap(
        cls, graph: AttributedGraph, first: int, last: int, schema: GraphSchema
    ) -> "GivenLayers":
        gap = Gap.from_dag(_encoded(graph, schema, "Take"), first, last)
        numbers = GivenNumbers(
            {name: value_N[: gap.start] for name, value_N in graph.numbers.items()},
            {name: value_N[gap.end :] for name, value_N in graph.numbers.items()},
        )
        return cls(schema, graph.conditions, numbers, gap.prefix, gap)

    def kept_in(self, graph: GeneratedGraph) -> GeneratedGraph:
        """Return a completed graph whose given nodes have their own numbers, in no bins."""
        return graph.with_numbers(self.numbers.in_place_of(graph.graph.numbers))

    def likely_conditions(
        self, model: DAGModel, wanted: Mapping[str, Condition], seeds: Sequence[int]
    ) -> list[dict[str, Condition]]:
        """Return full conditions for each seed, drawn from p(conditions | given graph).

        ``COMPARED`` draws from what training graphs were like are weighted by the likelihood of
        the prefix under each (importance resampling), or of the whole graph around a gap. A graph
        still depends on its own seed alone.

        Raises:
            VocabularyError: If a wanted condition or category is unknown.
        """
        options = complete_conditions(self.schema, self.known(wanted), range(COMPARED))
        log_weight_O = np.array([self._log_likelihood(model, row) for row in options])
        weight_O = np.exp(log_weight_O - log_weight_O.max())
        reach_O = np.cumsum(weight_O / weight_O.sum())
        uniforms = [numpy_generator(seed, "conditions of a prefix").random() for seed in seeds]
        return [options[min(int(np.searchsorted(reach_O, u)), COMPARED - 1)] for u in uniforms]

    def known(self, wanted: Mapping[str, Condition]) -> dict[str, Condition]:
        """Return wanted conditions and those that the graph states in words of the checkpoint."""
        stated: dict[str, Condition] = {}
        for name, value in self.conditions.items():
            try:
                self.schema.encode_conditions([{name: value}])
            except DataError:
                continue
            stated[name] = value
        return {**stated, **wanted}

    def _log_likelihood(self, model: DAGModel, row: Mapping[str, Condition]) -> float:
        """Return log p(prefix | conditions), nats; around a gap, log p(graph | conditions)."""
        encoded = self.schema.encode_conditions([row])
        dag = self.prefix.dag if self.gap is None else self.gap.dag
        batch = DAGBatch.from_dags([dag], *encoded)
        return model.log_prefix_likelihood(batch.to(next(model.parameters()).device))


def _encoded(graph: AttributedGraph, schema: GraphSchema, advice: str) -> DAG:
    """Return a graph in the codes of a checkpoint.

    Raises:
        VocabularyError: If it has no word for a value; ends with the advice.
    """
    try:
        return schema.encode(graph)
    except VocabularyError as error:
        raise VocabularyError(
            f"{graph.name}: the checkpoint has no word for a given node: {error} {advice} a "
            "checkpoint that was trained on such graphs."
        ) from error


def _induced(graph: AttributedGraph, row_N: np.ndarray) -> AttributedGraph:
    position_N = np.full(graph.num_nodes, -1)
    position_N[row_N] = np.arange(len(row_N))
    edges_2E = position_N[graph.edge_index_2E]
    inside_E = (edges_2E >= 0).all(axis=0)
    return replace(
        graph,
        categories={n: [column[row] for row in row_N] for n, column in graph.categories.items()},
        numbers={name: value_N[row_N] for name, value_N in graph.numbers.items()},
        edge_index_2E=edges_2E[:, inside_E],
        edge_type_E=graph.edge_type_E[inside_E],
    )


def _job(workload: Workload) -> AttributedGraph:
    return job_graph(workload.source, rank_classes(workload), workload.groups, {})
