"""A linear map of activated rows is PyTorch's, with all gradients, wherever it is computed.

Shape letters: D width of a row, F columns of codes, G groups of rows, K width of an input, R rows,
V edges among rows.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial

import pytest
import torch
from fused_kernels import far_apart, kernels_run
from hypothesis import given, strategies as st
from laws import tried
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.module import register_module_forward_hook
from torch.nn.utils import parametrize

from layerdag.models.fast.encoder import FeedForward
from layerdag.models.fused import (
    Activation,
    activated,
    activated_linear,
    embedding_sum,
    matrix,
    pool,
    product_dtype,
    product_rows,
    rounded_size,
)
from layerdag.models.layers import (
    MessagePassingLayer,
    SumEmbedding,
    segment_log_sum_exp,
    segment_max,
    segment_mean,
)

NORMS = ("none", "weight", "weight and bias")
TIGHT, LOOSE = 3e-6, 2e-2  # of the largest number; eight bits of bfloat16 are 4e-3


def bfloat16() -> AbstractContextManager[None]:
    return torch.autocast("cpu", torch.bfloat16)


@dataclass
class Map:
    """A linear map, what comes before it, and what it is given."""

    activation: Activation
    linear: nn.Linear
    x: Tensor
    gradient: Tensor

    @classmethod
    def drawn(
        cls,
        shape: tuple[int, ...] = (5, 24),
        *,
        outputs: int = 7,
        norm: str = "weight",
        gelu: bool = True,
        bias: bool = True,
        scale: float = 1.0,
        seed: int = 0,
    ) -> "Map":
        generator = torch.Generator().manual_seed(seed)
        before = None if norm == "none" else nn.LayerNorm(shape[-1], bias="bias" in norm)
        after = nn.Linear(shape[-1], outputs, bias=bias)
        for module in (before, after):
            for parameter in () if module is None else module.parameters():
                parameter.data = torch.randn(parameter.shape, generator=generator)
        x = (scale * torch.randn(shape, generator=generator)).requires_grad_()
        gradient = torch.randn(*shape[:-1], outputs, generator=generator)
        return cls(Activation(before, gelu), after, x, gradient)

    @property
    def leaves(self) -> list[Tensor]:
        norm = self.activation.norm
        return [self.x, *(norm.parameters() if norm else ()), *self.linear.parameters()]

    def double(self) -> "Map":
        return Map(
            replace(self.activation, norm=_double(self.activation.norm)),
            _double(self.linear),
            self.x.detach().double().requires_grad_(),
            self.gradient.double(),
        )

    def __call__(self) -> Tensor:
        return activated_linear(self.activation, self.linear, self.x)

    def results(self) -> list[Tensor]:
        """The output, then the gradient of each leaf."""
        found = self()
        return [found, *torch.autograd.grad(found, self.leaves, self.gradient.to(found.dtype))]

    def wanted(self) -> list[Tensor]:
        """The same by PyTorch's modules in double precision."""
        exact = self.double()
        found = exact.linear(exact.activation(exact.x))
        return [found, *torch.autograd.grad(found, exact.leaves, exact.gradient)]


def _double(module: nn.Module | None) -> nn.Module | None:
    return None if module is None else deepcopy(module).double()


MAPS = st.builds(
    Map.drawn,
    st.sampled_from([(1,), (0,), (2,), (9,), (40,), (3, 5), (2, 0), (1, 1, 3)]).flatmap(
        lambda rows: st.sampled_from([8, 24, 136]).map(lambda width: (*rows, width))
    ),
    outputs=st.sampled_from([1, 7, 8, 33]),
    norm=st.sampled_from(NORMS),
    gelu=st.booleans(),
    bias=st.booleans(),
    scale=st.sampled_from([1e-30, 1e-3, 1.0, 30.0]),
    seed=st.integers(0, 2**32 - 1),
)


