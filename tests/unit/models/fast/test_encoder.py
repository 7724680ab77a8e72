"""The causal encoder against the same computation token by token."""

import math
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, NamedTuple

import pytest
import torch
from fused_kernels import far_apart, kernels_run
from hypothesis import given, strategies as st
from laws import tried
from small_models import (
    SIZES as MODEL_SIZES,
    OddKinds,
    collated,
    context_of,
    request,
    sampling_in_torch,
    small_dags,
    small_model,
    tokens_of,
)
from torch import Tensor, nn

import layerdag as ld
from layerdag.dag.dag import DAG, GraphSizes
from layerdag.dag.statistics import GraphStatistics
from layerdag.errors import CheckpointError, ConfigError, UsageError
from layerdag.models.conditions import Conditions
from layerdag.models.config import POSITION_BUCKETS, EncoderConfig, FastConfig
from layerdag.models.fast.encoder import (
    ENCODERS,
    Encoder,
    EncoderBlock,
    NewestTokens,
    ParentList,
    TokenGraphs,
    alibi_slopes,
    block_sum,
    register_encoder,
)
from layerdag.models.fast.layout import BatchLayout, Edges
from layerdag.models.fast.model import FastLayerDAG
from layerdag.models.fast.tokens import (
    ConditionEncoder,
    Feature,
    RemainingSizes,
    TokenEmbedding,
    at_tokens,
    drop_conditions,
    noisy_sizes,
    structural_features,
)

NONE = torch.zeros(2, 0, dtype=torch.int64)


def test_an_unknown_number_is_not_taken_for_a_mean_one():
    encoder = ConditionEncoder(GraphSizes((2,), numeric_conditions=2), 32)
    found = encoder(Conditions(torch.tensor([[torch.nan, 1.0], [0.0, 1.0]]), NONE)).before_BJD
    assert found.isfinite().all()
    assert not torch.allclose(found[0], found[1])


def test_each_bucket_learns_a_vector_of_its_own():
    encoder = ConditionEncoder(GraphSizes((2,), category_conditions=(3,)), 32)
    torch.nn.init.normal_(encoder.after.weight)
    category = torch.tensor([[0], [2]])
    encoder(Conditions(torch.zeros(2, 0), category)).after_BJD[:, 4].square().sum().backward()
    grown = (
        encoder.stage_categories.weight.grad.view(4, len(POSITION_BUCKETS) + 1, 32).abs().sum(2) > 0
    )
    assert grown[1:, 4].tolist() == [True, False, True]
    assert not grown[:, [0, 1, 2, 3, 5]].any()


def test_tokens_get_the_vector_of_their_graph_and_bucket():
    encoder = ConditionEncoder(GraphSizes((2,)), 32)
    stages = encoder.bucket(torch.tensor([0, 1, 2, 3, 4, 5, 8, 9, 512, 513, 9000])).tolist()
    assert stages == [0, 1, 2, 3, 3, 4, 4, 5, 10, 11, 11]
    vectors = torch.arange(6.0).view(2, 3, 1)
    found = at_tokens(vectors, torch.tensor([0, 0, 1]), torch.tensor([0, 2, 1]))
    assert found[:, 0].tolist() == [0.0, 2.0, 4.0]
    encoder = ConditionEncoder(SIZES, 16, position_buckets=())
    assert encoder(some_conditions()).before_BJD.shape == (4, 1, 16)
    assert encoder.bucket(torch.tensor([0, 7, 10**6])).tolist() == [0, 0, 0]


def test_dropping_hides_about_the_asked_fraction_and_nothing_at_zero():
    whole = Conditions(torch.zeros(2000, 1), torch.zeros(2000, 1, dtype=torch.int64))
    dropped = drop_conditions(whole, 0.2, torch.Generator().manual_seed(0))
    assert abs(dropped.numeric_BC.isnan().float().mean() - 0.36) < 0.05
    assert abs((dropped.category_BM == -1).float().mean() - 0.36) < 0.05
    kept = drop_conditions(whole, 0.0, torch.Generator())
    assert not kept.numeric_BC.isnan().any()
    assert not (kept.category_BM == -1).any()


SIZES = GraphSizes((2,), numeric_conditions=2, category_conditions=(3, 2))


