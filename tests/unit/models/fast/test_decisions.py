"""Every decision is read from what is known when it is made, and from nothing else."""

import itertools
import math

import pytest
import torch
from small_models import SIZES, collated, small_dags, small_model
from torch.nn import functional as F

from layerdag.dag.dag import DAG, DAGBatch, GraphSizes
from layerdag.dag.statistics import GraphStatistics
from layerdag.models.fast.config import EncoderConfig, FastConfig, HeadsConfig
from layerdag.models.fast.decisions import (
    Heads,
    Pointer,
    Readout,
    _count_loss,
    _ragged_loss,
    _sum_so_far,
)
from layerdag.models.fast.layout import BLOCK_CODES, TOKEN_CODES, CandidatePairs
from layerdag.models.fast.model import FastLayerDAG
from layerdag.models.layers import CountCode, CountEncoder

WIDTH, KEY = 8, 4
STATISTICS = GraphStatistics.measure(small_dags(), SIZES)


def heads(
    *, plans: bool = True, sizes: GraphSizes = SIZES, config: HeadsConfig | None = None
) -> Heads:
    torch.manual_seed(0)
    return Heads(sizes, STATISTICS, WIDTH, KEY, plans=plans, config=config)


def states(rows: int, generator: torch.Generator) -> torch.Tensor:
    return torch.randn(rows, WIDTH, generator=generator)


def test_a_readout_ignores_shift_and_scale_of_its_state(generator: torch.Generator):
    readout, state = Readout(WIDTH, 5), states(3, generator)
    plain = readout(state)
    assert plain.shape == (3, 5)
    torch.testing.assert_close(readout(7 * state + 2), plain, rtol=1e-3, atol=1e-4)


def test_a_graph_has_a_first_layer_but_need_not_have_another(generator: torch.Generator):
    logits = heads().size_logits(states(2, generator), torch.tensor([True, False]))
    assert logits[0].isinf().tolist() == [True, *[False] * (logits.shape[1] - 1)]
    assert logits[1].isfinite().all()


def test_sizes_and_degrees_beyond_training_keep_a_code_of_their_own():
    every = heads()
    assert every.out_degree is not None
    for counter, readout, most in (
        (every.size, every.size_readout, STATISTICS.max_layer_size),
        (every.in_degree, every.degree_readout, STATISTICS.max_in_degree),
        (every.out_degree, every.plan_readout, STATISTICS.max_out_degree),
    ):
        assert readout is not None
        assert readout.project.out_features == counter.num_codes
        assert counter.encode(torch.tensor(most + 1)) > counter.encode(torch.tensor(most))
        assert counter.encode(torch.tensor(10**6)) == counter.num_codes - 1


def test_the_place_in_a_layer_changes_the_state(generator: torch.Generator):
    every, encoded = heads(), states(1, generator).expand(3, -1)
    found = every.context_state(encoded, torch.tensor([4, 4, 5]), torch.tensor([0, 1, 1]))
    assert (torch.cdist(found, found) + torch.eye(3) > 1e-3).all()


def test_each_step_of_a_node_adds_to_its_state(generator: torch.Generator):
    """States are sums, so what one decision adds does not depend on the others."""
    every, first, second = heads(), *states(2, generator).split(1)
    code, parent = torch.tensor([1]), states(1, generator)
    steps = [
        lambda state: every.kind_state(state, parent, code),
        lambda state: every.degree_state(state, code),
        lambda state: every.further_state(state, parent, code, parent),
        lambda state: every.other_state(state, code, parent),
        lambda state: every.after_other(state, 0, code),
    ]
    for step in steps:
        added = step(first) - first
        assert added.abs().max() > 1e-3
        torch.testing.assert_close(step(second) - second, added, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("plans", "attributes", "chained"),
    [
        (True, "chained", [True, True]),
        (False, "chained", [True, False]),
        (True, "independent", [False, False]),
        (False, "independent", [False, False]),
    ],
)
def test_later_attributes_follow_earlier_ones_if_they_are_chained(
    plans: bool, attributes: str, chained: list[bool], generator: torch.Generator
):
    every = heads(plans=plans, config=HeadsConfig(attributes=attributes))
    state = states(2, generator)
    changed = [
        not torch.equal(every.after_other(state, index, torch.tensor([0, 1])), state)
        for index in range(len(SIZES.attributes) - 1)
    ]
    assert changed == chained