@tried(80)
@given(MAPS)
def test_output_and_gradients_are_those_of_pytorch_in_single_precision(case):
    with kernels_run() as kernels:
        found = case.results()
    assert kernels[:2] == ["activate", "activate_backward"]
    for one, wanted in zip(found, case.wanted(), strict=True):
        assert one.dtype == torch.float32
        assert far_apart(one, wanted) < TIGHT


@tried(60)
@given(MAPS, st.booleans())
def test_under_autocast_they_are_as_exact_as_bfloat16(case, is_low):
    if is_low:
        case.x = case.x.detach().bfloat16().requires_grad_()
    with bfloat16(), kernels_run() as kernels:
        found = case.results()
    assert kernels[:2] == ["activate", "activate_backward"]
    leaves = [found[0], *case.leaves]
    for one, leaf, wanted in zip(found, leaves, case.wanted(), strict=True):
        assert one.dtype == leaf.dtype
        assert far_apart(one, wanted) < LOOSE
    assert found[0].dtype == torch.bfloat16


@pytest.mark.parametrize("precision", [nullcontext, bfloat16])
def test_gelu_is_exact_far_from_zero_and_near_it(precision):
    ends = torch.tensor([0.0, -0.0, 1e-30, -1e-30, 1e30, -1e30, 1e3, -1e3])
    x_RK = torch.cat([torch.linspace(-30, 30, 8 * 700), ends]).view(-1, 8).requires_grad_()
    with precision():
        dtype = product_dtype(x_RK)
        found_RK, slope_RK = Activation(None, gelu=True).fused(x_RK, len(x_RK), dtype)
    exact_RK = x_RK.detach().double().requires_grad_()
    wanted_RK = F.gelu(exact_RK)
    (wanted_slope_RK,) = torch.autograd.grad(wanted_RK.sum(), exact_RK)
    tolerance = 1e-6 if dtype == torch.float32 else 4e-3
    torch.testing.assert_close(found_RK.double(), wanted_RK, rtol=tolerance, atol=1e-6)
    torch.testing.assert_close(slope_RK.double(), wanted_slope_RK, rtol=tolerance, atol=4e-7)


@pytest.mark.parametrize("precision", [nullcontext, bfloat16])
@pytest.mark.parametrize("gelu", [True, False])
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("fault", [torch.nan, torch.inf, -torch.inf])
def test_a_training_run_notices_numbers_that_are_none(fault, norm, gelu, precision):
    case = Map.drawn((4, 24), norm=norm, gelu=gelu)
    with torch.no_grad():
        case.x[1, 17] = fault
    with precision():
        found, *gradients = case.results()
    assert found.isfinite().all(dim=1).tolist() == [True, False, True, True]
    assert not gradients[-2].isfinite().all()
    case = Map.drawn((4, 24), norm=norm, gelu=gelu)
    case.gradient[2, 3] = fault
    with precision():
        for gradient in case.results()[1:]:
            assert not gradient.isfinite().all()


