"""What sampling keeps is found again, wherever it lies and whatever rows were let go."""

from collections.abc import Callable
from dataclasses import fields

import numpy as np
import pytest
import torch
from small_models import collated, request, sampling_in_torch, small_dags, small_model, tokens_of
from torch import Tensor

from layerdag.dag.dag import DAG
from layerdag.models.config import ConditioningConfig, EncoderConfig, HeadsConfig
from layerdag.models.fast import candidates, sampler, tensor_sampler
from layerdag.models.fast.constraints import DegreeConstraints
from layerdag.models.fast.encoder import (
    EncoderBlockCache,
    PagedBuffer,
    ParentList,
    PositionBuffer,
    VisibleWindow,
    WindowEncoder,
    alibi_slopes,
)
from layerdag.models.fast.layout import NEVER, BatchLayout, Edges, visible_range
from layerdag.models.fast.model import GRAPH_OBJECTIVES, FastLayerDAG
from layerdag.models.fast.sampler_state import (
    SLOTS_PER_PARENT,
    EncoderCache,
    OutputBuffer,
    RandomSlot,
    SamplerState,
)
from layerdag.models.fast.tokens import StructuralFeatures

ROWS, POSITIONS, BLOCK, WIDTH = 5, 23, 4, 3


def written(cache: PositionBuffer | PagedBuffer) -> torch.Tensor:
    """Fill a cache position by position; return what was written, (rows, positions, width)."""
    value = torch.arange(ROWS * POSITIONS * WIDTH, dtype=torch.float32)
    value = value.view(ROWS, POSITIONS, WIDTH)
    for position in range(POSITIONS):
        cache.write(position, value[:, position])
    return value


def test_pages_and_columns_give_back_what_was_written_as_they_grow():
    pages = PagedBuffer(ROWS, BLOCK, torch.zeros(1, WIDTH))
    columns = PositionBuffer(ROWS, (WIDTH,), torch.float32, torch.device("cpu"))
    row, position = torch.meshgrid(torch.arange(ROWS), torch.arange(POSITIONS), indexing="ij")
    for cache in (pages, columns):
        value = written(cache)
        found = cache.at(row.flatten(), position.flatten())
        assert torch.equal(found.view_as(value), value)


def test_rows_that_are_kept_keep_their_vectors():
    pages = PagedBuffer(ROWS, BLOCK, torch.zeros(1, WIDTH))
    value = written(pages)
    pages.select(torch.tensor([4, 1]))
    found = pages.at(torch.tensor([0, 1, 0]), torch.tensor([22, 3, 4]))
    assert torch.equal(found, torch.stack([value[4, 22], value[1, 3], value[4, 4]]))


@pytest.mark.parametrize("block", [1, 2, 3, 64])
def test_one_token_at_a_time_gives_the_encodings_of_the_whole_graph(block):
    """Keys, values and pooled blocks from the cache, against one pass over all tokens."""
    dags = small_dags(2)
    layout, tokens = tokens_of(collated(dags[:1]), block)
    torch.manual_seed(0)
    encoder = WindowEncoder(64, 2, EncoderConfig(block=block)).eval()
    x_TD = torch.randn(layout.num_tokens, 64)
    with torch.no_grad():
        wanted = encoder.full(x_TD, tokens)
        cache = EncoderCache(encoder, block, 64, x_TD[:1])
        found = []
        for position in range(layout.num_tokens):
            parents = tokens.parent_E[tokens.child_E == position]
            listed = ParentList(torch.zeros_like(parents), parents, torch.tensor([len(parents)]))
            found.append(cache.encode(x_TD[position : position + 1], position, listed))
            cache.append(position, found[-1], found[-1])
    torch.testing.assert_close(torch.cat(found), wanted)


def test_letting_a_row_go_keeps_the_attention_of_the_others():
    generator = torch.Generator().manual_seed(0)
    slope = alibi_slopes(2, torch.device("cpu"))
    whole, kept = (EncoderBlockCache(3, 2, BLOCK, torch.zeros(3, 8)) for _ in range(2))
    rows = torch.tensor([2, 0])
    for position in range(9):
        key, value, query = torch.randn(3, 3, 8, generator=generator)
        whole.write(position, key, value)
        if position == 5:
            kept.select(rows)
        kept.write(position, *((key, value) if position < 5 else (key[rows], value[rows])))
    visible = VisibleWindow.at_position(8, BLOCK, slope)
    torch.testing.assert_close(
        kept.attend(query[rows], visible), whole.attend(query, visible)[rows]
    )


