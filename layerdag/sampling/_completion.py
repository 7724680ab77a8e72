"""Graphs that begin with the given first layers of another, and the conditions they fit.

Shape letters: C numeric conditions, M categorical conditions, N nodes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from layerdag._runtime import numpy_generator
from layerdag.codec import SIZE_CONDITIONS, AttributedGraph, job_graph, rank_classes
from layerdag.datasets.schema import GraphSchema, complete_conditions
from layerdag.errors import DataError
from layerdag.graph import DAG, Condition, DAGBatch
from layerdag.models import DAGModel, Prefix
from layerdag.sampling._generated import GeneratedGraph
from layerdag.traces import Workload

COMPARED = 64
"""Requests drawn, among which each completed graph's is chosen by the likelihood of the prefix."""


@dataclass(frozen=True, eq=False)
class GivenLayers:
    """The first layers of a graph in the words and numbers of a checkpoint.

    Attributes:
        schema: Of the checkpoint.
        graph: The whole graph.
        prefix: Its first layers in codes.
    """

    schema: GraphSchema
    graph: AttributedGraph
    prefix: Prefix

    @classmethod
    def of(
        cls, given: Workload | AttributedGraph, num_layers: int | None, schema: GraphSchema
    ) -> "GivenLayers":
        """Encode the first layers of a job's traces or of a graph; half of them by default.

        Raises:
            DataError: If the checkpoint samples another kind of graph, or the ranks of the job
                contradict each other.
            VocabularyError: If a value is outside a closed vocabulary.
            UsageError: If the graph does not have so many layers.
        """
        if isinstance(given, Workload) != (schema.kind == "trace"):
            wanted = "execution traces" if schema.kind == "trace" else "flow graphs"
            found = "traces" if isinstance(given, Workload) else "a flow graph"
            raise DataError(
                f"The checkpoint samples {wanted}, and the prefix is {found}; give it one of its "
                "kind, or another checkpoint."
            )
        graph = _job(given) if isinstance(given, Workload) else given
        dag = schema.encode(graph)
        half = max(1, dag.num_layers // 2)
        return cls(schema, graph, Prefix(dag, half if num_layers is None else num_layers))

    @cached_property
    def numbers(self) -> dict[str, np.ndarray]:
        """Values of the numeric attributes of the given nodes, float64, NaN for absent."""
        first_N = np.argsort(self.graph.layer_N, kind="stable")[: self.prefix.num_nodes]
        return {name: value_N[first_N] for name, value_N in self.graph.numbers.items()}

    def kept_in(self, graph: GeneratedGraph) -> GeneratedGraph:
        """Return a completed graph whose given nodes have their own numbers, in no bins."""
        count, drawn = self.prefix.num_nodes, graph.graph.numbers
        return graph.with_numbers(
            {
                name: np.concatenate([value_N, drawn[name][count:]])
                for name, value_N in self.numbers.items()
            }
        )

    def likely_conditions(
        self, model: DAGModel, wanted: Mapping[str, Condition], seeds: Sequence[int]
    ) -> list[dict[str, Condition]]:
        """Return full conditions for each seed, drawn from p(conditions | prefix).

        ``COMPARED`` draws from what training graphs were like are weighted by the likelihood of
        the prefix under each (importance resampling). A graph still depends on its own seed alone.

        Raises:
            VocabularyError: If a wanted condition or category is unknown.
        """
        known = {**self._stated(), **wanted}
        options = complete_conditions(self.schema, known, range(COMPARED))
        log_weight_O = np.array([self._log_likelihood(model, row) for row in options])
        weight_O = np.exp(log_weight_O - log_weight_O.max())
        reach_O = np.cumsum(weight_O / weight_O.sum())
        uniforms = [numpy_generator(seed, "conditions of a prefix").random() for seed in seeds]
        return [options[min(int(np.searchsorted(reach_O, u)), COMPARED - 1)] for u in uniforms]

    def _stated(self) -> dict[str, Condition]:
        """Return what is known of the whole graph, as far as the checkpoint knows the words.

        Where all of its layers are given, it is to go on, and its size says nothing.
        """
        stated = {}
        ends = self.prefix.num_layers == self.prefix.dag.num_layers
        for name, value in self.graph.conditions.items():
            if ends and name in SIZE_CONDITIONS:
                continue
            try:
                self.schema.encode_conditions([{name: value}])
            except DataError:
                continue
            stated[name] = value
        return stated

    def _log_likelihood(self, model: DAGModel, row: Mapping[str, Condition]) -> float:
        """Return log p(prefix | conditions), nats, up to how the next layer begins."""
        numeric_1C, category_1M = self.schema.encode_conditions([row])
        device = next(model.parameters()).device
        batch = DAGBatch.of([self._first_layers], numeric_1C, category_1M).to(device)
        with torch.inference_mode():
            terms = model.losses(batch, torch.Generator(device))
        own = (term.total for name, term in terms.items() if name != "condition")
        return -float(sum(own))

    @cached_property
    def _first_layers(self) -> DAG:
        """The prefix as a graph of its own."""
        dag, count = self.prefix.dag, self.prefix.num_nodes
        inside_E = dag.edge_index_2E[1] < count
        return DAG.build(
            dag.x_NA[:count],
            dag.edge_index_2E[:, inside_E],
            edge_type_E=dag.edge_type_E[inside_E],
            u_NA=dag.u_NA[:count],
            layer_N=dag.layer_N[:count],
        )


def _job(workload: Workload) -> AttributedGraph:
    """Return the graph of a job's traces."""
    return job_graph(workload.source, rank_classes(workload), workload.groups, {})
