"""How far each code's logit may be tuned, by how often the public graphs have it.

Shape letters: K codes, V values of a count.
"""

from collections.abc import Iterable, Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from layerdag.graph import GraphStatistics
from layerdag.models.autoregressive import Heads
from layerdag.models.layers import Counter

Pairs = Iterable[tuple[int, int]]
"""Values, and how often each occurs."""


def code_scales(
    heads: Heads, statistics: GraphStatistics
) -> Mapping[nn.Linear, Float[Tensor, " K"]]:
    """Return the scale of each code of each readout: sqrt(f (1 - f)) for a share f of the public.

    It is the standard deviation of the gradient by the code's logit, as far as only shares are
    known. Noise has the same size for all parameters, so that it would make rare codes common; in
    parameters of this scale a rare code has little gradient and gets little noise.

    Args:
        heads: Of the public model.
        statistics: Of the graphs that it was trained on.
    """
    counts: dict[nn.Linear, Sequence[int]] = {
        heads.size_readout.project: _by_code(heads.size, statistics.layer_sizes),
        heads.kind_readout.project: statistics.attributes[0],
        heads.degree_readout.project: _by_code(
            heads.in_degree, (p for kind in statistics.in_degrees for p in kind if p[0])
        ),
        heads.type_readout.project: statistics.edge_types,
    }
    for readout, others in zip(heads.other_readouts, statistics.attributes[1:], strict=True):
        assert isinstance(readout.project, nn.Linear)
        counts[readout.project] = others
    if heads.plan_readout is not None and heads.out_degree is not None:
        pairs = (pair for kind in statistics.out_degrees for pair in kind)
        counts[heads.plan_readout.project] = _by_code(heads.out_degree, pairs)
    return {linear: _scales(found) for linear, found in counts.items()}


def _by_code(counter: Counter, pairs: Pairs) -> list[int]:
    """Return how often each code of a count occurs."""
    table_V2 = torch.tensor(list(pairs), dtype=torch.int64).view(-1, 2)
    code_V = counter.encode(table_V2[:, 0].to(counter.lows_K1.device)).cpu()
    found_K = torch.zeros(counter.num_codes, dtype=torch.int64)
    return found_K.index_add(0, code_V, table_V2[:, 1]).tolist()


def _scales(counts: Sequence[int]) -> Float[Tensor, " K"]:
    """Return the scale of each code; one that never occurs counts as if it did once."""
    seen_K = torch.tensor(list(counts), dtype=torch.float64) + 1
    share_K = seen_K / seen_K.sum()
    return (share_K * (1 - share_K)).sqrt()
