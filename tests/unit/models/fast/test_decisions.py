"""Every decision is read from what is known when it is made, and from nothing else."""

import itertools
import math

import pytest
import torch
from small_models import SIZES, collated, small_dags, small_model
from torch.nn import functional as F

from layerdag.dag.dag import DAG, DAGBatch, GraphSizes
from layerdag.dag.statistics import GraphStatistics
from layerdag.models.config import EncoderConfig, FastConfig, HeadsConfig
from layerdag.models.fast.decisions import Heads, Pointer, _code_loss, _ragged_loss
from layerdag.models.fast.layout import BLOCK_CODES, TOKEN_CODES, CandidatePairs
from layerdag.models.fast.model import FastLayerDAG
from layerdag.models.layers import CountEncoder

WIDTH, KEY = 8, 4
STATISTICS = GraphStatistics.measure(small_dags(), SIZES)


def heads(
    *, plans: bool = True, sizes: GraphSizes = SIZES, config: HeadsConfig | None = None
) -> Heads:
    torch.manual_seed(0)
    return Heads(sizes, STATISTICS, WIDTH, KEY, plans=plans, config=config)


def states(rows: int, generator: torch.Generator) -> torch.Tensor:
    return torch.randn(rows, WIDTH, generator=generator)


def test_a_graph_has_a_first_layer_but_need_not_have_another(generator):
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


def test_the_place_in_a_layer_changes_the_state(generator):
    every, encoded = heads(), states(1, generator).expand(3, -1)
    places = every.count_codes.slots(torch.tensor([4, 4, 5]), torch.tensor([0, 1, 1]))
    found = every.context_state(encoded, places)
    assert (torch.cdist(found, found) + torch.eye(3) > 1e-3).all()


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
    plans, attributes, chained, generator
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


def scored(pointer: Pointer, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Return (hidden states, keys, codes, decisions, candidates) of seven pairs."""
    hidden = pointer.activate(states(3, generator))
    key = torch.randn(7, KEY, generator=generator)
    codes = torch.stack([torch.randint(n, (7,), generator=generator) for n in TOKEN_CODES], 1)
    return hidden, key, codes, torch.tensor([0, 0, 1, 1, 1, 2, 2]), torch.arange(7)


def test_a_candidate_token_is_scored_by_its_key_and_its_features(generator):
    pointer = Pointer(WIDTH, KEY)
    hidden, key, codes, decision, candidate = scored(pointer, generator)
    found = pointer.tokens(hidden, key, codes, CandidatePairs(decision, candidate))
    offsets = [sum(TOKEN_CODES[:i]) for i in range(4)]
    for pair, which in enumerate(decision.tolist()):
        state = hidden[which]
        score = pointer.query(state) @ key[pair] / KEY**0.5
        terms = pointer.code_scores(state)[torch.tensor(offsets) + codes[pair]]
        torch.testing.assert_close(found[pair], score + terms.sum())


def test_a_candidate_block_is_scored_by_its_mean_key_and_its_pending_children(generator):
    pointer = Pointer(WIDTH, KEY)
    hidden, key, codes, decision, candidate = scored(pointer, generator)
    code = codes[:, 2]
    found = pointer.blocks(hidden, key, code, CandidatePairs(decision, candidate))
    for pair, which in enumerate(decision.tolist()):
        score = pointer.far_query(hidden[which]) @ key[pair] / KEY**0.5
        wanted = score + pointer.block_scores(hidden[which])[code[pair]]
        torch.testing.assert_close(found[pair], wanted)
    assert pointer.block_scores.out_features == BLOCK_CODES


def test_a_further_parent_depends_on_all_chosen_ones_if_asked(generator):
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
def test_all_graphs_of_given_layers_have_a_probability_of_one_together(layer_sizes, sizes, block):
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
def test_counts_have_a_probability_of_one_together(largest, generator):
    counter = CountEncoder(4, largest)
    counts = torch.arange(int(counter.lows_K1[-1]))
    logits = torch.randn(1, counter.num_codes, generator=generator)
    losses = torch.stack(
        [_code_loss(logits, counter.encode(n[None])) + counter.inside(n) for n in counts]
    )
    assert (-losses).exp().sum() == pytest.approx(1, abs=1e-5)


def test_the_loss_of_ragged_candidates_is_that_of_a_softmax_each(generator):
    logits = 30 * torch.randn(9, generator=generator)
    segment = torch.tensor([0, 0, 0, 1, 2, 2, 2, 2, 1])
    target = torch.tensor([1, 8, 4])
    wanted = sum(
        F.cross_entropy(
            logits[segment == s][None], (segment == s).nonzero()[:, 0].eq(t).nonzero()[0]
        )
        for s, t in enumerate(target)
    )
    torch.testing.assert_close(_ragged_loss(logits, segment, target, torch.zeros(3)), wanted)


def test_softmaxes_that_pad_a_batch_count_nothing_even_empty_ones(generator):
    logits = torch.randn(5, generator=generator, requires_grad=True)
    chosen, padding = torch.tensor([1, 4, 4]), torch.tensor([0.0, 1.0, 1.0])
    loss = _ragged_loss(logits, torch.tensor([0, 0, 0, 1, 1]), chosen, padding)
    torch.testing.assert_close(loss, F.cross_entropy(logits[:3], torch.tensor(1)))
    (gradient,) = torch.autograd.grad(loss, logits)
    assert gradient[3:].tolist() == [0, 0]


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
