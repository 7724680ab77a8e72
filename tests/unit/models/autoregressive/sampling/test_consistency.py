"""Sampling and training compute the same probabilities: a true graph is forced on the sampler."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from layerdag.graph import DAG
from layerdag.models.autoregressive import (
    ConditioningConfig,
    DegreeConstraints,
    FastLayerDAG,
    HeadsConfig,
)
from layerdag.models.autoregressive._model import GRAPH_OBJECTIVES
from layerdag.models.autoregressive.sampling import (
    _alike as fast_alike,
    _sampler as fast_sampling,
)
from layerdag.models.autoregressive.sampling._cache import visible_range
from tests.unit.models.autoregressive.small_models import collated, request, small_dags, small_model


class Script:
    """The categories the sampler must pick to build one given graph, in its order of decisions."""

    def __init__(self, dag: DAG, block: int, *, plans: bool) -> None:
        self.dag, self.block, self.plans = dag, block, plans
        self.layer_N = dag.layers()
        self.sizes_L = torch.bincount(self.layer_N).tolist()
        self.start_L = [sum(self.sizes_L[:layer]) + 1 for layer in range(len(self.sizes_L) + 1)]
        self.out_degree_N = torch.bincount(dag.edge_index_2E[0], minlength=dag.num_nodes)

    def codes(self) -> list[tuple[int, bool]]:
        """Return (category, whether it counts); counts are exact categories in small graphs."""
        found = []
        for node in range(self.dag.num_nodes):
            found += self._node(node)
        return [*found, (0, True)]

    def _node(self, node: int) -> list[tuple[int, bool]]:
        layer, position = int(self.layer_N[node]), node + 1
        opens = position == self.start_L[layer]
        found = [(self.sizes_L[layer] if opens else 0, opens)]
        source_E, target_E = self.dag.edge_index_2E
        pairs = sorted(
            zip(
                (source_E[target_E == node] + 1).tolist(),
                self.dag.edge_type_E[target_E == node].tolist(),
                strict=True,
            ),
            reverse=True,
        )
        degree = len(pairs)
        kind, *others = self.dag.x_NA[node].tolist()
        if pairs:
            found += self._parent(
                position, pairs[0][0], self.start_L[layer - 1], self.start_L[layer]
            )
        found += [(kind, True), (degree, degree > 0)]
        for rank, (parent, edge_type) in enumerate(pairs):
            if rank:
                found += self._parent(position, parent, degree - rank, pairs[rank - 1][0])
            found.append((edge_type, True))
        found += [(code, True) for code in others]
        return [*found, (int(self.out_degree_N[node]), True)] if self.plans else found

    def _parent(self, position: int, parent: int, low: int, high: int) -> list[tuple[int, bool]]:
        first, _ = visible_range(position - 1, self.block)
        near_low = max(low, first)
        if parent >= near_low:
            return [(parent - near_low, True)]
        block = parent // self.block
        column = max(high - near_low, 0) + block - low // self.block
        return [(column, True), (parent - max(low, block * self.block), True)]


def forced_log_likelihood(model: FastLayerDAG, dag: DAG, patch: Callable) -> float:
    script = iter(Script(dag, model.block, plans=model.heads.out_degree is not None).codes())
    total = 0.0

    def follow(logits_BK: Tensor, u_B: Tensor) -> Tensor:
        nonlocal total
        code, counts = next(script)
        if counts:
            total += torch.log_softmax(logits_BK.double(), dim=1)[0, code].item()
        return torch.tensor([code])

    for part in (fast_sampling, fast_alike):
        patch(part, "sample_from_logits", follow)
    patch(DegreeConstraints, "limit_kinds", lambda self, logits, first: logits)
    patch(DegreeConstraints, "limit_degrees", lambda self, logits, *rest: logits)
    patch(DegreeConstraints, "clamp", lambda self, degree, *rest: degree)
    patch(
        DegreeConstraints,
        "capacity",
        lambda self, kind, out_degree: torch.full_like(kind, dag.num_nodes),
    )
    one = collated([dag])
    asked = {"numeric_BC": one.numeric_BC, "category_BM": one.category_BM}
    nodes_B = torch.tensor([float(dag.num_nodes)])
    layers_B = one.num_layers().float()
    model.sample(request(1, **asked, nodes_B=nodes_B, layers_B=layers_B))
    assert next(script, None) is None
    return total


@pytest.mark.parametrize(
    ("block", "plans", "chosen", "remaining"),
    [
        *((block, plans, "last", "none") for block in (2, 4, 64) for plans in (True, False)),
        (4, False, "all", "none"),
        (4, False, "last", "encoded"),
    ],
)
def test_the_sampler_gives_a_graph_the_probability_that_training_computes(
    block, plans, chosen, remaining, monkeypatch
):
    dags = small_dags(count=9)
    model = small_model(
        dags,
        block=block,
        predict_out_degree=plans,
        heads=HeadsConfig(chosen_parents=chosen),
        conditioning=ConditioningConfig(remaining_sizes=remaining),
    )
    losses = model.losses(collated(dags[-1:]), torch.Generator())
    trained = -sum(losses[name].total.item() for name in GRAPH_OBJECTIVES)
    forced = forced_log_likelihood(model, dags[-1], monkeypatch.setattr)
    assert forced == pytest.approx(trained, rel=1e-5)
