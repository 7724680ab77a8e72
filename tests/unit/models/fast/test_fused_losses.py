"""Losses and gradients that kernels compute are those of PyTorch's operators, of any batch.

Shape letters: A readouts, D width of a state, E edges, G softmaxes, K codes, P pairs, Q decisions,
R rows, T tokens, V codes of an embedding, Z attention blocks, d width of a key.
"""

import math
import threading
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import torch
from fused_kernels import far_apart, kernels_run
from hypothesis import given, strategies as st
from laws import tried
from random_graphs import random_dag
from torch import Tensor, nn
from torch.nn import functional as F

from layerdag.dag.dag import DAG, DAGBatch, GraphSizes
from layerdag.dag.statistics import GraphStatistics
from layerdag.models.config import EncoderConfig, FastConfig, HeadsConfig
from layerdag.models.fast.decisions import Heads, Readout, _ragged_loss
from layerdag.models.fast.fused_losses import _FEW_CODES, ReadoutChain, pointer_loss
from layerdag.models.fast.layout import BLOCK_CODES, TOKEN_CODES, CandidatePairs
from layerdag.models.fast.model import FastLayerDAG
from layerdag.models.fast.targets import NOT_A_TARGET, TrainingCandidates

TIGHT = 2e-5  # of the largest number of a gradient
LOOSE = 0.1  # in bfloat16, through several layers
STATES = {"states", "states_backward"}
DECISIONS = {"embed", "embed_backward", "cross_entropy", "readout", "shift", "pointer"} | STATES
LINEAR = {"activate", "activate_backward"}
READS = {"windows", "attend", "reads", "reads_backward", "attend_backward", "windows_backward"}
BY_HAND = {"layer_size": 1.0, "node": 0.7, "edge": 1.3}  # weights of the objectives


@dataclass(frozen=True)
class Case:
    """A model and a batch that it learns from; ``layers`` are the layers' sizes of each graph."""

    layers: tuple[tuple[int, ...], ...] = ((2, 3, 2), (1,), (4, 4, 3, 2, 1))
    attributes: tuple[int, ...] = (5, 3, 4)
    edge_types: int = 2
    width: int = 64
    block: int = 4
    plans: bool = True
    heads: HeadsConfig = field(default_factory=HeadsConfig)
    attention: str = "window"
    messages: str = "mean"
    extra_edges: float = 1.0
    seed: int = 0

    @property
    def sizes(self) -> GraphSizes:
        return GraphSizes(self.attributes, edge_types=self.edge_types)

    def dags(self) -> list[DAG]:
        rng = np.random.default_rng(self.seed)
        return [
            random_dag(
                rng,
                list(layers),
                list(self.attributes),
                extra_edges=self.extra_edges,
                num_edge_types=self.edge_types,
            )
            for layers in self.layers
        ]

    def model(self) -> FastLayerDAG:
        encoder = EncoderConfig(
            block=self.block,
            attention=self.attention,
            messages=self.messages,
            dropout=0.0,
            token_dropout=0.0,
        )
        config = FastConfig(
            width=self.width,
            depth=2,
            predict_out_degree=self.plans,
            encoder=encoder,
            heads=self.heads,
        )
        torch.manual_seed(self.seed % 2**32)
        statistics = GraphStatistics.measure(self.dags(), self.sizes)
        model = FastLayerDAG(self.sizes, statistics, config)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
        return model.eval()

    def batch(self) -> DAGBatch:
        return unconditional(self.dags())


def unconditional(dags: list[DAG]) -> DAGBatch:
    none = torch.zeros(len(dags), 0)
    return DAGBatch.from_dags(dags, none, none.long())


