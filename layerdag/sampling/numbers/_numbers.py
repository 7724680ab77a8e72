"""The numbers of a sampled job: costs that programs have, and durations that go with them."""

from dataclasses import replace
from functools import cached_property

import numpy as np

from layerdag._runtime import numpy_generator
from layerdag.datasets.schema import GraphSchema, NumericAttribute
from layerdag.datasets.schema.costs import COST_NAMES
from layerdag.graph import DAG
from layerdag.sampling.numbers._assign import CostAssigner, NodeAllows
from layerdag.sampling.numbers._durations import assigned_durations
from layerdag.sampling.numbers._given import GivenNumbers


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
        """Numeric attributes by name."""
        return {a.name: a for a in self._schema.attributes if isinstance(a, NumericAttribute)}

    @cached_property
    def _costs(self) -> CostAssigner:
        """What assigns costs."""
        return CostAssigner(self._schema.costs, self._numbers)

    def numbers(
        self,
        dag: DAG,
        seed: int,
        given: GivenNumbers | None = None,
        allows: NodeAllows | None = None,
    ) -> dict[str, np.ndarray]:
        """Return the costs, and durations if there are any, of all nodes; NaN for absent.

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
        found = self._costs.assigned(graph, codes, rng, kept, allows)
        times, duration = self._schema.costs, self._numbers.get("duration")
        if duration is None or not duration.bins or not (times.time or times.durations):
            return found
        graph = replace(graph, numbers={**graph.numbers, **found})
        assigned_N = assigned_durations(times, graph, kept, numpy_generator(seed, "durations"))
        least, most = duration.bins[0][0], duration.bins[-1][-1]
        duration_N = np.clip(np.rint(assigned_N), least, most)
        duration_N[kept] = graph.numbers["duration"][kept]
        return {**found, "duration": duration_N}
