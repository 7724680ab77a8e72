"""What is sampled follows the probabilities of the heads, limits included."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from layerdag.graph import DAG
from layerdag.models.autoregressive import FastLayerDAG
from layerdag.models.autoregressive.sampling import (
    _alike as fast_alike,
    _sampler as fast_sampling,
)
from layerdag.models.draws import sample_from_logits
from tests.unit.models.autoregressive.small_models import request, small_dags, small_model

COUNT = 400


@pytest.fixture(scope="module")
def model() -> FastLayerDAG:
    return small_model(small_dags())


def first_nodes(model: FastLayerDAG, **changes: object) -> tuple[DAG, ...]:
    return model.sample(request(COUNT, max_nodes=1, **changes)).dags


def recorded(
    model: FastLayerDAG, patch: Callable, **changes: object
) -> list[tuple[Tensor, Tensor]]:
    """Return (log-probabilities, codes) of each decision about the first node."""
    seen = []

    def keep(logits_BK: Tensor, u_B: Tensor) -> Tensor:
        code_B = sample_from_logits(logits_BK, u_B)
        seen.append((logits_BK.double().log_softmax(1), code_B))
        return code_B

    for part in (fast_sampling, fast_alike):
        patch(part, "sample_from_logits", keep)
    first_nodes(model, **changes)
    return seen


def test_every_decision_about_the_first_node_is_drawn_in_proportion(
    model: FastLayerDAG, monkeypatch: pytest.MonkeyPatch
):
    """All graphs are alike so far, but for what was drawn before: the counts are a sum of draws."""
    # Layer size, kind, in-degree, two attributes, out-degree; the last size is cut by the limit.
    decided = recorded(model, monkeypatch.setattr)[:6]
    assert len(decided) == 6
    for log_prob_BK, code_B in decided:
        expected_K = log_prob_BK.exp().sum(0)
        found_K = torch.bincount(code_B, minlength=expected_K.numel())
        common_K = expected_K > 5
        chi_square = ((found_K - expected_K)[common_K] ** 2 / expected_K[common_K]).sum()
        # The chance of more is below 1e-4 for up to 24 degrees of freedom.
        assert chi_square < 60
        assert not found_K[expected_K == 0].any()


def test_the_first_node_is_of_a_kind_that_starts_graphs(model: FastLayerDAG):
    kinds = torch.cat([dag.x_NA[:1, 0] for dag in first_nodes(model)])
    assert model.constraints.source_K[kinds].all()
    assert kinds.unique().numel() == int(model.constraints.source_K.sum())


def test_guidance_moves_along_a_line_of_log_probabilities(
    model: FastLayerDAG, monkeypatch: pytest.MonkeyPatch
):
    numbers = torch.full((COUNT, 1), 2.0)
    unknown = {"numeric_BC": torch.full((COUNT, 1), torch.nan)}
    unknown["category_BM"] = torch.full((COUNT, 1), -1)

    def size_logits(**changes: object) -> Tensor:
        with monkeypatch.context() as patch:
            return recorded(model, patch.setattr, **changes)[0][0][0, 1:]

    known, free = size_logits(numeric_BC=numbers), size_logits(**unknown)
    for weight in (0.0, 0.5, 2.0, 3.0):
        found = size_logits(numeric_BC=numbers, guidance=weight)
        wanted = (free + weight * (known - free)).log_softmax(0)
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(known, free, atol=1e-3)


def test_one_node_and_one_layer_are_graphs(model: FastLayerDAG):
    small = model.sample(request(20, max_nodes=1))
    assert all(dag.num_nodes == 1 and dag.num_edges == 0 for dag in small.dags)
    flat = model.sample(request(20, max_layers=1))
    assert all(int(dag.layers().max()) == 0 for dag in flat.dags)
    assert any(flat.truncated)
