"""Codes that go together: what is ruled out, and that samples keep to it."""

import torch
from hypothesis import given, strategies as st
from laws import tried

from layerdag.graph import DAG, GraphSizes, shared_statistics
from layerdag.models import SampleRequest
from layerdag.models.autoregressive import (
    AllowedCodes,
    ConstraintConfig,
    FastConfig,
    FastLayerDAG,
)

SIZES = GraphSizes(attributes=(3, 4, 5))
PAIRS = {0: (1, 1), 1: (3, 0), 2: (0, 4)}


def chains() -> list[DAG]:
    """Six chains in which the kind of a node determines its other two attributes."""
    kinds = [0, 1, 2, 1, 0]
    x_NA = torch.tensor([[kind, *PAIRS[kind]] for kind in kinds])
    edges_2E = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]])
    return [DAG.build(x_NA, edges_2E)] * 6


def sampled_pairs(attributes: str) -> set[tuple[int, int, int]]:
    config = FastConfig(
        width=32,
        depth=1,
        constraints=ConstraintConfig(attributes=attributes, neighbors="unlimited"),
    )
    torch.manual_seed(0)
    model = FastLayerDAG(SIZES, shared_statistics(chains(), SIZES), config).eval()
    none_B0 = torch.zeros(24, 0)
    request = SampleRequest(none_B0, none_B0.long(), tuple(range(24)), max_nodes=8)
    dags = model.sample(request).dags
    return {tuple(row) for dag in dags for row in dag.x_NA.tolist()}


def test_an_untrained_model_samples_only_what_goes_together() -> None:
    assert sampled_pairs("observed") <= {(kind, *rest) for kind, rest in PAIRS.items()}
    assert len(sampled_pairs("unlimited")) > len(PAIRS)


def test_later_attributes_restrict_those_after_them() -> None:
    allowed = AllowedCodes(SIZES, shared_statistics(chains(), SIZES))
    after_BF = allowed.given(1, torch.tensor([3]))
    (fits_K,) = allowed.limit(torch.zeros(1, 5), after_BF, 2) > -torch.inf
    assert fits_K.tolist() == [True, False, False, False, False]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=4, unique=True))
@tried(20)
def test_where_nothing_would_be_left_nothing_is_ruled_out(impossible: list[int]) -> None:
    allowed = AllowedCodes(SIZES, shared_statistics(chains(), SIZES))
    logits_BK = torch.zeros(1, 4)
    logits_BK[0, impossible] = -torch.inf
    limited_BK = allowed.limit(logits_BK, allowed.given(0, torch.tensor([0])), 1)
    if 1 in impossible:  # the only code that goes with kind 0
        assert torch.equal(limited_BK, logits_BK)
    else:
        assert (limited_BK[0] > -torch.inf).tolist() == [False, True, False, False]


def test_without_statistics_every_code_is_allowed() -> None:
    allowed = AllowedCodes(SIZES, None)
    assert allowed.allowed_FF.all()
    logits_BK = torch.randn(2, 4)
    limited_BK = allowed.limit(logits_BK, allowed.given(0, torch.tensor([0, 2])), 1)
    assert torch.equal(limited_BK, logits_BK)
