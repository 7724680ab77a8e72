"""Best of n candidates: sampling-importance resampling (Rubin, Bayesian Statistics 3, 1988).

Shape letters: B graphs, C numeric conditions, M categorical conditions, O options (candidates of
each graph), P pairs (of graph and candidate).
"""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from layerdag._runtime import derive_seed
from layerdag.graph import DAGBatch
from layerdag.models import SampleRequest, SampleResult
from layerdag.models.draws import gumbel

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
    still depends only on its own seed and conditions.

    Args:
        score: Returns the log weight of each graph of a batch, nats, shape (P,), given the
            request: each of its rows has ``best_of`` consecutive candidates in the batch.
        request: With at least two candidates.
        sample: Samples graphs, one per seed.
    """
    count = request.best_of
    repeated = replace(
        request,
        numeric_BC=request.numeric_BC.repeat_interleave(count, dim=0),
        category_BM=request.category_BM.repeat_interleave(count, dim=0),
        seeds=tuple(_candidate_seed(seed, j) for seed in request.seeds for j in range(count)),
        best_of=1,
        nodes_B=None if request.nodes_B is None else request.nodes_B.repeat_interleave(count),
        layers_B=None if request.layers_B is None else request.layers_B.repeat_interleave(count),
        possible=None if request.possible is None else request.possible.repeated(count),
    )
    sampled = sample(repeated)
    batch = DAGBatch.of(sampled.dags, repeated.numeric_BC, repeated.category_BM)
    score_P = score(batch, request).cpu().double()
    if sampled.log_weights:
        score_P += torch.tensor(sampled.log_weights, dtype=torch.float64)
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


def _candidate_seed(seed: int, number: int) -> int:
    """Return the seed of candidate ``number``; candidate 0 has the seed itself."""
    return seed if number == 0 else derive_seed(seed, "candidate", number)