def losses_and_gradients(
    model: FastLayerDAG, batch: DAGBatch
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return each loss, and the gradients of their weighted sum by parameters' names."""
    terms = model.losses(batch, torch.Generator())
    total = torch.stack([BY_HAND[name] * term.total.double() for name, term in terms.items()]).sum()
    free = {name: p for name, p in model.named_parameters() if p.requires_grad}
    found = torch.autograd.grad(total, list(free.values()), allow_unused=True)
    gradients = {n: g for n, g in zip(free, found, strict=True) if g is not None}
    return {name: term.total.detach() for name, term in terms.items()}, gradients


def exactly(model: FastLayerDAG, batch: DAGBatch) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the same in double precision, where PyTorch's operators compute it."""
    with kernels_run() as kernels:
        found = losses_and_gradients(deepcopy(model).double(), batch)
    assert not kernels
    return found


def require_alike(found: Any, wanted: Any, tolerance: float) -> None:
    for name, loss in wanted[0].items():
        assert float(found[0][name]) == pytest.approx(float(loss), rel=tolerance, abs=1e-6), name
    largest = max(float(gradient.abs().max()) for gradient in wanted[1].values())
    for name, gradient in wanted[1].items():
        assert name in found[1]
        # Small sums of large terms are as exact as these.
        size = max(float(gradient.abs().max()), 0.01 * largest)
        error = float((found[1][name].double() - gradient.double()).abs().max())
        assert error < tolerance * size, name
    for name in found[1].keys() - wanted[1].keys():
        assert not found[1][name].any(), name


def not_needed(model: FastLayerDAG) -> set[str]:
    """Return kernels of decisions that a model has no use for."""
    readouts = [each for each in model.modules() if isinstance(each, Readout)]
    few = [each.project.out_features <= _FEW_CODES for each in readouts]
    unused = {"cross_entropy": all(few), "readout": not any(few)}
    unused["shift"] = model.heads.num_chained == 0
    unused |= dict.fromkeys(STATES, model.heads.chosen_parents is not None)
    return {name for name, is_unused in unused.items() if is_unused}


def check(case: Case, *, kernels_wanted: set[str] = DECISIONS | LINEAR | READS) -> None:
    model, batch = case.model(), case.batch()
    with kernels_run() as kernels:
        found = losses_and_gradients(model, batch)
    assert set(kernels) == kernels_wanted - not_needed(model)
    require_alike(found, exactly(model, batch), TIGHT)


LAYERS = st.lists(st.integers(1, 6), min_size=1, max_size=6).map(tuple)
CASES = st.builds(
    Case,
    layers=st.lists(LAYERS, min_size=1, max_size=4).map(tuple),
    attributes=st.sampled_from([(5, 3, 4), (7, 2), (3, 9, 2, 33), (60, 3, 51)]),
    edge_types=st.sampled_from([1, 3]),
    width=st.sampled_from([32, 64, 96]),
    block=st.sampled_from([1, 2, 5, 8, 64]),
    plans=st.booleans(),
    heads=st.builds(
        HeadsConfig,
        attributes=st.sampled_from(["chained", "independent"]),
        parent_features=st.sampled_from(["dynamic", "none"]),
        chosen_parents=st.sampled_from(["last", "all"]),
    ),
    extra_edges=st.sampled_from([0.0, 1.0, 4.0]),
    seed=st.integers(0, 2**32 - 1),
)


@tried(40)
@given(CASES)
def test_losses_and_gradients_are_those_of_double_precision(case):
    check(case)


@pytest.mark.parametrize("block", [1, 8, 16, 64])
def test_in_long_graphs_older_blocks_are_seen_as_means(block):
    case = Case(layers=((3,) * 45, (2,) * 7, (1,), (5,) * 13), block=block, extra_edges=2.0)
    assert case.batch().node_ptr.diff().tolist() == [135, 14, 1, 65]
    check(case)


def test_the_last_block_may_see_as_many_means_as_there_is_room_for():
    case = Case(layers=((3,) * 25, (2,) * 9), block=8, extra_edges=2.0)
    model, batch = case.model(), case.batch()
    assert bool(model.derived(batch).derived.blocks.pooled_valid_Zz.all(dim=1).any())
    check(case)


@pytest.mark.parametrize("plans", [True, False])
@pytest.mark.parametrize("attributes", [(4,), (4, 3), (60,), (60, 51)])
def test_nodes_may_have_one_attribute_and_no_out_degree(attributes, plans):
    check(Case(attributes=attributes, plans=plans))


@pytest.mark.parametrize("layers", [((1,),), ((1,), (1,)), ((3,), (2,))])
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_graphs_may_have_no_edges(layers, precision):
    case = Case(layers=layers)
    model, batch = case.model(), case.batch()
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == torch.bfloat16):
        found = losses_and_gradients(model, batch)
    assert found[0]["edge"] == 0
    require_alike(found, exactly(model, batch), TIGHT if precision == torch.float32 else LOOSE)


