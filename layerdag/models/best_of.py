"""Best of n candidates: sampling-importance resampling (Rubin, Bayesian Statistics 3, 1988).

Shape letters: B graphs, C numeric conditions, M categorical conditions, O options, P pairs.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from layerdag.dag.dag import DAG, DAGBatch
from layerdag.models.base import SampleRequest, SampleResult
from layerdag.models.draws import gumbel
from layerdag.runtime.rng import derive_seed

NATS_PER_FAULT = 10.0
"""What a fault costs a candidate: more than the scores of candidates of one graph mostly differ."""


def resample(
    score: Callable[[DAGBatch, SampleRequest], Tensor],
    request: SampleRequest,
    sample: Callable[[SampleRequest], SampleResult],
) -> SampleResult:
    """Sample ``request.best_of`` graphs per seed and choose one with weight exp(score).

    Candidate 0 is the graph that ``sample`` returns without resampling; a truncated graph is chosen
    only if all candidates are truncated, and one with faults hardly where another has none. A graph
    still depends only on its own seed and conditions. ``score`` returns the log weight of each
    graph of a batch, nats, given the request: each of its rows has ``best_of`` consecutive
    candidates in the batch.
    """
    count = request.best_of
    repeated = replace(
        request.of_graphs([graph for graph in range(len(request.seeds)) for _ in range(count)]),
        seeds=tuple(
            derive_seed(seed, "candidate", j) if j else seed
            for seed in request.seeds
            for j in range(count)
        ),
        best_of=1,
    )
    sampled = sample(repeated)
    score_P = _scores(score, request, repeated, sampled.dags)
    if request.faults is not None:
        score_P -= NATS_PER_FAULT * torch.tensor(request.faults(sampled.dags)).double()
    score_P[torch.tensor(sampled.truncated)] -= 1e9
    uniform_P = torch.tensor(
        [(derive_seed(seed, "choice") + 0.5) / 2**63 for seed in repeated.seeds],
        dtype=torch.float64,
    )
    # Gumbel-max: the argmax is distributed as the softmax of the scores.
    perturbed_BO = (score_P + gumbel(uniform_P)).unflatten(0, (-1, count))
    chosen = (perturbed_BO.argmax(1) + count * torch.arange(perturbed_BO.shape[0])).tolist()
    return SampleResult(
        tuple(sampled.dags[i] for i in chosen), tuple(sampled.truncated[i] for i in chosen)
    )


_SCORED_NODES = 1 << 18
"""About how many nodes are scored at once: a GPU draws more side by side than its memory scores."""


def _scores(
    score: Callable[[DAGBatch, SampleRequest], Tensor],
    request: SampleRequest,
    repeated: SampleRequest,
    dags: Sequence[DAG],
) -> Tensor:
    """Return the score of every candidate; those of one graph are scored together."""
    count = request.best_of
    nodes_B = np.array([dag.num_nodes for dag in dags]).reshape(-1, count).sum(axis=1)
    part_B = (np.cumsum(nodes_B) - nodes_B) // _SCORED_NODES
    starts = [*np.unique(part_B, return_index=True)[1].tolist(), len(part_B)]
    found = []
    for start, end in pairwise(starts):
        of = slice(start * count, end * count)
        batch = DAGBatch.from_dags(dags[of], repeated.numeric_BC[of], repeated.category_BM[of])
        found.append(score(batch, request.of_graphs(range(start, end))).cpu().double())
    return torch.cat(found)
