"""Choosing among several candidates: importance resampling (Rubin, Bayesian Statistics 3, 1988)."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from layerdag._runtime import derive_seed
from layerdag.graph import DAGBatch
from layerdag.models._base import SampleRequest, SampleResult


def resample(
    score: Callable[[DAGBatch, int], Tensor],
    request: SampleRequest,
    sample: Callable[[SampleRequest], SampleResult],
) -> SampleResult:
    """Draw ``request.candidates`` graphs per seed and keep one, with odds of exp(score).

    Candidate 0 is what ``sample`` gives without candidates; a truncated one is kept only if all
    are. A graph still depends on its own seed and conditions alone.

    Args:
        score: Logarithm of the weight of each graph of a batch, nats, shape (B,); told how many
            candidates of one request follow one another in it.
        request: With at least two candidates.
        sample: Draws graphs, one a seed.
    """
    count = request.candidates
    repeated = replace(
        request,
        numeric_BC=request.numeric_BC.repeat_interleave(count, dim=0),
        category_BM=request.category_BM.repeat_interleave(count, dim=0),
        seeds=tuple(_candidate(seed, j) for seed in request.seeds for j in range(count)),
        candidates=1,
    )
    drawn = sample(repeated)
    batch = DAGBatch.collate(
        drawn.dags, [dag.layers() for dag in drawn.dags], repeated.numeric_BC, repeated.category_BM
    )
    score_P = score(batch, count).cpu().double()
    score_P[torch.tensor(drawn.truncated)] -= 1e9
    uniform_P = torch.tensor(
        [(derive_seed(seed, "choice") + 0.5) / 2**63 for seed in repeated.seeds],
        dtype=torch.float64,
    )
    # Gumbel noise: the largest sum is a draw from the softmax of the scores.
    noisy_BK = (score_P - (-uniform_P.log()).log()).unflatten(0, (-1, count))
    chosen = (noisy_BK.argmax(1) + count * torch.arange(noisy_BK.shape[0])).tolist()
    return SampleResult(
        tuple(drawn.dags[i] for i in chosen), tuple(drawn.truncated[i] for i in chosen)
    )


def _candidate(seed: int, number: int) -> int:
    """Return the seed of a candidate."""
    return seed if number == 0 else derive_seed(seed, "candidate", number)