def test_the_window_is_the_own_page_and_the_one_before():
    for position, low, pooled in ((0, 0, 0), (3, 0, 0), (4, 0, 0), (8, 4, 1), (13, 8, 2)):
        assert visible_range(position, BLOCK) == (low, pooled)
        visible = VisibleWindow.at_position(position, BLOCK, torch.ones(1))
        assert visible.pages.start * BLOCK == low
        seen = visible.bias_H1w.isfinite().sum()
        assert seen == position - low + 1 + pooled


def test_a_node_without_parents_gets_no_message():
    none = torch.zeros(0, dtype=torch.int64)
    parents = ParentList(none, none, torch.tensor([0, 0]))
    assert parents.mean(torch.zeros(0, 3)).tolist() == [[0.0] * 3] * 2
    one = ParentList(torch.tensor([1, 1]), torch.tensor([0, 2]), torch.tensor([0, 2]))
    assert one.mean(torch.tensor([[1.0], [4.0]])).tolist() == [[0.0], [2.5]]


@pytest.mark.parametrize("positions", [64, 200])
def test_a_buffer_of_numbers_grows_and_new_positions_are_zero(positions):
    buffer = PositionBuffer(2, (), torch.int64, torch.device("cpu"))
    for position in range(positions):
        buffer.write(position, position + 1)
    assert buffer.data[:, :positions].tolist() == [list(range(1, positions + 1))] * 2
    assert not buffer.data[:, positions:].any()


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

    sampling_in_torch(patch)
    for part in (candidates, sampler, tensor_sampler):
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
    model.sample(request(1, **asked, max_nodes=60, nodes_B=nodes_B, layers_B=layers_B))
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


CPU = torch.device("cpu")
SEEDS = np.array([11, 12, 0], dtype=np.uint64)
"""Of two samples and the padding sample."""


def rows(*values: int) -> torch.Tensor:
    return torch.tensor(values)


def filled() -> OutputBuffer:
    """Sample 0 has nodes 5 -> 7, sample 1 node 6 alone; the padding sample is written to, too."""
    output = OutputBuffer(SEEDS, CPU)
    output.add_nodes(rows(0, 1), torch.tensor([[5], [6]]), rows(0, 0))
    output.add_nodes(rows(0, 2), torch.tensor([[7], [9]]), rows(1, 1))
    output.add_edges(rows(0, 2), rows(1, 1), rows(2, 2), rows(3, 0))
    return output


def test_every_sample_gets_its_own_nodes_and_edges():
    first, second = filled().result().dags
    assert first.x_NA.tolist() == [[5], [7]]
    assert first.edge_index_2E.tolist() == [[0], [1]]
    assert first.edge_type_E.tolist() == [3]
    assert second.x_NA.tolist() == [[6]]
    assert second.num_edges == 0
    assert [dag.check().layer_N.tolist() for dag in (first, second)] == [[0, 1], [0]]


def test_rows_in_any_order_are_sorted_out():
    output = OutputBuffer(SEEDS, CPU)
    output.add_nodes(rows(1, 0), torch.tensor([[6], [5]]), rows(0, 0))
    output.add_nodes(rows(0), torch.tensor([[7]]), rows(1))
    output.add_edges(rows(0), rows(1), rows(2), rows(3))
    for found, wanted in zip(output.result().dags, filled().result().dags, strict=True):
        assert torch.equal(found.x_NA, wanted.x_NA)
        assert torch.equal(found.u_NA, wanted.u_NA)
        assert torch.equal(found.edge_index_2E, wanted.edge_index_2E)


def test_the_truncated_samples_are_told():
    output = filled()
    assert output.result().truncated == (False, False)
    output.truncate(np.array([1]))
    assert output.result().truncated == (False, True)


def test_nothing_at_all_and_a_graph_without_a_node_are_errors():
    with pytest.raises(ValueError, match="no graph has a node, as where every probability is NaN"):
        OutputBuffer(SEEDS, CPU).result()
    output = OutputBuffer(SEEDS, CPU)
    output.add_nodes(rows(0, 2), torch.tensor([[5], [5]]), rows(0, 0))
    with pytest.raises(ValueError, match="a graph has no node"):
        output.result()


