"""Layers: what is linked to what, experts, flat weights."""

from dataclasses import replace

import pytest

from layerdag.workloads.stage import StageFlags
from layerdag.workloads.stage._blocks import Blocks
from layerdag.workloads.stage._dims import parse_dim
from layerdag.workloads.stage._flat_weights import FLAT, FLAT_GRADIENT

GPT = StageFlags(model_type="gpt")
GATED = StageFlags(model_type="llama", mixed_precision=True)
MIXTURE = StageFlags(model_type="moe", experts=8, ep=4)


@pytest.mark.parametrize("flags", [GPT, GATED, MIXTURE])
def test_a_layer_takes_its_input_and_one_gradient_from_elsewhere(flags: StageFlags) -> None:
    layer = Blocks.of(flags).layer
    outside = [row.name for row in layer.values() if row.form.kind == "T" and not row.weight]
    assert outside == ["input_norm.x", "ffn_res.dy"]
    for row in layer.values():
        assert {*row.sources, *row.after} <= set(layer)


@pytest.mark.parametrize(
    ("flags", "elements"),
    [
        (GPT, "4*D*D/tp + 2*D*F/tp"),
        (GATED, "(D*D/H)*(H+2*K)/tp + D*D/tp + 3*D*F/tp"),
        (MIXTURE, "(D*D/H)*(H+2*K)/tp + D*D/tp + D*R/ep + 4*D*F/tp"),
    ],
)
def test_all_weights_of_a_layer_are_one_flat_tensor(flags: StageFlags, elements: str) -> None:
    """Two local experts of two matrices each in the mixture."""
    for sharded, degree in ((False, "1"), (True, "dp")):
        layer = Blocks.of(replace(flags, weight_sharded=sharded)).layer
        assert [row.name for row in layer.values() if row.weight] == [FLAT]
        whole = parse_dim(f"({elements})/{degree}", {})
        assert layer[FLAT].form.result.dims == (whole,)
        assert layer[FLAT_GRADIENT].gradient_of == FLAT
        assert layer[FLAT_GRADIENT].form.result.dims == (whole,)


def test_forward_and_backward_gather_weights_of_their_own() -> None:
    layer = Blocks.of(GPT).layer
    assert layer["mha.qkv"].sources == ("mha.x", "mha.wqkv")
    assert layer["mha.dx1"].sources == ("mha.dqkv", "_mha.wqkv_backward")
    assert layer["mha.wqkv"].sources == ("_assembled_weight",)
    assert layer["_mha.wqkv_backward"].sources == ("_assembled_weight_backward",)


def test_the_gradient_waits_for_that_of_every_weight() -> None:
    joined = Blocks.of(GATED).layer["_assembled_grad"]
    assert joined.sources == ("mha.dwqkv",)
    assert joined.after == ("mha.dwo", "ffn.dwup", "ffn.dwgate", "ffn.dwdown")


def test_experts_share_the_tokens_and_their_results_are_added() -> None:
    layer = Blocks.of(MIXTURE).layer
    for expert in range(2):
        assert layer[f"moe.{expert}.ldis.x"].sources == ("moe.xrouted",)
    assert layer["moe.yrouted_r1"].sources == ("moe.0.ldis.y", "moe.1.ldis.y")
    assert layer["moe.yrouted"].sources == ("moe.yrouted_r1",)
    tokens = layer["moe.0.ffn.x0"].form.result.dims[1]
    assert tokens == parse_dim("S*R/(X*ep*cp*tp)", {})


@pytest.mark.parametrize(("experts", "after"), [(4, 2), (3, 1), (2, 0)])
def test_a_sum_of_many_experts_is_one_operator(experts: int, after: int) -> None:
    layer = Blocks.of(StageFlags(model_type="moe", experts=experts)).layer
    total = layer[f"moe.dxrouted_r{experts - 1}"]
    assert total.sources == ("moe.0.ldis.dx", f"moe.{experts - 1}.ldis.dx")
    assert len(total.after) == after


def test_one_expert_needs_no_sum() -> None:
    layer = Blocks.of(replace(MIXTURE, ep=8)).layer
    assert layer["moe.yrouted"].sources == ("moe.0.ldis.y",)
    assert not [name for name in layer if name.startswith("moe.yrouted_r")]


def test_heads_of_keys_and_values() -> None:
    """STAGE's gpt has as many as query heads."""
    for flags, heads in ((GPT, "H/tp"), (GATED, "K/tp"), (MIXTURE, "K/tp")):
        layer = Blocks.of(flags).layer
        assert layer["mha.k"].form.result.dims[-1] == parse_dim(heads, {})


def test_without_sequence_parallelism_embeddings_are_split_by_rows() -> None:
    split = Blocks.of(replace(GPT, tpsp=False))
    assert split.embedding["w"].form.result.dims[0] == parse_dim("V/tp", {})
    assert split.output["w"].form.result.dims[0] == parse_dim("D/tp", {})
    assert Blocks.of(GPT).embedding["w"].form.result.dims[0] == parse_dim("V", {})
    assert Blocks.of(replace(GATED, tpsp=False)).layer["ffn_res.y"].form.result.dims[1] == (
        parse_dim("S/cp/tp", {})  # the gated model does not look at --tpsp
    )