@pytest.mark.parametrize(
    ("left_out", "kernels"),
    [
        ({"attention": "none"}, DECISIONS | LINEAR),
        ({"messages": "none"}, DECISIONS | LINEAR),
        ({"attention": "none", "messages": "none"}, DECISIONS | LINEAR),
    ],
)
def test_what_the_encoder_leaves_out_is_left_out(left_out, kernels):
    check(Case(layers=((2,) * 20, (3, 1)), **left_out), kernels_wanted=kernels)


@pytest.mark.parametrize("block", [4, 64])
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("room", [1.0, 1.7])
def test_padding_changes_nothing(block, precision, room):
    small = Case(block=block)
    large = replace(small, layers=(*small.layers, (2, 5, 3, 3), (2,) * 17), seed=3)
    model = large.model()
    batch, larger = (model.derived(case.batch()) for case in (small, large))
    sizes = {
        name: math.ceil(room * max(size, model.padded_sizes(batch)[name]))
        for name, size in model.padded_sizes(larger).items()
    }
    padded = model.padded(batch, sizes)
    with (
        torch.autocast("cpu", torch.bfloat16, enabled=precision == torch.bfloat16),
        kernels_run() as kernels,
    ):
        found = losses_and_gradients(model, padded)
    assert set(kernels) == (DECISIONS | LINEAR | READS) - not_needed(model)
    require_alike(found, exactly(model, batch), TIGHT if precision == torch.float32 else LOOSE)


@pytest.mark.parametrize("frozen", ["encoder", "heads.pointer", "heads.kind", "norm", "bias"])
def test_gradients_of_free_parameters_do_not_depend_on_frozen_ones(frozen):
    case = Case()
    model, batch = case.model(), case.batch()
    _, wanted = losses_and_gradients(model, batch)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(frozen not in name)
    with kernels_run() as kernels:
        _, found = losses_and_gradients(model, batch)
    assert set(kernels) >= DECISIONS - not_needed(model)
    assert found.keys() == {name for name in wanted if frozen not in name}
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, wanted[name])


def test_frozen_models_have_losses():
    case = Case()
    model, batch = case.model(), case.batch()
    wanted, _ = exactly(model, batch)
    model.requires_grad_(False)
    for name, term in model.losses(batch, torch.Generator()).items():
        assert not term.total.requires_grad
        assert float(term.total) == pytest.approx(float(wanted[name]), rel=TIGHT)


@pytest.mark.parametrize("block", [8, 64])
@pytest.mark.parametrize("heads", [HeadsConfig(), HeadsConfig(chosen_parents="all")])
def test_under_autocast_losses_are_as_exact_as_those_of_operators(block, heads):
    case = Case(layers=((3,) * 30, (2, 4, 2), (1,)), block=block, heads=heads)
    model, batch = case.model(), case.batch()
    with torch.autocast("cpu", torch.bfloat16), kernels_run() as kernels:
        found = losses_and_gradients(model, batch)
    assert set(kernels) == (DECISIONS | LINEAR | READS) - not_needed(model)
    wanted = exactly(model, batch)
    for name, loss in wanted[0].items():
        assert float(found[0][name]) == pytest.approx(float(loss), rel=3e-3), name
    require_alike(found, wanted, LOOSE)


def test_gradients_of_states_may_have_gaps():
    case = Case()
    model, batch = case.model(), case.model().derived(case.batch())
    targets, heads = batch.derived, model.heads
    encoded_TD = torch.randn(len(targets.graph_T), case.width).requires_grad_()
    found = heads.fused_states(encoded_TD, targets)
    assert found is not None
    gradients = [torch.randn(state.shape) for state in found[0]]
    wanted = torch.autograd.grad(found[0], encoded_TD, gradients, retain_graph=True)
    apart = [gradient.T.contiguous().T for gradient in gradients]
    torch.testing.assert_close(torch.autograd.grad(found[0], encoded_TD, apart), wanted)