def test_without_prediction_of_out_degrees_there_is_no_readout_for_them():
    names = set(heads(plans=False).state_dict())
    assert not any(name.startswith("plan_readout") for name in names)
    extra = set(heads(plans=True).state_dict()) - names
    # The last attribute is embedded for the out-degree alone.
    assert {name.split(".")[0] for name in extra} == {"plan_readout", "other_embeddings"}


def test_with_the_kind_alone_there_are_no_other_readouts():
    one = heads(sizes=GraphSizes(SIZES.attributes[:1], edge_types=SIZES.edge_types), plans=False)
    assert len(one.other_readouts) == len(one.other_embeddings) == 0


def scored(pointer: Pointer, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Return (hidden states, keys, codes, decisions, candidates) of seven pairs."""
    hidden = pointer.activate(states(3, generator))
    key = torch.randn(7, KEY, generator=generator)
    codes = torch.stack([torch.randint(n, (7,), generator=generator) for n in TOKEN_CODES], 1)
    return hidden, key, codes, torch.tensor([0, 0, 1, 1, 1, 2, 2]), torch.arange(7)


def test_a_candidate_token_is_scored_by_its_key_and_its_features(generator: torch.Generator):
    pointer = Pointer(WIDTH, KEY)
    hidden, key, codes, decision, candidate = scored(pointer, generator)
    found = pointer.tokens(hidden, key, codes, CandidatePairs(decision, candidate))
    offsets = [sum(TOKEN_CODES[:i]) for i in range(4)]
    for pair, which in enumerate(decision.tolist()):
        state = hidden[which]
        score = pointer.query(state) @ key[pair] / KEY**0.5
        terms = pointer.code_scores(state)[torch.tensor(offsets) + codes[pair]]
        torch.testing.assert_close(found[pair], score + terms.sum())


def test_a_candidate_block_is_scored_by_its_mean_key_and_its_pending_children(
    generator: torch.Generator,
):
    pointer = Pointer(WIDTH, KEY)
    hidden, key, codes, decision, candidate = scored(pointer, generator)
    code = codes[:, 2]
    found = pointer.blocks(hidden, key, code, CandidatePairs(decision, candidate))
    for pair, which in enumerate(decision.tolist()):
        score = pointer.far_query(hidden[which]) @ key[pair] / KEY**0.5
        wanted = score + pointer.block_scores(hidden[which])[code[pair]]
        torch.testing.assert_close(found[pair], wanted)
    assert pointer.block_scores.out_features == BLOCK_CODES


def test_scores_do_not_depend_on_the_order_of_the_candidates(generator: torch.Generator):
    pointer = Pointer(WIDTH, KEY)
    hidden, key, codes, decision, candidate = scored(pointer, generator)
    order = torch.tensor([4, 0, 6, 2, 1, 5, 3])
    plain = pointer.tokens(hidden, key, codes, CandidatePairs(decision, candidate))
    mixed = CandidatePairs(decision[order], candidate[order])
    torch.testing.assert_close(
        pointer.tokens(hidden, key[order], codes[order], mixed), plain[order]
    )


def test_a_further_parent_depends_on_all_chosen_ones_if_asked(generator: torch.Generator):
    code, parent = torch.tensor([1]), states(1, generator)
    state, sums = states(1, generator), states(2, generator).split(1)
    for chosen in ("last", "all"):
        every = heads(config=HeadsConfig(chosen_parents=chosen))
        one, other = (every.further_state(state, parent, code, total) for total in sums)
        assert torch.equal(one, other) is (chosen == "last")


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
    return DAGBatch.from_dags([dag], *none)


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
    counter = CountEncoder(CountCode(4, largest))
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
