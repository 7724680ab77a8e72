"""Graphs whose layers between given ones are drawn: importance resampling by what follows them.

Shape letters: B graphs, C numeric conditions, E edges, M categorical conditions, N nodes, O options
(ways to connect).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from layerdag._runtime import numpy_generator
from layerdag.errors import UsageError
from layerdag.graph import DAG, DAGBatch, Gap, Replacement
from layerdag.models import SampleRequest, SampleResult

WAYS = 8
"""Ways to connect the kept later nodes with the new ones, of each candidate."""

SPREAD = 1.5
"""Noise on all of them but the first, nats."""

LogLikelihood = Callable[[DAGBatch, Int[Tensor, " N"] | None], float]
"""log p(a graph is the first layers of a graph | conditions), given the children of each node."""


@dataclass(frozen=True, eq=False)
class GapFilling:
    """Draws new layers and joins the given later ones to them.

    The new layers are drawn given those before. The log weight of a graph, by which one of several
    candidates is chosen, is the log-likelihood of all that follows the new layers; so it
    is of the ways to connect them, of which a candidate keeps one.

    Attributes:
        gap: What is kept.
        replacement: Proposes what to connect with what.
        log_likelihood: Of the model.
    """

    gap: Gap
    replacement: Replacement
    log_likelihood: LogLikelihood

    def sample(
        self, request: SampleRequest, sample: Callable[[SampleRequest], SampleResult]
    ) -> SampleResult:
        """Return one filled graph per seed.

        A graph that reached the limit of nodes before its new layers were complete is truncated and
        lacks all that follows.

        Args:
            request: With the gap.
            sample: Draws graphs that begin with the prefix.
        """
        limit = request.max_nodes - self.gap.num_later
        self.gap.prefix.require_room(limit, self.gap.end_layer)
        asked = replace(
            request,
            gap=None,
            max_nodes=limit,
            min_layers=self.gap.end_layer,
            max_layers=self.gap.end_layer,
        )
        drawn = sample(asked)
        dags, weights = [], []
        for row, (seed, begun) in enumerate(zip(request.seeds, drawn.dags, strict=True)):
            dag, weight = begun.to("cpu"), 0.0
            if dag.num_layers == self.gap.end_layer:
                conditions = request.numeric_BC[[row]], request.category_BM[[row]]
                dag, weight = self._joined(dag, seed, *conditions)
            dags.append(dag)
            weights.append(weight)
        full = tuple(dag.num_nodes >= limit for dag in drawn.dags)
        return SampleResult(tuple(dags), full, tuple(weights))

    def require_whole(self, result: SampleResult, max_nodes: int) -> SampleResult:
        """Return graphs of which each has the given later layers.

        Raises:
            UsageError: If one has not.
        """
        if all(dag.num_layers == self.gap.dag.num_layers for dag in result.dags):
            return result
        raise UsageError(
            f"With at most {max_nodes} nodes, {self.gap.num_later} of which come after the new "
            "layers, none of the candidates drawn reached the last new layer; raise max_nodes, or "
            "keep more layers."
        )

    def _joined(
        self,
        begun: DAG,
        seed: int,
        numeric_BC: Float[Tensor, "1 C"],
        category_BM: Int[Tensor, "1 M"],
    ) -> tuple[DAG, float]:
        """Return new layers with all that follows, and the log-likelihood of that, nats."""

        def log_likelihood(dag: DAG, out_degree_N: Tensor | None = None) -> float:
            batch = DAGBatch.of([dag], numeric_BC.cpu(), category_BM.cpu())
            return self.log_likelihood(batch.to(numeric_BC.device), out_degree_N)

        rng = numpy_generator(seed, "nodes after a gap")
        ways = [
            tuple(self.replacement.parents(self.gap, begun, rng, spread).tolist())
            for spread in (0.0, *(SPREAD,) * (WAYS - 1))
        ]
        graphs = {way: self.gap.filled(begun, torch.tensor(way)) for way in ways}
        known = {way: log_likelihood(dag) for way, dag in graphs.items()}
        log_O = np.array([known[way] for way in ways])
        chosen = graphs[ways[int((log_O + rng.gumbel(size=WAYS)).argmax())]]
        children_N = torch.bincount(chosen.edge_index_2E[0], minlength=chosen.num_nodes)
        before = log_likelihood(begun, children_N[: begun.num_nodes].to(numeric_BC.device))
        return chosen, float(np.logaddexp.reduce(log_O)) - math.log(WAYS) - before
