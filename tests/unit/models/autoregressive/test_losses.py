"""The losses are negative log-likelihoods: probabilities over all that can happen sum to one."""

import itertools
import math

import pytest
import torch
from torch.nn import functional as F

from layerdag.graph import DAG, DAGBatch, GraphSizes, GraphStatistics
from layerdag.models.autoregressive import EncoderConfig, FastConfig, FastLayerDAG
from layerdag.models.autoregressive._losses import _count_loss, _ragged_loss, _sum_so_far
from layerdag.models.layers import CountCode, Counter
from tests.unit.models.autoregressive.small_models import collated, small_dags, small_model


def plain_model(sizes: GraphSizes, dags: list[DAG], block: int = 64) -> FastLayerDAG:
    """A model without out-degrees, in which every node beyond layer 0 has one parent for sure."""
    torch.manual_seed(0)
    config = FastConfig(
        width=32, depth=1, predict_out_degree=False, encoder=EncoderConfig(block=block)
    )
    model = FastLayerDAG(sizes, GraphStatistics.measure(dags, sizes), config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))
        model.heads.degree_readout.project.weight.zero_()
        model.heads.degree_readout.project.bias.fill_(-1e4)[1] = 1e4
    return model


def alone(dag: DAG) -> DAGBatch:
    none = (torch.zeros(1, 0), torch.zeros(1, 0, dtype=torch.int64))
    return DAGBatch.of([dag], *none)


def forests(layer_sizes: list[int], sizes: GraphSizes) -> list[DAG]:
    """Every graph of these layers in which each node beyond layer 0 has one parent."""
    nodes = sum(layer_sizes)
    starts = [0, *itertools.accumulate(layer_sizes)]
    layer_of = [layer for layer, size in enumerate(layer_sizes) for _ in range(size)]
    choices = [range(starts[layer - 1], starts[layer]) for layer in layer_of[layer_sizes[0] :]]
    codes = itertools.product(*(range(size) for size in sizes.attributes))
    rows = list(itertools.product(list(codes), repeat=nodes))
    inner = list(range(layer_sizes[0], nodes))
    edges = list(itertools.product(*choices))
    types = list(itertools.product(range(sizes.edge_types), repeat=len(inner)))
    return [
        DAG.build(torch.tensor(x), torch.tensor([parents, inner]), edge_type_E=torch.tensor(kinds))
        for x, parents, kinds in itertools.product(rows, edges, types)
    ]


@pytest.mark.parametrize(
    ("layer_sizes", "sizes", "block"),
    [
        ([3, 1], GraphSizes((2,)), 64),
        # Three blocks of two lie outside, and inside a block one of its tokens is chosen.
        ([8, 1], GraphSizes((1,)), 2),
        # Blocks between the parents' layer and the window are no candidates.
        ([2, 4], GraphSizes((1,)), 1),
        ([1, 1], GraphSizes((2, 2), edge_types=2), 64),
        ([1, 1, 2], GraphSizes((2,)), 2),
    ],
)
def test_all_graphs_of_given_layers_have_a_probability_of_one_together(
    layer_sizes: list[int], sizes: GraphSizes, block: int
):
    dags = forests(layer_sizes, sizes)
    model = plain_model(sizes, dags, block)
    probabilities = []
    with torch.no_grad():
        for dag in dags:
            terms = model.losses(alone(dag), torch.Generator())
            probabilities.append(math.exp(-terms["node"].total - terms["edge"].total))
    assert sum(probabilities) == pytest.approx(1, abs=1e-4)
    assert max(probabilities) > 2 * min(probabilities)


@pytest.mark.parametrize("largest", [3, 40])
def test_counts_have_a_probability_of_one_together(largest: int, generator: torch.Generator):
    counter = Counter(CountCode(4, largest))
    counts = torch.arange(int(counter.lows_K1[-1]))
    logits = torch.randn(1, counter.num_codes, generator=generator)
    losses = torch.stack([_count_loss(logits, count[None], counter) for count in counts])
    assert (-losses).exp().sum() == pytest.approx(1, abs=1e-5)


def test_the_loss_of_ragged_candidates_is_that_of_a_softmax_each(generator: torch.Generator):
    logits = 30 * torch.randn(9, generator=generator)
    segment = torch.tensor([0, 0, 0, 1, 2, 2, 2, 2, 1])
    target = torch.tensor([1, 8, 4])
    hit = torch.zeros(9, dtype=torch.bool).index_fill(0, target, True)
    wanted = sum(
        F.cross_entropy(
            logits[segment == s][None], (segment == s).nonzero()[:, 0].eq(t).nonzero()[0]
        )
        for s, t in enumerate(target)
    )
    torch.testing.assert_close(_ragged_loss(logits, segment, hit, 3), wanted)