def test_a_graph_that_is_kept_gives_the_same_gradients_again():
    case = Case()
    model = case.model()
    parameters = list(model.parameters())
    terms = model.losses(case.batch(), torch.Generator())
    total = torch.stack([term.total for term in terms.values()]).sum()
    once = torch.autograd.grad(total, parameters, retain_graph=True, allow_unused=True)
    again = torch.autograd.grad(3 * total, parameters, allow_unused=True)
    for one, other in zip(once, again, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(3 * one, other)


@pytest.mark.parametrize("name", ["encoder.0.query_key_value.weight", "last_norm.weight"])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_weights_that_are_no_numbers_show_in_every_loss(name, value):
    case = Case(layers=((3,) * 20,))
    model = case.model()
    with torch.no_grad():
        model.get_parameter(name).view(-1)[3] = value
    terms = model.losses(case.batch(), torch.Generator())
    assert not any(bool(term.total.isfinite()) for term in terms.values())


def test_hooks_of_readouts_and_of_their_maps_are_called():
    case, calls = Case(), []
    model, batch = case.model(), case.batch()
    wanted = losses_and_gradients(model, batch)
    heads = model.heads
    watched = [heads.kind_readout, heads.type_readout.norm, heads.plan_readout.project]
    watched += [heads.pointer.query, model.encoder.encoder_blocks[0].query_key_value]
    for module in watched:
        module.register_forward_hook(lambda module, *given: calls.append(module))
    found = losses_and_gradients(model, batch)
    assert set(calls) == set(watched)
    require_alike(found, wanted, TIGHT)


def test_threads_do_not_disturb_one_another():
    case = Case(layers=((3,) * 30,))
    model, batch = case.model(), case.batch()
    wanted, start = losses_and_gradients(model, batch), threading.Barrier(2)

    def found(number: int) -> Any:
        start.wait()
        return [losses_and_gradients(model, batch) for _ in range(3)]

    with ThreadPoolExecutor(2) as pool:
        for results in pool.map(found, range(2)):
            for one in results:
                torch.testing.assert_close(one, wanted)


@dataclass
class Chain:
    """Readouts that are computed here as they are defined."""

    norms: list[nn.LayerNorm]
    map_AKD: list[Tensor]
    bias_AK: list[Tensor]
    table_VD: list[Tensor]

    @classmethod
    def drawn(cls, codes: list[int], embedded: int, width: int = 16) -> "Chain":
        generator = torch.Generator().manual_seed(len(codes))

        def number(*shape: int) -> Tensor:
            return torch.randn(shape, generator=generator).requires_grad_()

        def norm(width: int) -> nn.LayerNorm:
            found = nn.LayerNorm(width, bias=False)
            found.weight.data = number(width).detach()
            return found

        return cls(
            [norm(width) for _ in codes],
            [number(each, width) for each in codes],
            [number(each) for each in codes],
            [number(each, width) for each in codes[:embedded]],
        )

    @property
    def leaves(self) -> list[Tensor]:
        return [*(norm.weight for norm in self.norms), *self.map_AKD, *self.bias_AK, *self.table_VD]

    def fused(self, dtype: torch.dtype = torch.float32) -> ReadoutChain:
        return ReadoutChain(self.norms, self.map_AKD, self.bias_AK, self.table_VD, dtype)

    def loss(
        self, state_RD: Tensor, chosen_RA: Tensor, code_RA: Tensor, first_R: Tensor | None = None
    ) -> Tensor:
        loss = state_RD.new_zeros(())
        for a, (norm, map_KD, bias_K) in enumerate(
            zip(self.norms, self.map_AKD, self.bias_AK, strict=True)
        ):
            logits_RK = F.gelu(norm(state_RD)) @ map_KD.T + bias_K
            if a == 0 and first_R is not None:
                none_K = torch.arange(len(bias_K)) == 0
                logits_RK = logits_RK.masked_fill(first_R[:, None] & none_K, -torch.inf)
            loss = loss + F.cross_entropy(
                logits_RK, chosen_RA[:, a], reduction="sum", ignore_index=NOT_A_TARGET
            )
            if a < len(self.table_VD):
                state_RD = state_RD + self.table_VD[a][code_RA[:, a]]
        return loss


def chosen_of(rows: int, codes: list[int], generator: torch.Generator) -> Tensor:
    return torch.stack([torch.randint(k, (rows,), generator=generator) for k in codes], dim=1)


@pytest.mark.parametrize("rows", [0, 1, 7, 70])
@pytest.mark.parametrize(
    ("codes", "embedded"), [([5], 0), ([5, 1, 33], 2), ([2, 8], 1), ([49, 48, 20, 17], 3)]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_readouts_follow_one_another(rows, codes, embedded, dtype, generator):
    chain = Chain.drawn(codes, embedded)
    state_RD = torch.randn(rows, 16, generator=generator).requires_grad_()
    code_RA = chosen_of(rows, codes, generator)
    chosen_RA = code_RA.masked_fill(torch.rand(code_RA.shape, generator=generator) < 0.2, -100)
    leaves = [state_RD, *chain.leaves]
    found = chain.fused(dtype).loss(state_RD, chosen_RA, code_RA)
    wanted = chain.loss(state_RD, chosen_RA, code_RA)
    tight, loose = (1e-5, 1e-5) if dtype == torch.float32 else (0.02, 0.05)
    assert float(found.detach()) == pytest.approx(float(wanted.detach()), rel=tight)
    for one, other in zip(
        torch.autograd.grad(2 * found, leaves), torch.autograd.grad(2 * wanted, leaves), strict=True
    ):
        assert far_apart(one, other) < loose


def test_the_first_code_can_be_excluded_row_by_row(generator):
    chain = Chain.drawn([6, 3], 1)
    state_RD = torch.randn(9, 16, generator=generator).requires_grad_()
    first_R = (torch.arange(18) % 4 == 0)[::2]
    code_RA = chosen_of(9, [6, 3], generator)
    code_RA[:, 0] = code_RA[:, 0].clamp(min=1)
    code_RA[1, 0] = 0
    leaves = [state_RD, *chain.leaves]
    found, wanted = (
        way(state_RD, code_RA, code_RA, first_R) for way in (chain.fused().loss, chain.loss)
    )
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(
        torch.autograd.grad(found, leaves), torch.autograd.grad(wanted, leaves)
    )
    code_RA[0, 0] = 0  # which is impossible there
    assert chain.fused().loss(state_RD, code_RA, code_RA, first_R) == torch.inf


def test_codes_and_states_may_have_gaps_and_other_types(generator):
    chain = Chain.drawn([5, 4, 3], 2)
    state_RD = torch.randn(6, 16, generator=generator)
    code_RA = chosen_of(6, [5, 4, 3], generator)
    wanted = chain.fused().loss(state_RD, code_RA, code_RA)
    apart_RA = torch.stack([code_RA, code_RA + 1], dim=-1)[..., 0]
    for codes in (code_RA.T.contiguous().T, apart_RA, code_RA.int()):
        assert torch.equal(chain.fused().loss(state_RD, codes, codes), wanted)
    assert torch.equal(chain.fused().loss(state_RD.T.contiguous().T, code_RA, code_RA), wanted)
    low_RD = state_RD.bfloat16()
    assert torch.equal(
        chain.fused().loss(low_RD, code_RA, code_RA),
        chain.fused().loss(low_RD.float(), code_RA, code_RA),
    )


@pytest.fixture
def double_by_default():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def test_numbers_are_of_single_precision_whatever_the_default_is(double_by_default):
    torch.set_default_dtype(torch.float32)
    case = Case(layers=((3,) * 20,))
    model, batch = case.model(), case.batch()
    wanted = losses_and_gradients(model, batch)
    torch.set_default_dtype(torch.float64)
    require_alike(losses_and_gradients(model, batch), wanted, TIGHT)


@pytest.mark.parametrize("codes", [[5, 4, 2], [50, 60, 70]])
@pytest.mark.parametrize(("row", "column", "code"), [(0, 0, 70), (2, 1, -1), (1, 1, 2**40)])
def test_codes_that_the_model_does_not_have_are_refused(row, column, code, codes, generator):
    chain, state_RD = Chain.drawn(codes, 2), torch.randn(3, 16, generator=generator)
    code_RA = chosen_of(3, codes, generator)
    wrong_RA = code_RA.clone()
    wrong_RA[row, column] = code
    for chosen_RA, embedded_RA in ((wrong_RA, code_RA), (code_RA, wrong_RA)):
        with pytest.raises((IndexError, RuntimeError)):
            chain.fused().loss(state_RD, chosen_RA, embedded_RA)


def test_scores_far_apart_and_no_numbers_at_all_are_told_apart(generator):
    chain, state_RD = Chain.drawn([4], 0), torch.randn(2, 16, generator=generator)
    code_RA = torch.tensor([[1], [2]])
    with torch.no_grad():
        chain.bias_AK[0].copy_(torch.tensor([0.0, 300.0, -300.0, 0.0]))
    found, wanted = (way(state_RD, code_RA, code_RA) for way in (chain.fused().loss, chain.loss))
    torch.testing.assert_close(found, wanted)
    assert found > 500
    with torch.no_grad():
        chain.bias_AK[0][3] = torch.nan
    assert chain.fused().loss(state_RD, code_RA, code_RA).isnan()


@dataclass
class Pairs:
    """Random decisions among tokens and blocks, the last softmax and its pairs being padding."""

    projection_QK: Tensor
    key_Td: Tensor
    key_Zd: Tensor
    candidates: TrainingCandidates

    @classmethod
    def drawn(cls, seed: int, scale: float = 1.0, *, empty: bool = False) -> "Pairs":
        rng = np.random.default_rng(seed)
        width, tokens, blocks = int(rng.choice([8, 32])), int(rng.integers(1, 9)), 3
        decisions = int(rng.integers(1, 6))
        near = int(rng.integers(decisions, 30))
        far = int(rng.integers(2, 9))
        softmax_P = rng.integers(0, decisions, near + far)
        softmax_P[:decisions] = range(decisions)  # none is empty
        softmax_P[near], softmax_P[-1] = 0, decisions
        chosen = [rng.choice(np.flatnonzero(softmax_P == g)) for g in range(decisions + 1)]
        padding = [0.0] * decisions + [1.0] * (1 + empty)

        def number(*shape: int) -> Tensor:
            values = torch.from_numpy(scale * rng.standard_normal(shape)).float()
            return values.requires_grad_()

        def whole(top: int, *shape: int) -> Tensor:
            return torch.from_numpy(rng.integers(0, top, shape))

        codes_P4 = torch.stack([whole(top, near) for top in TOKEN_CODES], dim=1).contiguous()
        candidates = TrainingCandidates(
            CandidatePairs(whole(decisions, near), whole(tokens, near)),
            codes_P4,
            CandidatePairs(whole(decisions, far), whole(blocks, far)),
            whole(BLOCK_CODES, far),
            torch.from_numpy(softmax_P),
            torch.tensor(chosen + [near + far - 1] * empty),
            torch.tensor(padding),
        )
        columns = 2 * width + sum(TOKEN_CODES) + BLOCK_CODES
        return cls(
            number(decisions, columns), number(tokens, width), number(blocks, width), candidates
        )

    @property
    def leaves(self) -> list[Tensor]:
        return [self.projection_QK, self.key_Td, self.key_Zd]

    def fused(self) -> Tensor:
        return pointer_loss(*self.leaves, self.candidates)

    def exact(self) -> tuple[Tensor, ...]:
        """The loss and its gradients in double precision, pair by pair."""
        leaves = [leaf.detach().double().requires_grad_() for leaf in self.leaves]
        projection_QK, key_Td, key_Zd = leaves
        candidates, width = self.candidates, key_Td.shape[1]
        sizes = (width, width, sum(TOKEN_CODES), BLOCK_CODES)
        query_Qd, far_Qd, code_QK, block_QK = projection_QK.split(sizes, dim=1)
        tokens, blocks = candidates.tokens, candidates.blocks
        start_4 = torch.tensor([0, *TOKEN_CODES]).cumsum(0)[:4]
        scores = []
        for q, t, codes_4 in zip(
            tokens.decision_P, tokens.candidate_P, candidates.codes_P4, strict=True
        ):
            scores.append(
                query_Qd[q] @ key_Td[t] / width**0.5 + code_QK[q, start_4 + codes_4].sum()
            )
        for q, z, code in zip(
            blocks.decision_P, blocks.candidate_P, candidates.block_codes_P, strict=True
        ):
            scores.append(far_Qd[q] @ key_Zd[z] / width**0.5 + block_QK[q, code])
        loss = _ragged_loss(
            torch.stack(scores), candidates.softmax_P, candidates.chosen_G, candidates.padding_G
        )
        return loss, *torch.autograd.grad(loss, leaves)


@given(st.integers(0, 2**32 - 1), st.sampled_from([1e-3, 1.0, 6.0]))
def test_parents_are_chosen_among_tokens_and_blocks(seed, scale):
    pairs = Pairs.drawn(seed, scale)
    loss, wanted = pairs.fused(), pairs.exact()
    torch.testing.assert_close(loss.double(), wanted[0], rtol=1e-5, atol=1e-5)
    found = torch.autograd.grad(-2 * loss, pairs.leaves)
    for one, other in zip(found, wanted[1:], strict=True):
        torch.testing.assert_close(one.double(), -2 * other, rtol=1e-4, atol=1e-5)


def test_softmaxes_that_only_pad_a_batch_may_be_empty():
    pairs, other = Pairs.drawn(4, empty=True), Pairs.drawn(4)
    torch.testing.assert_close(pairs.fused(), other.fused())
    found = (torch.autograd.grad(each.fused(), each.leaves) for each in (pairs, other))
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("wrong", [-1, 10**6])
def test_parents_that_are_no_candidates_are_refused(wrong):
    pairs = Pairs.drawn(5)
    pairs.candidates.chosen_G[0] = wrong
    with pytest.raises(IndexError, match="cannot be chosen"):
        pairs.fused()


@pytest.mark.parametrize("gradients", [True, False])
def test_a_parent_that_a_node_has_twice_is_refused(gradients):
    edges_2E = torch.tensor([[0, 0, 0], [1, 1, 2]])
    dag = DAG.build(torch.zeros(3, 3, dtype=torch.int64), edges_2E)
    model = Case().model()
    with torch.set_grad_enabled(gradients), pytest.raises((IndexError, RuntimeError)):
        model.losses(unconditional([dag]), torch.Generator())


@pytest.mark.parametrize("leaf", [0, 1, 2])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_scores_that_are_no_numbers_show_in_the_loss(leaf, value):
    pairs = Pairs.drawn(1)
    with torch.no_grad():
        pairs.leaves[leaf].fill_(value)
    assert not pairs.fused().isfinite()


def test_numbers_in_bfloat16_and_with_gaps_are_taken_as_they_are():
    pairs = Pairs.drawn(2)
    wanted = pairs.fused()
    apart = [leaf.detach().T.contiguous().T for leaf in pairs.leaves]
    assert torch.equal(pointer_loss(*apart, pairs.candidates), wanted)
    low = [leaf.detach().bfloat16().requires_grad_() for leaf in pairs.leaves]
    rounded = pointer_loss(*low, pairs.candidates)
    rounded_gradients = torch.autograd.grad(rounded, low)
    pairs = replace(
        pairs,
        **dict(
            zip(
                ("projection_QK", "key_Td", "key_Zd"),
                [leaf.detach().float().requires_grad_() for leaf in low],
                strict=True,
            )
        ),
    )
    assert torch.equal(rounded, pairs.fused())
    for one, other in zip(
        rounded_gradients, torch.autograd.grad(pairs.fused(), pairs.leaves), strict=True
    ):
        assert torch.equal(one, other.bfloat16())


def test_double_gradients_are_refused():
    pairs = Pairs.drawn(3)
    (gradient,) = torch.autograd.grad(pairs.fused().square(), pairs.key_Td, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


def test_a_state_in_bfloat16_may_have_one_readout(generator):
    chain = Chain.drawn([9], 0)
    state_RD = torch.randn(6, 16, generator=generator).bfloat16().requires_grad_()
    chosen_RA = chosen_of(6, [9], generator)
    found = chain.fused(torch.bfloat16).loss(state_RD, chosen_RA)
    wanted = chain.loss(state_RD.float(), chosen_RA, chosen_RA)
    assert float(found.detach()) == pytest.approx(float(wanted.detach()), rel=0.02)
    (gradient_RD,) = torch.autograd.grad(chain.fused().loss(state_RD, chosen_RA), state_RD)
    assert gradient_RD.dtype == torch.bfloat16


class OtherHeads(Heads):
    """Reads a kind as nothing."""

    def degree_state(self, state_ND: Tensor, kind_N: Tensor) -> Tensor:
        return state_ND + self.kind_embedding(torch.zeros_like(kind_N)[:, None])


def test_states_of_a_class_of_ones_own_are_its_own():
    case = Case()
    model, batch = case.model(), case.batch()
    usual, _ = losses_and_gradients(model, batch)
    model.heads.__class__ = OtherHeads
    found, _ = losses_and_gradients(model, batch)
    with torch.no_grad():
        wanted = {name: t.total for name, t in model.losses(batch, torch.Generator()).items()}
    assert {name: float(x) for name, x in found.items()} == {
        name: pytest.approx(float(x), rel=1e-5) for name, x in wanted.items()
    }
    assert float(usual["edge"]) != pytest.approx(float(found["edge"]), rel=1e-4)