def test_bfloat16_rounds_to_the_nearest_and_ties_to_even():
    bits = torch.randint(-(2**31), 2**31, (4096,), dtype=torch.int64).to(torch.int32)
    ties = (bits & ~0xFFFF) | 0x8000
    edges = torch.tensor([0x7F7FFFFF, 0x7F800000, 0x7FC00001, 0x7F800001, 1, 0x8000, 0x18000])
    x_RK = torch.cat([bits, ties, edges.to(torch.int32), -edges.to(torch.int32)])
    x_RK = x_RK[: len(x_RK) // 8 * 8].view(torch.float32).view(-1, 8)
    found_RK, _ = Activation(None, gelu=False).fused(x_RK, len(x_RK) + 3, torch.bfloat16)
    assert torch.equal(found_RK[:-3].isnan(), x_RK.isnan())
    wanted_RK = x_RK.bfloat16().nan_to_num(7.0)
    assert torch.equal(found_RK[:-3].nan_to_num(7.0), wanted_RK)
    assert not found_RK[-3:].any()


def transposed(x: Tensor) -> Tensor:
    return x.detach().T.contiguous().T


def every_second(x: Tensor) -> Tensor:
    return torch.stack([x.detach(), x.detach() + 1], dim=-1)[..., 0]


@pytest.mark.parametrize("precision", [nullcontext, bfloat16])
@pytest.mark.parametrize("other", [transposed, every_second])
def test_gaps_between_numbers_change_nothing(other, precision):
    case = Map.drawn((6, 24), norm="weight and bias")
    with precision():
        wanted = case.results()
    case.x, case.gradient = other(case.x).requires_grad_(), other(case.gradient)
    assert not case.x.is_contiguous()
    assert not case.gradient.is_contiguous()
    with precision():
        torch.testing.assert_close(case.results(), wanted)


def test_a_gradient_that_is_one_number_is_that_of_every_output():
    case = Map.drawn()
    found = torch.autograd.grad(case().sum(), case.leaves)
    case.gradient = torch.ones_like(case.gradient)
    torch.testing.assert_close(list(found), case.results()[1:])


@given(st.tuples(*(st.booleans() for _ in range(5))))
def test_what_is_frozen_has_no_gradient_and_the_rest_the_same(frozen):
    case = Map.drawn(norm="weight and bias")
    wanted = case.results()[1:]
    for leaf, is_frozen in zip(case.leaves, frozen, strict=True):
        leaf.requires_grad_(not is_frozen)
    with kernels_run() as kernels:
        found = case()
        if not all(frozen):
            found.backward(case.gradient)
    assert "activate" in kernels
    assert found.requires_grad == (not all(frozen))
    for leaf, is_frozen, gradient in zip(case.leaves, frozen, wanted, strict=True):
        assert (leaf.grad is None) == is_frozen
        if not is_frozen:
            torch.testing.assert_close(leaf.grad, gradient)


@pytest.mark.parametrize("precision", [nullcontext, bfloat16])
def test_a_graph_that_is_kept_gives_the_same_gradients_again(precision):
    case = Map.drawn(norm="weight and bias")
    with precision():
        found = case()
    gradient = case.gradient.to(found.dtype)
    once = torch.autograd.grad(found, case.leaves, gradient, retain_graph=True)
    again = torch.autograd.grad(found, case.leaves, gradient)
    torch.testing.assert_close(once, again, rtol=0, atol=0)


def test_gradients_of_gradients_are_refused():
    case = Map.drawn()
    (gradient,) = torch.autograd.grad(case().square().sum(), case.x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


def test_gradients_are_by_the_parameters_that_the_output_was_computed_with():
    case = Map.drawn(norm="weight and bias")
    wanted = case.results()[1:]
    found = case()
    norm = case.activation.norm
    own = norm.weight, norm.bias
    norm.weight, norm.bias = (nn.Parameter(torch.full_like(p, 5.0)) for p in own)
    leaves = [case.x, *own, *case.linear.parameters()]
    gradients = torch.autograd.grad(found, leaves, case.gradient)
    torch.testing.assert_close(list(gradients), wanted, rtol=0, atol=0)


def other_weights(case: Map, dtype: torch.dtype) -> AbstractContextManager[None]:
    case.activation.norm.to(dtype)
    case.linear.to(dtype)
    case.x = case.x.detach().to(dtype).requires_grad_()
    return nullcontext()


def one_row(case: Map) -> AbstractContextManager[None]:
    case.x, case.gradient = case.x[0].detach().requires_grad_(), case.gradient[0]
    return nullcontext()


@pytest.mark.parametrize(
    "change",
    [
        partial(other_weights, dtype=torch.float64),
        partial(other_weights, dtype=torch.bfloat16),
        one_row,
        lambda case: torch.no_grad(),
        lambda case: torch.inference_mode(),
        lambda case: torch.autocast("cpu", torch.float16),
    ],
    ids=["double", "bfloat16", "one row", "no gradients", "inference", "float16"],
)
def test_elsewhere_modules_compute_it(change: Callable[[Map], AbstractContextManager[None]]):
    case = Map.drawn()
    with change(case), kernels_run() as kernels:
        found, wanted = case(), case.linear(case.activation(case.x))
    assert not kernels
    assert found.dtype == wanted.dtype
    assert torch.equal(found, wanted)


def test_widths_that_eight_does_not_divide_are_left_to_modules():
    case = Map.drawn((5, 20))
    with kernels_run() as kernels:
        found = case.results()
    assert not kernels
    assert all(far_apart(a, b) < TIGHT for a, b in zip(found, case.wanted(), strict=True))


@pytest.mark.parametrize("part", ["norm", "linear"])
@pytest.mark.parametrize(
    "register",
    [
        "register_forward_hook",
        "register_forward_pre_hook",
        "register_full_backward_hook",
        "register_full_backward_pre_hook",
    ],
)
def test_hooks_of_modules_are_called(part, register):
    case, calls = Map.drawn(), []
    wanted = case.results()
    module = case.activation.norm if part == "norm" else case.linear
    with kernels_run() as kernels:
        handle = getattr(module, register)(lambda *given: calls.append(given[0]))
        found = case.results()
        assert calls == [module]
        assert not kernels
        handle.remove()
        case.results()
    assert calls == [module]
    assert kernels
    torch.testing.assert_close(found, wanted)


def test_other_normalizations_and_precisions_are_never_taken_for_these():
    case = Map.drawn()
    with pytest.raises(AssertionError):
        matrix(torch.zeros(1, dtype=torch.float64))
    plain, x = nn.LayerNorm(24, elementwise_affine=False), torch.zeros(2, 24)
    assert product_dtype(x, case.activation.norm) == torch.float32
    case.activation.norm.eps = 0.1
    assert product_dtype(x, case.activation.norm) is None
    assert product_dtype(x, plain) is None
    assert product_dtype(x, nn.RMSNorm(24)) is None


def test_products_have_rows_of_zeros_in_bfloat16_alone():
    assert [product_rows(rows, torch.float32) for rows in (0, 1, 33)] == [0, 1, 33]
    for rows in (0, 1, 32, 33, 512, 513, 5000):
        assert product_rows(rows, torch.bfloat16) == rounded_size(rows)


@tried(40)
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=4),
    st.sampled_from([0, 1, 13]),
    st.sampled_from([8, 40]),
    st.integers(0, 99),
)
def test_sums_of_embeddings_and_their_gradients_are_those_of_pytorch(codes, rows, width, seed):
    generator = torch.Generator().manual_seed(seed)
    layer = SumEmbedding(codes, width)
    code_RF = torch.stack([torch.randint(k, (rows,), generator=generator) for k in codes], dim=1)
    gradient_RD = torch.randn(rows, width, generator=generator)
    exact = deepcopy(layer).double()
    wanted = exact(code_RF)
    (wanted_gradient,) = torch.autograd.grad(wanted, exact.weight, gradient_RD.double())
    for given_RF in (code_RF, code_RF.int(), code_RF.T.contiguous().T):
        with kernels_run() as kernels:
            found = layer(given_RF)
            (gradient,) = torch.autograd.grad(found, layer.weight, gradient_RD.T.contiguous().T)
        assert kernels == ["embed", "embed_backward"]
        assert far_apart(found, wanted) < TIGHT
        assert far_apart(gradient, wanted_gradient) < TIGHT