def test_a_single_candidate_costs_nothing():
    logits = torch.tensor([1e4, -1e4])
    hit = torch.tensor([True, True])
    assert _ragged_loss(logits, torch.tensor([0, 1]), hit, 2) == 0


def test_ragged_losses_have_the_gradient_of_cross_entropy(generator: torch.Generator):
    logits = torch.randn(5, generator=generator).requires_grad_()
    hit = torch.tensor([False, True, False, False, True])
    segment = torch.tensor([0, 0, 0, 1, 1])
    _ragged_loss(logits, segment, hit, 2).backward()
    wanted = torch.cat([logits[:3].softmax(0), logits[3:].softmax(0)]) - hit.float()
    torch.testing.assert_close(logits.grad, wanted.detach())


def test_terms_count_layers_nodes_and_graphs():
    dags = small_dags(3)
    terms = small_model(dags).losses(collated(dags), torch.Generator())
    layers = sum(int(dag.layers().max()) + 1 for dag in dags)
    nodes = sum(dag.num_nodes for dag in dags)
    assert {name: int(term.count) for name, term in terms.items()} == {
        "layer_size": layers + len(dags),  # The end of a graph is a decision, too.
        "node": nodes,
        "edge": nodes,
        "condition": len(dags),
    }


def test_one_node_is_a_graph():
    dag = small_dags(1)[0]
    lonely = DAG.build(dag.x_NA[:1], torch.zeros(2, 0, dtype=torch.int64))
    terms = small_model(small_dags()).losses(collated([lonely]), torch.Generator())
    assert terms["edge"].total == 0
    assert terms["node"].total > 0
    assert terms["layer_size"].count == 2


def with_other_attributes(dag: DAG, first: int) -> DAG:
    """The same graph, other attributes from node ``first`` on."""
    x_NA = dag.x_NA.clone()
    x_NA[first:] = (x_NA[first:] + 1) % torch.tensor([5, 3, 4])
    return DAG.build(x_NA, dag.edge_index_2E, edge_type_E=dag.edge_type_E)


def encoded(model: FastLayerDAG, dag: DAG, monkeypatch: pytest.MonkeyPatch) -> torch.Tensor:
    """Return the encoding of each token, as the losses compute it."""
    kept = []
    plain = FastLayerDAG._encode

    def keep(self: FastLayerDAG, *arguments: object) -> torch.Tensor:
        kept.append(plain(self, *arguments))
        return kept[-1]

    with monkeypatch.context() as patch:
        patch.setattr(FastLayerDAG, "_encode", keep)
        model.losses(collated([dag]), torch.Generator())
    return kept[0].detach()


@pytest.mark.parametrize("plans", [True, False])
def test_later_attributes_do_not_change_earlier_encodings(
    plans: bool, monkeypatch: pytest.MonkeyPatch
):
    dags = small_dags(4)
    model, dag = small_model(dags, predict_out_degree=plans), dags[-1]
    plain = encoded(model, dag, monkeypatch)
    for first in range(dag.num_nodes):
        other = encoded(model, with_other_attributes(dag, first), monkeypatch)
        # Node n is token n + 1.
        assert torch.equal(other[: first + 1], plain[: first + 1])
        assert not torch.equal(other[first + 1], plain[first + 1])


def test_later_layers_do_not_change_earlier_encodings(monkeypatch: pytest.MonkeyPatch):
    """In a model that predicts out-degrees they tell of later layers, by their definition."""
    dags = small_dags(4)
    dag = dags[-1]
    layer_N, (source, target) = dag.layers(), dag.edge_index_2E
    for plans in (False, True):
        model = small_model(dags, predict_out_degree=plans)
        plain = encoded(model, dag, monkeypatch)
        for layers in range(1, int(layer_N.max()) + 1):
            nodes, keep = int((layer_N < layers).sum()), layer_N[target] < layers
            start = DAG.build(
                dag.x_NA[:nodes],
                torch.stack([source[keep], target[keep]]),
                edge_type_E=dag.edge_type_E[keep],
            )
            same = torch.equal(encoded(model, start, monkeypatch), plain[: nodes + 1])
            assert same is not plans


def test_the_parents_chosen_so_far_are_summed_node_by_node():
    parent_ED = torch.tensor([[1.0], [2.0], [4.0], [8.0], [16.0]])
    found = _sum_so_far(parent_ED, torch.tensor([0, 1, 2, 0, 1]))
    assert found[:, 0].tolist() == [1, 3, 7, 8, 24]
