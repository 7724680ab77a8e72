"""Completion: samples that begin or end with given layers, or repeat given blocks.

Graphs that have given layers of another, and the conditions they fit.

Shape letters: C numeric conditions, E edges, M categorical conditions, N nodes, O options.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from layerdag.codec.folding import job_graph, rank_classes
from layerdag.dag.dag import DAG, DAGBatch
from layerdag.dag.partial import Gap, Prefix, require_layers
from layerdag.dag.statistics import GraphStatistics
from layerdag.errors import DataError, VocabularyError
from layerdag.graph.attributed_graph import (
    LABEL,
    NUM_NODES,
    SIZE_CONDITIONS,
    AttributedGraph,
    Condition,
)
from layerdag.graph.rolled_blocks import BLOCK, OUTSIDE, REPEATS
from layerdag.models.base import DAGModel
from layerdag.runtime.rng import numpy_generator
from layerdag.sampling.generated import GeneratedGraph
from layerdag.schema.attributes import CategoryAttribute
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


_DRAWS = 32
_AGAIN = 8


def conditions_for_model(
    schema: GraphSchema, wanted: Mapping[str, Condition], seeds: Sequence[int]
) -> list[dict[str, Condition]]:
    """Return full conditions for each seed, with a number of repeats that training graphs have.

    A model knows few depths, other ones for each family. Of the numbers that are drawn for the
    other conditions, the wanted one is taken if it is among them, else the first that has blocks:
    the blocks of the sample are then copied as often as is wanted (``with_copies``).

    Raises:
        VocabularyError: If a wanted condition is unknown to the schema.
    """
    if not schema.rolls_blocks or REPEATS not in wanted:
        return complete_conditions(schema, wanted, seeds)
    schema.encode_conditions([wanted])
    others = {name: value for name, value in wanted.items() if name != REPEATS}
    found = []
    for seed, row in zip(seeds, complete_conditions(schema, others, seeds), strict=True):
        further = numpy_generator(seed, "repeats").integers(1 << 62, size=_DRAWS).tolist()
        rows = [row, *complete_conditions(schema, others, further)]
        deep = [drawn for drawn in rows if _repeats(drawn) > 1] or [{**row, REPEATS: 2.0}]
        equal = [drawn for drawn in rows if _repeats(drawn) == _repeats(wanted)]
        found.append((equal or (deep if _repeats(wanted) > 1 else rows))[0])
    return found


def with_blocks(
    graph: GeneratedGraph,
    wanted: Mapping[str, Condition],
    again: Callable[[int], GeneratedGraph],
) -> GeneratedGraph:
    """Return a sample that has blocks, if copies are wanted.

    Args:
        graph: The sample.
        wanted: Wanted conditions.
        again: Samples with another seed. It is called a few times with seeds that follow from that
            of the sample, which the result keeps.
    """
    if not graph.schema.rolls_blocks or _repeats(wanted) < 2:
        return graph
    found = graph
    for seed in numpy_generator(graph.seed, "blocks").integers(1 << 62, size=_AGAIN).tolist():
        if set(graph.schema.decode(found.dag).categories[BLOCK]) != {OUTSIDE}:
            break
        found = replace(again(seed), name=graph.name, seed=graph.seed)
    return found


def with_copies(graph: GeneratedGraph, wanted: Mapping[str, Condition]) -> GeneratedGraph:
    """Return a sample whose blocks repeat as often as is wanted.

    Its label is left out if the model was told another number: nobody knows it.
    """
    if not graph.schema.rolls_blocks or REPEATS not in wanted:
        return graph
    conditions = dict(graph.dag.conditions)
    if _repeats(conditions) != _repeats(wanted):
        conditions.pop(LABEL, None)
    conditions[REPEATS] = wanted[REPEATS]
    return replace(graph, dag=graph.dag.with_conditions(conditions))


def unrolled_sizes(
    schema: GraphSchema,
    statistics: GraphStatistics,
    rows: Sequence[Mapping[str, Condition]],
    wanted: Mapping[str, Condition],
) -> list[Mapping[str, Condition]]:
    """Return conditions with about as many nodes as the unrolled graphs have.

    The fraction of the nodes inside blocks is that of all training graphs.
    """
    if not schema.rolls_blocks:
        return [*rows]
    column = [attribute.name for attribute in schema.attributes].index(BLOCK)
    attribute, counts = schema.attributes[column], statistics.attributes[column]
    assert isinstance(attribute, CategoryAttribute)
    outside = sum(counts[code] for code in attribute.encode([OUTSIDE]).tolist())
    inside = 1 - outside / max(sum(counts), 1)
    return [
        {**row, NUM_NODES: float(row[NUM_NODES]) * (1 + inside * (_repeats({**row, **wanted}) - 1))}
        if NUM_NODES in row
        else row
        for row in rows
    ]


def _repeats(conditions: Mapping[str, Condition]) -> int:
    """Return a number of repeats, 1 where it is open."""
    return max(1, round(float(conditions.get(REPEATS, 1.0))))
