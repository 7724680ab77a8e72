"""The autoencoder: states as one node after the other would have them, losses, drawn edges."""

import numpy as np
import pytest
import torch
from benchmark_tables import dvae, dvae_decoder, gated

from layerdag.dag.dag import DAG
from layerdag.datasets.latent_preferential import load_latent_preferential
from layerdag.datasets.settings import LatentPreferentialConfig

WIDTH = 8


@pytest.fixture(scope="module")
def dags() -> list[DAG]:
    data = load_latent_preferential(
        LatentPreferentialConfig(num_train=5, num_val=1, num_test=1)
    ).conditioned_on(())
    return list(data.graphs["train"])


def decoder() -> "dvae_decoder.Decoder":
    torch.manual_seed(0)
    return dvae_decoder.Decoder(2, WIDTH, 3)


def test_turned_around_a_graph_ends_where_it_began(dags):
    flat = gated.Flat.of(dags)
    flipped = flat.flipped()
    is_source_M = torch.bincount(flat.edge_index_2E[1], minlength=len(flat.kind_M)) == 0
    is_sink_M = torch.bincount(flipped.edge_index_2E[0], minlength=len(flat.kind_M)) == 0
    assert torch.equal(is_source_M, is_sink_M)
    assert int(flipped.layer_M.max()) == int(flat.layer_M.max())


def test_states_of_many_graphs_are_those_of_one_node_after_the_other(dags):
    unit = gated.GatedUnit(2, WIDTH)
    flat = gated.Flat.of(dags)
    start_MD = torch.randn(len(flat.kind_M), WIDTH)
    found_MD = unit.states(flat, start_MD)
    states: dict[int, torch.Tensor] = {}
    source_E, target_E = flat.edge_index_2E
    for node in torch.argsort(flat.layer_M, stable=True).tolist():
        parents = source_E[target_E == node].tolist()
        into_D = start_MD[node] + sum((unit.message(states[p]) for p in parents), torch.zeros(()))
        states[node] = unit(flat.kind_M[node : node + 1], into_D[None])[0]
    assert torch.allclose(found_MD, torch.stack([states[i] for i in range(len(states))]), atol=1e-5)


def test_the_loss_of_a_batch_is_that_of_its_graphs(dags):
    model, code_BZ = decoder(), torch.randn(len(dags), 3)
    with torch.no_grad():
        together = float(model.loss(dags, gated.Flat.of(dags), code_BZ))
        alone = [
            float(model.loss([dag], gated.Flat.of([dag]), code_BZ[i : i + 1]))
            for i, dag in enumerate(dags)
        ]
    nodes = [dag.num_nodes for dag in dags]
    assert together == pytest.approx(np.average(alone, weights=nodes), rel=1e-4)


def test_an_edge_changes_what_follows_and_not_what_came_before():
    """The pairs (2, 1) and (2, 0) of a graph with the edge 1 -> 2 have two states of node 2."""
    model = decoder()
    model.is_edge[1].weight.data.zero_()
    model.is_edge[1].bias.data.zero_()
    dag = DAG.build(torch.zeros(3, 1, dtype=torch.int64), torch.tensor([[0, 1], [1, 2]]))
    seen: list[torch.Tensor] = []
    model.child.register_forward_hook(lambda module, args, output: seen.append(args[0]))
    model.loss([dag], gated.Flat.of([dag]), torch.zeros(1, 3))
    (states,) = seen  # three nodes without edges, then one state for each edge
    assert len(states) == 5
    assert torch.allclose(states[0], states[1])
    assert not torch.allclose(states[2], states[4])


@pytest.mark.parametrize(("bias", "edges"), [(-30.0, 0), (30.0, 45)])
def test_edges_are_drawn_for_every_pair_at_its_chance(bias, edges):
    model = decoder()
    model.is_edge[1].bias.data.fill_(bias)
    model.next_kind[2].weight.data.zero_()
    model.next_kind[2].bias.data.copy_(torch.tensor([0.0, 0.0, -30.0]))
    generator = torch.Generator().manual_seed(0)
    assert model.draw(torch.zeros(2, 3), 10, generator) == [None, None]  # the end never comes
    kind_B = torch.zeros(2, dtype=torch.int64)
    edge_BNN = torch.zeros(2, 10, 10, dtype=torch.bool)
    state_BND = torch.zeros(2, 10, WIDTH)
    for node in range(10):
        model._draw_edges(
            kind_B, torch.zeros(2, WIDTH), state_BND[:, :node], edge_BNN[:, node, :node], generator
        )
    assert edge_BNN.sum((1, 2)).tolist() == [edges, edges]


def test_the_code_reaches_every_decision_and_the_graph_reaches_the_code(dags):
    encoder, model = dvae.Encoder(2, WIDTH, 3), decoder()
    flat = gated.Flat.of(dags[:2])
    mean_BZ, logvar_BZ = encoder(flat)
    assert mean_BZ.shape == logvar_BZ.shape == (2, 3)
    model.loss(dags[:2], flat, mean_BZ).backward()
    unused = ("readout", "against.map", "against.gate")  # the half of the spread has no gradient
    for name, weight in [*encoder.named_parameters(), *model.named_parameters()]:
        assert weight.grad is not None or name.startswith(unused), name
        assert weight.grad is None or bool(weight.grad.any()), name


def test_a_decoder_that_ran_away_draws_no_graph():
    broken, moments = decoder(), (torch.zeros(3), torch.ones(3))
    with torch.no_grad():
        next(broken.parameters()).fill_(torch.nan)
    fitted = dvae.FittedDvae(broken, moments, 8, (1, 1))
    assert fitted.sample(3, seed=0) == [None] * 3
