"""Sizes of graphs are told by their first nodes."""

import math

import pytest
import torch

from layerdag.graph import DAG, DAGBatch, GraphSizes
from layerdag.models import BLOCK, Progress, SizeForecast

SIZES = GraphSizes(attributes=(3,), edge_types=1, numeric_conditions=0, category_conditions=(2,))


def chain(kinds: list[int]) -> DAG:
    """Return a chain of nodes of these kinds."""
    edge_index = torch.stack([torch.arange(len(kinds) - 1), torch.arange(1, len(kinds))])
    return DAG.build(torch.tensor(kinds)[:, None], edge_index)


def batch_of(*graphs: list[int], category: int = 0) -> DAGBatch:
    count = len(graphs)
    category_BM = torch.full((count, 1), category)
    return DAGBatch.of([chain(kinds) for kinds in graphs], torch.zeros(count, 0), category_BM)


def mirrored(half: int) -> list[int]:
    """Return a program whose backward pass is as long as its forward pass."""
    return [0] * half + [1] * half


def progress_of(batch: DAGBatch) -> tuple[Progress, torch.Tensor]:
    return Progress.of_batch(batch, batch.category_BM, 3)


def test_a_graph_has_a_row_after_each_full_block():
    progress, graph_R = progress_of(batch_of([0] * 20, [1] * 5, [2] * 8))
    assert progress.position_R.tolist() == [8, 16, 8]
    assert progress.layers_R.tolist() == [8, 16, 8]
    assert graph_R.tolist() == [0, 0, 2]


def test_graphs_shorter_than_a_block_have_no_loss():
    loss = SizeForecast(SIZES).loss(batch_of([0, 1], [2]), None)
    assert (loss.total.item(), loss.count.item()) == (0, 0)


def test_graphs_are_seen_in_training_as_while_they_are_drawn():
    generator = torch.Generator().manual_seed(0)
    graphs = [torch.randint(3, (n,), generator=generator).tolist() for n in (50, 9, 72)]
    batch = batch_of(*graphs, category=1)
    progress, graph_R = progress_of(batch)
    for row, graph in enumerate(graph_R.tolist()):
        nodes = int(progress.position_R[row])
        drawn = Progress.of_kinds(
            torch.tensor([graphs[graph][:nodes]]), torch.tensor([nodes]), torch.tensor([[1]]), 3
        )
        for name, value in vars(drawn).items():
            assert torch.equal(getattr(progress, name)[row : row + 1], value), name


def test_counts_are_of_all_nodes_the_recent_and_the_newest():
    progress, _ = progress_of(batch_of([0] * 40 + [1] * 8))
    assert progress.count_RK[-1].tolist() == [40, 8, 0]
    assert progress.recent_RK[-1].tolist() == [24, 8, 0]
    assert progress.newest_RK[-1].tolist() == [0, 8, 0]


def trained(batch: DAGBatch, steps: int = 150) -> SizeForecast:
    torch.manual_seed(0)
    forecast = SizeForecast(SIZES, width=16)
    optimizer = torch.optim.Adam(forecast.parameters(), lr=1e-2)
    for _ in range(steps):
        optimizer.zero_grad()
        forecast.loss(batch, None).mean().backward()
        optimizer.step()
    return forecast


def test_it_learns_that_a_backward_pass_mirrors_the_forward_pass():
    forecast = trained(batch_of(*(mirrored(half) for half in range(12, 60, 4))))
    # Two programs after 40 nodes, of which one has turned back after 32 and the other has not.
    kind_RN = torch.tensor([[0] * 32 + [1] * 8, [0] * 40])
    drawn = Progress.of_kinds(kind_RN, torch.tensor([40, 40]), torch.zeros(2, 1).long(), 3)
    with torch.no_grad():
        found = forecast(drawn)
    assert found.mean_R[0].exp().item() == pytest.approx(64, rel=0.12)
    assert found.mean_R[1] > found.mean_R[0] + 0.2
    assert found.deviation_R[0] < found.deviation_R[1]


def test_a_graph_is_never_forecast_to_be_smaller_than_it_is():
    torch.manual_seed(1)
    progress, _ = progress_of(batch_of([2] * 80))
    mean_R = SizeForecast(SIZES)(progress).mean_R
    assert (mean_R >= progress.position_R.float().log()).all()


def test_conditions_are_hidden_in_training_alone():
    forecast, batch = SizeForecast(SIZES), batch_of(*([0] * BLOCK for _ in range(64)))
    torch.nn.init.normal_(forecast.categories.weight, std=3.0)
    plain = forecast.loss(batch, None).total
    hidden = forecast.loss(batch, torch.Generator().manual_seed(0)).total
    assert plain.item() == forecast.loss(batch, None).total.item()
    assert plain.item() != pytest.approx(hidden.item(), rel=1e-4)


def test_unknown_conditions_have_a_forecast_of_their_own():
    forecast = SizeForecast(SIZES)
    torch.nn.init.normal_(forecast.categories.weight)
    means = {forecast(progress_of(batch_of([0] * 8, category=c))[0]).mean_R.item() for c in (-1, 0)}
    assert len(means) == 2


def test_a_model_without_conditions_can_forecast():
    sizes = GraphSizes(attributes=(3,), edge_types=1, numeric_conditions=0, category_conditions=())
    batch = DAGBatch.of([chain([0] * 9)], torch.zeros(1, 0), torch.zeros((1, 0), dtype=torch.int64))
    assert math.isfinite(SizeForecast(sizes).loss(batch, None).total.item())