def noisy_encoder(sizes: GraphSizes = SIZES) -> ConditionEncoder:
    """An encoder of which no weight is zero."""
    torch.manual_seed(0)
    encoder = ConditionEncoder(sizes, 16, position_buckets=(1, 4))
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return encoder


def some_conditions(graphs: int = 4) -> Conditions:
    generator = torch.Generator().manual_seed(2)
    numbers = torch.randn(graphs, 2, generator=generator)
    codes = torch.randint(2, (graphs, 2), generator=generator)
    return Conditions(numbers, codes)


def test_an_untrained_encoder_gives_every_position_the_same_and_adds_nothing_behind():
    found = ConditionEncoder(SIZES, 16)(some_conditions())
    assert torch.equal(found.before_BJD, found.before_BJD[:, :1].expand_as(found.before_BJD))
    assert found.before_BJD.any()
    assert not found.after_BJD.any()


def test_each_condition_changes_the_vectors_of_its_graph_alone():
    encoder, plain = noisy_encoder(), some_conditions()
    wanted = encoder(plain)
    for column in range(2):
        for part in ("numeric_BC", "category_BM"):
            changed = getattr(plain, part).clone()
            changed[1, column] = 1 - changed[1, column]
            other = encoder(replace(plain, **{part: changed}))
            for name in ("before_BJD", "after_BJD"):
                moved_BJ = (getattr(other, name) != getattr(wanted, name)).any(2)
                assert moved_BJ[1].all()
                assert not moved_BJ[[0, 2, 3]].any()


def test_an_unknown_category_has_a_vector_of_its_own():
    encoder = noisy_encoder(GraphSizes((2,), category_conditions=(3,)))
    every = encoder(Conditions(torch.zeros(4, 0), torch.tensor([[-1], [0], [1], [2]]))).before_BJD
    distance = torch.cdist(every[:, 0], every[:, 0])
    assert (distance + torch.eye(4) > 1e-2).all()


def test_numbers_far_beyond_the_data_are_taken_for_ten_standard_deviations():
    encoder = noisy_encoder(GraphSizes((2,), numeric_conditions=1))
    far = torch.tensor([[10.0], [1e9], [-10.0], [-1e9]])
    found = encoder(Conditions(far, torch.zeros(4, 0, dtype=torch.int64))).before_BJD
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[2], found[3])
    assert not torch.allclose(found[0], found[2])


def test_vectors_of_some_graphs_are_selected_in_the_order_asked_for():
    encoder, plain = noisy_encoder(), some_conditions()
    rows = torch.tensor([3, 0, 0])
    found, wanted = encoder(plain).select(rows), encoder(plain.of(rows))
    torch.testing.assert_close(found.before_BJD, wanted.before_BJD)
    torch.testing.assert_close(found.after_BJD, wanted.after_BJD)


def test_without_any_condition_there_is_nothing_to_add():
    encoder = noisy_encoder(GraphSizes((2,)))
    found = encoder(Conditions(torch.zeros(3, 0), torch.zeros(3, 0, dtype=torch.int64)))
    assert found.before_BJD.shape == (3, 3, 16)
    assert not found.before_BJD.any()


def trained_remaining() -> RemainingSizes:
    torch.manual_seed(0)
    remaining = RemainingSizes(16)
    torch.nn.init.normal_(remaining.lift.weight)
    return remaining


def sizes_of(nodes: list[float], layers: list[float]) -> torch.Tensor:
    return torch.tensor([nodes, layers]).T


def test_remaining_sizes_add_nothing_untrained_or_where_none_are_asked_for():
    position_T, layer_T = torch.tensor([0, 5]), torch.tensor([0, 2])
    sizes_T2 = sizes_of([20.0, 20.0], [7.0, 7.0])
    assert not any(part.any() for part in RemainingSizes(16)(position_T, layer_T, sizes_T2))
    unknown_T2 = torch.full((2, 2), torch.nan)
    assert not any(part.any() for part in trained_remaining()(position_T, layer_T, unknown_T2))