def test_no_two_decisions_about_a_node_take_the_same_uniform():
    pairs = ("LAYER_SIZE", "FIRST_PARENT", "IN_DEGREE", "OUT_DEGREE")
    taken = [RandomSlot[name] + i for name in pairs for i in range(2)]
    # A thousand attributes and 20 000 parents are more than a graph may have.
    taken += [RandomSlot.KIND, *range(RandomSlot.ATTRIBUTE, RandomSlot.ATTRIBUTE + 1000)]
    parents = range(
        RandomSlot.FURTHER_PARENT, RandomSlot.FURTHER_PARENT + 20_000 * SLOTS_PER_PARENT
    )
    assert len(taken) == len(set(taken))
    assert max(taken) < parents.start
    assert parents.stop < RandomSlot.POSITION_IN_BIN


def replayed(dag: DAG, state: SamplerState, *, plans: bool) -> list[StructuralFeatures]:
    """Return what ``state`` (of one row) knows after each token of a graph."""
    layer_N = dag.layers()
    size_L = torch.bincount(layer_N)
    source, target = dag.edge_index_2E
    out_degree_N = torch.bincount(source, minlength=dag.num_nodes) * plans
    found, row = [state.structure], torch.tensor([0])
    for node in range(dag.num_nodes):
        state.start_node(node + 1, size_L[layer_N[node]][None])
        for parent in source[target == node]:
            state.connect(row, parent[None] + 1)
        state.set_out_degree(node + 1, out_degree_N[node][None], out_degree_N[node][None])
        found.append(state.structure)
    return found


@pytest.mark.parametrize("plans", [True, False])
def test_the_features_of_each_token_are_those_of_training(plans):
    for dag in small_dags(3):
        batch = collated([dag])
        layout = BatchLayout.from_batch(batch)
        edges = Edges.from_batch(batch, layout)
        wanted = StructuralFeatures.from_layout(layout, edges, edges.out_degree_T * plans)
        found = replayed(dag, SamplerState.start(1, CPU), plans=plans)
        for field in fields(StructuralFeatures):
            steps = torch.cat([getattr(structure, field.name) for structure in found])
            assert steps.tolist() == getattr(wanted, field.name).tolist(), field.name


def test_uses_and_remaining_capacity_of_every_position_are_kept():
    dag = small_dags(3)[-1]
    state = SamplerState.start(1, CPU)
    replayed(dag, state, plans=True)
    source, target = dag.edge_index_2E
    positions = range(1, dag.num_nodes + 1)
    children = [target[source == position - 1] + 1 for position in positions]
    assert state.used.data[0, 1 : dag.num_nodes + 1].tolist() == [len(c) for c in children]
    last = [int(c.max()) if len(c) else NEVER for c in children]
    assert state.last.data[0, 1 : dag.num_nodes + 1].tolist() == last
    assert not state.capacity.data[0, 1 : dag.num_nodes + 1].any()
    assert state.layer.data[0, 1 : dag.num_nodes + 1].tolist() == dag.layers().tolist()


def test_the_sibling_is_forgotten_with_its_layer():
    state = SamplerState.start(2, CPU)
    state.start_node(1, torch.tensor([1, 2]))
    state.sibling_B = torch.tensor([7, 7])
    state.start_node(2, torch.tensor([1, 9]))
    assert state.sibling_B.tolist() == [NEVER, 7]
    assert state.structure.layer_T.tolist() == [1, 0]
    # The row whose layer goes on takes no new size.
    assert state.structure.size_T.tolist() == [1, 2]
    assert state.structure.left_T.tolist() == [0, 0]


def test_rows_that_are_kept_take_all_they_know_with_them():
    state = SamplerState.start(3, CPU)
    state.start_node(1, torch.tensor([1, 2, 3]))
    state.set_out_degree(1, torch.tensor([4, 5, 6]), torch.tensor([7, 8, 9]))
    state.select(torch.tensor([2, 0]))
    assert state.structure.size_T.tolist() == [3, 1]
    assert state.out_degree.data[:, 1].tolist() == [6, 4]
    assert state.capacity.data[:, 1].tolist() == [9, 7]
    state.start_node(2, torch.tensor([8, 8]))
    assert state.structure.index_T.tolist() == [1, 0]


def test_an_edge_touches_its_own_row_alone():
    state = SamplerState.start(2, CPU)
    for position in (1, 2):
        state.start_node(position, torch.tensor([1, 1]))
        state.set_out_degree(position, torch.tensor([3, 3]), torch.tensor([3, 3]))
    state.connect(torch.tensor([1]), torch.tensor([1]))
    assert state.used.data[:, 1].tolist() == [0, 1]
    assert state.capacity.data[:, 1].tolist() == [3, 2]
    assert state.structure.degree_T.tolist() == [0, 1]
    assert state.structure.open_T.tolist() == [6, 5]