@pytest.mark.parametrize("code", [-1, 7, 2**40])
def test_embeddings_that_do_not_exist_are_refused(code):
    table_VD = torch.zeros(7, 8, requires_grad=True)
    with pytest.raises(IndexError, match="cannot be chosen"):
        embedding_sum(torch.tensor([[0], [code]]), torch.tensor([0]), table_VD)


def messages(
    edge_kinds: int, edges: int, width: int = 16
) -> tuple[MessagePassingLayer, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(edges)
    torch.manual_seed(0)
    layer = MessagePassingLayer(width, edge_kinds)
    rows_RD = torch.randn(9, width, generator=generator).requires_grad_()
    ends_2V = torch.randint(9, (2, edges), generator=generator)
    kind_V = torch.randint(edge_kinds, (edges,), generator=generator)
    return layer, rows_RD, ends_2V, kind_V


@pytest.mark.parametrize("edges", [0, 1, 40])
@pytest.mark.parametrize("edge_kinds", [1, 3])
@pytest.mark.parametrize(
    ("dtype", "precision"),
    [(torch.float32, nullcontext), (torch.float32, bfloat16), (torch.bfloat16, bfloat16)],
)
def test_messages_and_their_gradients_are_those_of_pytorch(edges, edge_kinds, dtype, precision):
    layer, rows_RD, *of_edges = messages(edge_kinds, edges)
    rows_RD = rows_RD.detach().to(dtype).requires_grad_()
    exact, exact_RD = deepcopy(layer).double(), rows_RD.detach().double().requires_grad_()
    gradient_RD = torch.randn(rows_RD.shape, generator=torch.Generator().manual_seed(1))
    wanted = exact(exact_RD, *of_edges)
    leaves = [exact_RD, *exact.parameters()]
    wanted = [wanted, *torch.autograd.grad(wanted, leaves, gradient_RD.double())]
    with precision():
        found = layer(rows_RD, *of_edges)
    leaves = [rows_RD, *layer.parameters()]
    gradients = torch.autograd.grad(found, leaves, gradient_RD.to(found.dtype))
    tolerance = 1e-5 if precision is nullcontext else LOOSE
    for one, other in zip([found, *gradients], wanted, strict=True):
        assert far_apart(one, other) < tolerance


def test_kinds_of_edges_may_have_another_type_but_must_exist():
    layer, rows_RD, ends_2V, kind_V = messages(3, 20)
    wanted = layer(rows_RD, ends_2V, kind_V)
    apart_2V = ends_2V.T.contiguous().T
    assert torch.equal(layer(rows_RD, apart_2V, kind_V.int()), wanted)
    for wrong in (-1, 3):
        kind_V[7] = wrong
        with pytest.raises(IndexError, match="cannot be chosen"):
            layer(rows_RD, ends_2V, kind_V)


class Adapted(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + 1


class Doubled(nn.Module):
    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return 2 * weight


def test_classes_and_parametrizations_of_users_compute_what_they_say(generator):
    norm, x = nn.LayerNorm(24), torch.randn(5, 24, generator=generator)
    adapted = Adapted(24, 3)
    found = activated_linear(Activation(norm, gelu=True), adapted, x)
    torch.testing.assert_close(found, adapted(F.gelu(norm(x))))
    parametrize.register_parametrization(norm, "weight", Doubled())
    found = activated_linear(Activation(norm, gelu=True), nn.Linear(24, 3), x)
    assert found.isfinite().all()
    torch.testing.assert_close(activated(Activation(norm, gelu=False), x), norm(x))


def test_transposed_weights_and_transforms_of_functions_are_left_to_pytorch(generator):
    x, embedding = torch.randn(5, 8, generator=generator), SumEmbedding([8], 8)
    embedding.weight = nn.Parameter(embedding.weight.detach().T)
    codes = torch.arange(8)[:, None]
    torch.testing.assert_close(embedding(codes), embedding.weight)
    linear, activation = nn.Linear(8, 3), Activation(None, gelu=True)

    def total(x: torch.Tensor) -> torch.Tensor:
        return activated_linear(activation, linear, x).sum()

    given = x.clone().requires_grad_()
    (wanted,) = torch.autograd.grad(total(given), given)
    torch.testing.assert_close(torch.func.grad(total)(x), wanted)


def test_hooks_of_all_modules_and_of_gelu_are_called(generator):
    feed, x = FeedForward(24), torch.randn(5, 24, generator=generator)
    called: list[nn.Module] = []

    def note(module: nn.Module, *_: object) -> None:
        called.append(module)

    with feed[2].register_forward_hook(note):
        feed(x)
    assert called == [feed[2]]
    called.clear()
    with register_module_forward_hook(note):
        feed(x)
    assert called == [*feed, feed]


def test_messages_along_edges_of_another_type_or_beyond_the_rows(generator):
    layer, rows = MessagePassingLayer(8, 2), torch.randn(4, 8, generator=generator)
    edges, kinds = torch.tensor([[0, 1], [2, 3]]), torch.tensor([0, 1])
    torch.testing.assert_close(layer(rows, edges.int(), kinds), layer(rows, edges, kinds))
    for beyond in (-1, 4):
        with pytest.raises(IndexError, match="cannot be chosen"):
            layer(rows, torch.tensor([[0, beyond], [2, 3]]), kinds)
        with pytest.raises(IndexError, match="cannot be chosen"):
            layer(rows, torch.tensor([[0, 1], [2, beyond]]), kinds)


def pooled_by_pytorch(x_RD: Tensor, ptr_G1: Tensor) -> Tensor:
    size_G = ptr_G1.diff()
    group_R = torch.repeat_interleave(torch.arange(len(size_G)), size_G)
    max_GD = segment_max(x_RD, group_R, len(size_G))
    mean_GD = segment_mean(x_RD, group_R, size_G)
    return torch.cat([mean_GD, max_GD, segment_log_sum_exp(x_RD, group_R, max_GD)], dim=1)


@tried(60)
@given(
    st.lists(st.integers(1, 9), min_size=0, max_size=5),
    st.sampled_from([8, 24]),
    st.sampled_from([1e-3, 1.0, 100.0]),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
def test_rows_are_pooled_as_by_pytorch_and_equal_largest_ones_share_a_gradient(
    sizes, width, scale, rounds, seed
):
    generator = torch.Generator().manual_seed(seed)
    ptr_G1 = torch.tensor([0, *sizes]).cumsum(0)
    x_RD = scale * torch.randn(sum(sizes), width, generator=generator)
    x_RD = (x_RD.round() if rounds else x_RD).requires_grad_()
    exact_RD = x_RD.detach().double().requires_grad_()
    gradient = torch.randn(len(sizes), 3 * width, generator=generator)
    with kernels_run() as kernels:
        found = pool(x_RD, ptr_G1)
        (of_x,) = torch.autograd.grad(found, x_RD, gradient)
    wanted = pooled_by_pytorch(exact_RD, ptr_G1)
    (of_exact,) = torch.autograd.grad(wanted, exact_RD, gradient.double())
    assert kernels == ["pool", "pool_backward"]
    assert far_apart(found, wanted) < TIGHT
    assert far_apart(of_x, of_exact) < TIGHT


def test_a_group_without_rows_is_pooled_to_what_nothing_has():
    found = pool(torch.ones(2, 8), torch.tensor([0, 2, 2]))
    torch.testing.assert_close(found, pooled_by_pytorch(torch.ones(2, 8), torch.tensor([0, 2, 2])))


def test_numbers_that_are_none_show_in_what_is_pooled():
    x_RD = torch.ones(3, 8)
    x_RD[1, 2], x_RD[2, 3] = torch.nan, torch.inf
    mean_D, _, log_sum_D = pool(x_RD, torch.tensor([0, 3]))[0].chunk(3)
    assert not mean_D[2:4].isfinite().any()
    assert not log_sum_D[2:4].isfinite().any()