@pytest.mark.parametrize("counted", ["nodes", "layers"])
def test_remaining_sizes_tell_apart_what_is_left_and_what_is_there(counted):
    done_T, asked_T = torch.tensor([10, 90, 10, 45, 0]), [20.0, 100.0, 100.0, 90.0, 1e6]
    zero_T, unknown_T = torch.zeros_like(done_T), [torch.nan] * 5
    if counted == "nodes":
        parts = trained_remaining()(done_T, zero_T, sizes_of(asked_T, unknown_T))
    else:
        parts = trained_remaining()(zero_T, done_T, sizes_of(unknown_T, asked_T))
    for part in parts:
        assert part.isfinite().all()
        assert (torch.cdist(part, part) + 9 * torch.eye(5) > 0.1).all()


def test_beyond_the_numbers_asked_for_nothing_is_left():
    sizes_T2 = sizes_of([100.0, 100.0], [10.0, 10.0])
    before_TD, after_TD = trained_remaining()(
        torch.tensor([130, 200]), torch.tensor([13, 20]), sizes_T2
    )
    assert torch.equal(before_TD[0], before_TD[1])
    assert torch.equal(after_TD[0], after_TD[1])


def remaining_case(tokens: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Positions, layers, and sizes asked for: unknown, below one, below what is there, large."""
    generator = torch.Generator().manual_seed(seed)
    position_T = torch.randint(0, 3000, (tokens,), generator=generator)
    sizes_T2 = 10 ** (6 * torch.rand(tokens, 2, generator=generator) - 1)
    sizes_T2[torch.rand(tokens, 2, generator=generator) < 0.3] = torch.nan
    return position_T, position_T // 3, sizes_T2


@tried(60)
@given(st.integers(0, 40), st.integers(0, 2**32 - 1))
def test_remaining_sizes_are_those_of_pytorch_and_so_is_their_gradient(tokens, seed):
    remaining, (position_T, layer_T, sizes_T2) = trained_remaining(), remaining_case(tokens, seed)
    exact, found = deepcopy(remaining).double(), []
    for module, asked_T2 in ((remaining, sizes_T2), (exact, sizes_T2.double())):
        with kernels_run() as kernels:
            both_T2D = torch.cat(module(position_T, layer_T, asked_T2), dim=1)
        assert ("remaining" in kernels) is (module is remaining)
        (of_lift,) = torch.autograd.grad(both_T2D.square().sum(), list(module.parameters()))
        found.append((both_T2D, of_lift))
    for one, wanted in zip(*found, strict=True):
        assert far_apart(one, wanted) < 3e-6


def test_remaining_sizes_are_left_to_pytorch_without_gradients_and_where_a_gradient_is_asked_for():
    remaining, (position_T, layer_T, sizes_T2) = trained_remaining(), remaining_case(9, 0)
    fused = remaining(position_T, layer_T, sizes_T2)
    with kernels_run() as kernels:
        with torch.no_grad():
            without = remaining(position_T, layer_T, sizes_T2)
        asked_T2 = sizes_T2.nan_to_num(7.0).requires_grad_()
        (of_sizes_T2,) = torch.autograd.grad(
            remaining(position_T, layer_T, asked_T2)[0].sum(), asked_T2
        )
    assert kernels == []
    assert of_sizes_T2.any()
    torch.testing.assert_close(fused, without)


def test_sizes_of_training_graphs_are_asked_for_within_a_few_percent():
    sizes_B2 = torch.full((4000, 2), 500)
    ratio_B2 = noisy_sizes(sizes_B2, torch.Generator().manual_seed(0)) / 500
    assert 0.02 < ratio_B2.log().std() < 0.05
    assert (ratio_B2.log().mean(0).abs() < 0.005).all()
    assert torch.equal(noisy_sizes(sizes_B2, None), sizes_B2.float())


def test_dropping_conditions_hides_each_of_the_two_sizes():
    numbers, none = torch.zeros(500, 1), torch.zeros(500, 0, dtype=torch.int64)
    whole = Conditions(numbers, none, torch.ones(500, 2))
    dropped = drop_conditions(whole, 0.2, torch.Generator().manual_seed(0))
    hidden_B2 = dropped.sizes_B2.isnan()
    assert ((hidden_B2.float().mean(0) - 0.36).abs() < 0.1).all()
    assert hidden_B2[:, 0].logical_xor(hidden_B2[:, 1]).any()
    assert hidden_B2[:, 0].logical_xor(dropped.numeric_BC[:, 0].isnan()).any()


WIDTH, HEADS = 8, 2


def encoder_block(**settings: object) -> EncoderBlock:
    torch.manual_seed(3)
    return EncoderBlock(WIDTH, HEADS, EncoderConfig(**settings)).eval()


def noise(rows: int) -> Tensor:
    return torch.randn(rows, WIDTH, generator=torch.Generator().manual_seed(1))


def attended_by_hand(layer: EncoderBlock, x_TD: Tensor, layout: BatchLayout, block: int) -> Tensor:
    """Each token attends to its block and the one before, and to a mean of each older block."""
    query_TD, key_TD, value_TD = layer.query_key_value(layer.norm(x_TD)).chunk(3, dim=-1)
    rows = []
    for token in range(layout.num_tokens):
        start = int(layout.start_B[layout.graph_T[token]])
        older = max((token - start) // block - 1, 0)
        near = torch.arange(start + older * block, token + 1)
        far = [torch.arange(start + i * block, start + (i + 1) * block) for i in range(older)]
        keys = torch.cat([key_TD[near], *(key_TD[i].mean(0, keepdim=True) for i in far)])
        values = torch.cat([value_TD[near], *(value_TD[i].mean(0, keepdim=True) for i in far)])
        penalty = torch.cat([(token - near).float(), torch.zeros(older)])
        heads = []
        for head, slope in enumerate(alibi_slopes(HEADS, x_TD.device)):
            part = slice(head * WIDTH // HEADS, (head + 1) * WIDTH // HEADS)
            score = keys[:, part] @ query_TD[token, part] / math.sqrt(WIDTH / HEADS)
            heads.append((score - slope * penalty).softmax(0) @ values[:, part])
        rows.append(torch.cat(heads))
    return torch.stack(rows)


@pytest.mark.parametrize("block", [1, 2, 3, 64])
def test_attention_is_that_of_each_token_over_its_window_and_the_means_of_older_blocks(block):
    batch = collated(small_dags(2))
    layout, context = context_of(batch, block)
    layer, x_TD = encoder_block(messages="none"), noise(layout.num_tokens)
    wanted = attended_by_hand(layer, x_TD, layout, block)
    torch.testing.assert_close(
        layer(x_TD, context),
        layer.finish(x_TD, torch.cat([wanted, torch.zeros_like(wanted)], dim=-1)),
    )


def test_messages_are_the_mean_of_the_parents_values():
    batch = collated(small_dags(2))
    layout, context = context_of(batch, 4)
    layer, x_TD = encoder_block(attention="none"), noise(layout.num_tokens)
    value_TD = layer.query_key_value(layer.norm(x_TD)).chunk(3, dim=-1)[2]
    message_TD = torch.zeros_like(x_TD)
    for token in range(layout.num_tokens):
        parents = context.tokens.parent_E[context.tokens.child_E == token]
        if parents.numel():
            message_TD[token] = value_TD[parents].mean(0)
    torch.testing.assert_close(
        layer(x_TD, context),
        layer.finish(x_TD, torch.cat([torch.zeros_like(x_TD), message_TD], dim=-1)),
    )


def test_without_attention_and_messages_tokens_are_alone_with_the_same_parameters():
    layout, context = context_of(collated(small_dags(1)), 4)
    layer, x_TD = encoder_block(attention="none", messages="none"), noise(layout.num_tokens)
    one_by_one = [layer.finish(row, 0 * row.repeat(1, 2)) for row in x_TD[:, None]]
    torch.testing.assert_close(layer(x_TD, context), torch.cat(one_by_one))
    whole, bare = encoder_block(), encoder_block(attention="none", messages="none")
    assert whole.state_dict().keys() == bare.state_dict().keys()
    for name, weight in whole.state_dict().items():
        assert torch.equal(weight, bare.state_dict()[name]), name


@pytest.mark.parametrize("heads", [1, 2, 4, 8])
def test_the_penalty_halves_by_equal_steps_and_the_last_head_has_none(heads):
    slopes = alibi_slopes(heads, torch.device("cpu"))
    assert slopes[-1] == 0
    wanted = [2 ** (-8 * h / heads) for h in range(1, heads)]
    assert slopes[:-1].tolist() == pytest.approx(wanted)


def test_block_sums_add_the_tokens_of_each_block_in_single_precision():
    layout, context = context_of(collated(small_dags(3)), 3)
    ones = torch.ones(layout.num_tokens, 2, dtype=torch.bfloat16)
    found = block_sum(ones, context.tokens.blocks)
    assert found.dtype == torch.float32
    assert found[:, 0].tolist() == torch.bincount(context.tokens.blocks.of_T).tolist()


NO_EDGE = torch.zeros(2, 0, dtype=torch.int64)


def test_counts_at_each_token_of_a_small_graph():
    """0 -> 1, 0 -> 2, 1 -> 3, 0 -> 3; layers {0}, {1, 2}, {3}."""
    dag = DAG.build(
        torch.zeros(4, 1, dtype=torch.int64), torch.tensor([[0, 0, 0, 1], [1, 2, 3, 3]])
    )
    batch = collated([dag, dag])
    layout = BatchLayout.from_batch(batch)
    edges = Edges.from_batch(batch, layout)
    structure = structural_features(layout, edges, edges.out_degree_T)
    expected = {
        Feature.DEGREE: [0, 0, 1, 1, 2],
        Feature.OUT_DEGREE: [0, 3, 1, 0, 0],
        Feature.SIZE: [1, 1, 2, 2, 1],
        Feature.LEFT: [0, 0, 1, 0, 0],
        Feature.OPEN: [0, 3, 3, 2, 0],
        Feature.OPEN_LAYER: [0, 3, 1, 1, 0],
        Feature.OPEN_BEFORE: [0, 0, 2, 1, 0],
        Feature.POSITION: [0, 1, 2, 3, 4],
        Feature.LAYER: [0, 0, 1, 1, 2],
    }
    for name, row in expected.items():
        assert structure[:, name].tolist() == row * 2, name


def features(*dags: DAG, plans: bool = True) -> tuple[BatchLayout, torch.Tensor]:
    batch = collated(list(dags))
    layout = BatchLayout.from_batch(batch)
    edges = Edges.from_batch(batch, layout)
    out_degree_T = edges.out_degree_T if plans else torch.zeros_like(edges.out_degree_T)
    return layout, structural_features(layout, edges, out_degree_T)


def test_features_of_a_batch_are_those_of_its_graphs():
    dags = small_dags(4)
    _, together = features(*dags)
    alone = torch.cat([features(dag)[1] for dag in dags])
    assert torch.equal(together, alone)


def test_pending_children_are_those_that_later_nodes_take():
    dag = small_dags(4)[-1]
    layout, structure = features(dag)
    source, target = dag.edge_index_2E
    layer_N = dag.layers()
    for node, token in enumerate(layout.token_N.tolist()):
        pending = (source <= node) & (target > node)
        own_layer = layer_N[source] == layer_N[node]
        before = layer_N[source] == layer_N[node] - 1
        assert structure[token, Feature.OPEN] == pending.sum()
        assert structure[token, Feature.OPEN_LAYER] == (pending & own_layer).sum()
        # Of the layer before: predicted children less the edges to this layer so far.
        reached = before & (target <= node) & (layer_N[target] == layer_N[node])
        assert structure[token, Feature.OPEN_BEFORE] == before.sum() - reached.sum()


def test_without_out_degrees_only_edges_so_far_are_counted():
    layout, structure = features(*small_dags(2), plans=False)
    assert not structure[:, Feature.OUT_DEGREE].any()
    assert (structure[:, Feature.OPEN] <= 0).all()
    edges = structure[:, Feature.DEGREE].sum()
    assert -structure[layout.end_B - 1, Feature.OPEN].sum() == edges


def test_start_tokens_have_a_code_of_their_own():
    torch.manual_seed(0)
    embedding = TokenEmbedding(MODEL_SIZES, 8)
    _, structure = features(DAG.build(torch.zeros(1, 3, dtype=torch.int64), NO_EDGE))
    first = torch.stack([embedding.start_A, torch.zeros(3, dtype=torch.int64)])
    start, node = embedding(first, structure)
    assert embedding.start_A.tolist() == list(MODEL_SIZES.attributes)
    assert not torch.allclose(start, node)
    assert embedding.embedding.weight.shape[0] == sum(MODEL_SIZES.attributes) + 3 + (
        len(Feature) * embedding.scale.num_codes
    )


def test_negative_counts_are_embedded_as_zero():
    embedding = TokenEmbedding(MODEL_SIZES, 8)
    codes = torch.zeros(1, 3, dtype=torch.int64)
    none, fewer, more = torch.zeros(3, 1, len(Feature), dtype=torch.int64)
    fewer[0, Feature.OPEN], fewer[0, Feature.OPEN_BEFORE], more[0, Feature.OPEN] = -5, -1, 5
    assert torch.equal(embedding(codes, none), embedding(codes, fewer))
    assert not torch.equal(embedding(codes, none), embedding(codes, more))


class Recurrent(Encoder):
    """A GRU over the tokens of a graph."""

    def __init__(self, width: int, depth: int, config: EncoderConfig) -> None:
        super().__init__(width, depth, config)
        self.cell = nn.GRU(width, width, depth, batch_first=True)

    def full(self, x_TD: Tensor, tokens: TokenGraphs) -> Tensor:
        return tokens.flat(self.cell(tokens.padded(x_TD))[0])

    def start(self, like_RD: Tensor) -> Tensor:
        return like_RD.new_zeros(like_RD.shape[0], self.depth, self.width)

    def step(self, x_RD: Tensor, newest: NewestTokens, memory: Tensor) -> tuple[Tensor, Tensor]:
        found, memory = self.cell(x_RD[:, None], memory.transpose(0, 1).contiguous())
        return found[:, 0], memory.transpose(0, 1)


@pytest.fixture
def recurrent():
    register_encoder("test-gru")(Recurrent)
    yield "test-gru"
    ENCODERS.unregister("test-gru")


def test_step_after_step_gives_the_states_of_all_tokens_at_once():
    layout, tokens = tokens_of(collated(small_dags(1)), 4)
    torch.manual_seed(0)
    encoder = Recurrent(8, 2, EncoderConfig()).eval()
    x_TD = torch.randn(layout.num_tokens, 8)
    none = torch.zeros(0, dtype=torch.int64)
    memory, found = encoder.start(x_TD[:1]), []
    with torch.no_grad():
        for position in range(layout.num_tokens):
            newest = NewestTokens(position, ParentList(none, none, torch.zeros(1).long()))
            state, memory = encoder.step(x_TD[position : position + 1], newest, memory)
            found.append(state)
        torch.testing.assert_close(torch.cat(found), encoder.full(x_TD, tokens))


def test_padded_and_flat_are_inverse_and_the_means_are_those_of_parents():
    layout, tokens = tokens_of(collated(small_dags(3)), 4)
    x_TD = torch.randn(layout.num_tokens, 5)
    assert torch.equal(tokens.flat(tokens.padded(x_TD)), x_TD)
    mean_TD = tokens.parents_mean(x_TD)
    child = int(tokens.child_E[-1])
    parents = tokens.parent_E[tokens.child_E == child]
    torch.testing.assert_close(mean_TD[child], x_TD[parents].mean(0))


def test_memory_of_tensors_tuples_and_dicts_is_selected_by_rows():
    encoder = Recurrent(8, 1, EncoderConfig())
    rows, a = torch.tensor([2, 0]), torch.arange(3.0)
    kept = encoder.select({"a": a, "b": (a, [2 * a])}, rows)
    assert kept["a"].tolist() == [2, 0]
    assert kept["b"][1][0].tolist() == [4, 0]


class Steps(NamedTuple):
    """A memory that counts steps."""

    count_R: Tensor
    state: dict[str, Tensor]


class Counting(Recurrent):
    """Notes the position of each step, which is that of all rows."""

    positions: ClassVar[list[int]] = []

    def start(self, like_RD: Tensor) -> Steps:
        state = {"hidden": super().start(like_RD)}
        return Steps(torch.zeros(like_RD.shape[0], dtype=torch.int64), state)

    def step(self, x_RD: Tensor, newest: NewestTokens, memory: Steps) -> tuple[Tensor, Steps]:
        assert memory.count_R.tolist() == [newest.position] * x_RD.shape[0]
        self.positions.append(newest.position)
        found, hidden = super().step(x_RD, newest, memory.state["hidden"])
        return found, Steps(memory.count_R + 1, {"hidden": hidden})


@pytest.mark.parametrize("best_of", [1, 3])
@pytest.mark.parametrize("in_torch", [False, True])
def test_an_encoder_takes_one_step_for_each_position_of_all_graphs(best_of, in_torch, monkeypatch):
    """With particles, guidance and a check, while graphs end one after the other."""
    if in_torch:
        sampling_in_torch(monkeypatch.setattr)
    model = small_model(small_dags())
    torch.manual_seed(0)
    model.encoder = Counting(32, 1, EncoderConfig()).eval()
    with torch.no_grad():
        model.heads.size_readout.project.bias[0] += 2.5  # most graphs end before the limit
    asked = request(24, best_of=best_of, guidance=1.5, check=OddKinds(), max_nodes=60)
    together = model.sample(asked).dags
    assert Counting.positions == list(range(len(Counting.positions)))
    for index in (0, 7, 23):
        one = request(1, best_of=best_of, guidance=1.5, check=OddKinds(), max_nodes=60)
        Counting.positions.clear()
        (alone,) = model.sample(replace(one, seeds=(100 + index,))).dags
        assert torch.equal(alone.x_NA, together[index].x_NA)
        assert torch.equal(alone.edge_index_2E, together[index].edge_index_2E)
    assert len({dag.num_nodes for dag in together}) > 3
    Counting.positions.clear()


class Wider(Recurrent):
    def step(self, x_RD: Tensor, newest: NewestTokens, memory: Tensor) -> tuple[Tensor, Tensor]:
        found, memory = super().step(x_RD, newest, memory)
        return torch.cat([found, found], dim=1), memory


@pytest.mark.parametrize("in_torch", [False, True])
def test_states_of_another_shape_are_refused(in_torch, monkeypatch):
    if in_torch:
        sampling_in_torch(monkeypatch.setattr)
    model = small_model(small_dags())
    model.encoder = Wider(32, 1, EncoderConfig()).eval()
    with pytest.raises(UsageError, match=r"encoder Wider must return .* \(2, 32\); it returned"):
        model.sample(request(2))


def test_the_model_samples_valid_graphs_whatever_the_seeds_beside_them(recurrent):
    dags = small_dags()
    config = FastConfig(width=32, depth=1, encoder=EncoderConfig(kind=recurrent))
    torch.manual_seed(0)
    model = FastLayerDAG(MODEL_SIZES, GraphStatistics.measure(dags, MODEL_SIZES), config).eval()
    found = model.sample(request(3, best_of=2)).dags
    assert len(found) == 3
    for dag in found:
        dag.check()


def test_it_is_trained_sampled_and_saved_by_name(recurrent, tmp_path):
    data = ld.load_dataset("latent_preferential", num_train=6, num_val=2, num_test=2)
    plain = {"width": 32, "depth": 1, "settings": ld.TrainSettings(max_steps=1)}
    checkpoint = ld.train(data, encoder={"kind": recurrent}, out=tmp_path / "run", **plain)
    assert len(ld.sample(checkpoint, num=1, max_nodes=10)) == 1
    best = tmp_path / "run/best"
    assert ld.load_checkpoint(best).spec.config.encoder.kind == recurrent
    ENCODERS.unregister(recurrent)
    with pytest.raises(CheckpointError, match=r"no encoder 'test-gru'.*Register it"):
        ld.load_checkpoint(best)


def test_names_that_nothing_has_and_things_that_are_none_are_refused():
    with pytest.raises(ConfigError, match=r"There is no encoder 'windo'\. Did you mean 'window'"):
        ENCODERS.get("windo")
    with pytest.raises(UsageError, match="encoder 'window' is one of layerdag itself"):
        register_encoder("window")(Recurrent)
    with pytest.raises(UsageError, match="must be a subclass of"):
        ENCODERS.register("os", Path)
