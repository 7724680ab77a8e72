"""How often the blocks of samples are to repeat: what the model is told, and what is recorded."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from layerdag._runtime import numpy_generator
from layerdag.codec import NUM_NODES
from layerdag.codec.blocks import BLOCK, OUTSIDE, REPEATS
from layerdag.datasets.schema import LABEL, CategoryAttribute, GraphSchema, complete_conditions
from layerdag.graph import Condition, GraphStatistics
from layerdag.sampling._generated import GeneratedGraph

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
    if not schema.rolls_blocks or REPEATS not in wanted or schema.laws.determines(REPEATS):
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
