"""A transformer layer forward and backward: operators, sums, gathers and what waits for what."""

from dataclasses import replace
from typing import Any

import pytest
from symbolic_jobs import DIT, GPT, LLAMA, MIXTURE, small
from written_programs import costs, messages, needs, roles

from layerdag.errors import ConfigError
from layerdag.hardware.collectives import CollectiveType
from layerdag.traces.trace import Trace
from layerdag.workloads.transformer.layers import TraceBuilder
from layerdag.workloads.transformer.shapes import ModelShape

TOKENS = 8 * 128
STREAM = TOKENS * 256 * 2  # bytes of the residual stream of eight sequences


def one_layer(shape: ModelShape = GPT, **plan: Any) -> Trace:
    """Return the program of the one stage of a model of one layer."""
    return small(replace(shape, layers=1), **plan).stages[0]


def of_layer(trace: Trace, part: str) -> list[str]:
    """Return the nodes of the layer in one pass ("F0" or "B0"), without layer and pass."""
    found = [name for name in trace.names() if f".0.{part}" in name]
    return [name.replace(f".0.{part}", "") for name in found]


def test_a_layer_forward_and_backward_with_two_products_for_each():
    expected = "norm1 mm.qkv attention mm.out norm2 mm.up act mm.down"
    assert of_layer(one_layer(), "F0") == expected.split()
    expected = (
        "mm.down.dx mm.down.dw act mm.up.dx mm.up.dw norm2 mm.out.dx mm.out.dw attention "
        "mm.qkv.dx mm.qkv.dw norm1"
    )
    assert of_layer(one_layer(), "B0") == expected.split()


def test_tensor_ranks_sum_after_each_block():
    forward = of_layer(one_layer(tensor=2), "F0")
    expected = "norm1 mm.qkv attention mm.out sum1 norm2 mm.up act mm.down sum2"
    assert forward == expected.split()
    split = of_layer(one_layer(tensor=2, sequence_parallel=True), "F0")
    gathered = [name for name in split if not name.startswith("gather")]
    assert gathered == forward
    assert split.index("gather1") == split.index("mm.qkv") - 1
    assert split.index("gather2") == split.index("mm.up") - 1


def test_a_mixture_routes_exchanges_and_mixes():
    forward = of_layer(one_layer(MIXTURE, data=2, expert=2), "F0")
    expected = "mm.router dispatch mm.up act mm.down combine mix"
    assert forward[forward.index("norm2") + 1 :] == expected.split()
    alone = of_layer(one_layer(MIXTURE), "F0")
    assert "dispatch" not in alone
    assert "mm.router" in alone


def test_adaptive_layers_compute_their_scales_first():
    assert of_layer(one_layer(DIT), "F0")[:2] == ["mm.modulation", "norm1"]
    assert "mm.modulation" not in of_layer(one_layer(), "F0")


def test_costs_of_a_dense_layer_by_hand():
    """1,024 tokens of 256 numbers, 8 heads, feed-forward 1,024, bf16."""
    of = costs(one_layer())
    assert of["mm.qkv.0.F0"][0] == 2 * TOKENS * 256 * (3 * 256)
    assert of["mm.out.0.F0"] == (2 * TOKENS * 256 * 256, (TOKENS * 512 + 256 * 256) * 2)
    assert of["attention.0.F0"][0] == 4 * TOKENS * 128 * 256
    assert of["act.0.F0"] == (5 * TOKENS * 1024, TOKENS * (1024 + 1024) * 2)
    assert of["act.0.B0"] == (2 * 5 * TOKENS * 1024, 2 * TOKENS * (1024 + 1024) * 2)
    assert of["norm1.0.F0"] == (5 * TOKENS * 256, 2 * TOKENS * 256 * 2)
    assert of["norm1.0.B0"] == (5 * TOKENS * 256, 4 * TOKENS * 256 * 2)
    assert of["attention.0.B0"] == tuple(2 * cost for cost in of["attention.0.F0"])


def test_a_gate_doubles_the_outputs_of_the_first_product():
    """Grouped heads: four key heads of 32 numbers beside eight query heads."""
    of = costs(one_layer(LLAMA))
    assert of["mm.qkv.0.F0"][0] == 2 * TOKENS * 256 * (256 + 2 * 128)
    assert of["mm.up.0.F0"][0] == 2 * TOKENS * 256 * (2 * 512)
    assert of["mm.down.0.F0"][0] == 2 * TOKENS * 512 * 256
    assert of["act.0.F0"] == (5 * TOKENS * 512, TOKENS * (1024 + 512) * 2)


def test_two_of_four_experts_see_every_token_and_all_four_are_read():
    of, dense = costs(one_layer(MIXTURE)), costs(one_layer(LLAMA))
    assert of["mm.up.0.F0"][0] == 2 * dense["mm.up.0.F0"][0]
    weights, activations = 4 * 256 * 1024, 2 * TOKENS * (256 + 1024)
    assert of["mm.up.0.F0"][1] == (activations + weights) * 2
    assert of["mm.router.0.F0"][0] == 2 * TOKENS * 256 * 4
    assert of["mix.0.F0"] == (5 * 2 * TOKENS * 256, 2 * 2 * TOKENS * 256 * 2)


@pytest.mark.parametrize(
    ("recompute", "again"), [("none", []), ("selective", ["attention"]), ("full", "all")]
)
def test_recomputation_repeats_what_it_names(recompute, again):
    trace = one_layer(recompute=recompute)
    repeated = [name for name in trace.names() if name.endswith(".again")]
    forward = [name for name in trace.names() if name.endswith(".0.F0")]
    if again == "all":
        again = [name.removesuffix(".0.F0") for name in forward]
    assert repeated == [f"{name}.0.B0.again" for name in again]
    of = costs(trace)
    for name in again:
        assert of[f"{name}.0.B0.again"] == of[f"{name}.0.F0"]


def test_sums_of_tensor_ranks_are_the_stream_and_one_rank_has_none():
    trace = one_layer(tensor=2)
    inside = {name: size for name, size in messages(trace).items() if ".0." in name}
    assert inside == dict.fromkeys(
        ["sum1.0.F0", "sum2.0.F0", "sum_dx2.0.B0", "sum_dx1.0.B0"], STREAM
    )
    assert {roles(trace)[name] for name in inside} == {"tensor"}
    assert messages(one_layer()) == {}


def test_context_ranks_gather_keys_and_values_before_attention():
    """512 tokens here, four key heads of 32 numbers, keys and values."""
    trace = one_layer(LLAMA, context=2)
    own = 2 * 512 * 128 * 2
    sizes = messages(trace)
    assert (sizes["gather_kv.0.F0"], sizes["sum_dkv.0.B0"]) == (own, 2 * own)
    assert needs(trace, "attention.0.F0") == {"gather_kv.0.F0"}
    assert needs(trace, "mm.qkv.0.B0.dx") == {"sum_dkv.0.B0"}


def test_expert_ranks_send_each_token_to_two_experts_and_back():
    trace = one_layer(MIXTURE, data=4, expert=4)
    sizes = messages(trace)
    copies = 2 * (2 * 128) * 256 * 2  # two experts; two sequences of 128 tokens a rank
    exchanged = ["dispatch.0.F0", "combine.0.F0", "combine.0.B0", "dispatch.0.B0"]
    assert [name for name in sizes if roles(trace)[name] == "expert"] == exchanged
    assert {sizes[name] for name in exchanged} == {copies}


def test_sequence_parallel_experts_gather_and_scatter_token_copies():
    sizes = messages(one_layer(MIXTURE, tensor=2, sequence_parallel=True))
    assert sizes["gather2.0.F0"] == 2 * STREAM // 2  # two copies of half of the tokens
    assert sizes["sum2.0.F0"] == 2 * STREAM
    assert sizes["gather1.0.F0"] == STREAM // 2


def test_gradients_of_weights_wait_for_no_sum_and_for_inputs_gathered_again():
    trace = one_layer(tensor=2)
    assert needs(trace, "sum_dx1.0.B0") == {"mm.qkv.0.B0.dx"}
    assert needs(trace, "mm.qkv.0.B0.dw") == {"attention.0.B0"}
    assert needs(trace, "norm1.0.B0") == {"sum_dx1.0.B0"}
    trace = one_layer(tensor=2, sequence_parallel=True)
    assert needs(trace, "mm.up.0.B0.dw") == {"act.0.B0", "gather_again2.0.B0"}
    assert needs(trace, "mm.up.0.B0.dx") == {"act.0.B0"}
    assert messages(trace)["gather_again2.0.B0"] == STREAM // 2


def test_zb_h1_writes_gradients_of_weights_after_all_gradients_of_inputs():
    made = small(replace(GPT, layers=2), pipeline=2, micro_batches=2, schedule="zb-h1")
    names = made.stages[1].names()
    late = [place for place, name in enumerate(names) if ".B0" in name and name.endswith(".dw")]
    early = [place for place, name in enumerate(names) if ".B0" in name and name.endswith(".dx")]
    assert late
    assert min(late) > max(early)
    together = small(replace(GPT, layers=2), pipeline=2, micro_batches=2).stages[1]
    assert sorted(names) == sorted(together.names())


SUM = CollectiveType.ALL_REDUCE


def builder() -> TraceBuilder:
    return TraceBuilder("bfloat16", "tiny, stage 0")


def waits(trace: Trace) -> list[tuple[list[int], list[int]]]:
    """Return the nodes that each node waits for: for their data, and by control."""
    rows = range(trace.num_nodes)
    return [(trace.data_deps.of(i).tolist(), trace.ctrl_deps.of(i).tolist()) for i in rows]


def column(trace: Trace, name: str) -> list[int]:
    return trace.integers(name)[0].tolist()


def test_costs_are_stated_and_never_zero():
    made = builder()
    made.compute("mm", (8, 16), ())
    made.compute("nothing", (0, 0), ())
    trace = made.trace()
    assert column(trace, "num_ops") == [8, 1]
    assert column(trace, "tensor_size") == [16, 1]


def test_operators_wait_for_data_alone_inside_a_task():
    made = builder()
    a = made.compute("a", (1, 1), ())
    made.compute("b", (1, 1), ())
    made.compute("c", (1, 1), a)
    assert waits(made.trace()) == [([], []), ([], []), ([0], [])]


def test_the_first_operator_of_a_task_waits_for_the_last_of_the_task_before():
    made = builder()
    made.begin_task()
    made.compute("a", (1, 1), ())
    made.compute("b", (1, 1), ())
    made.begin_task()
    made.compute("c", (1, 1), ())
    made.compute("d", (1, 1), ())
    assert waits(made.trace()) == [([], []), ([], []), ([], [1]), ([], [])]


def test_who_needs_the_data_of_the_last_operator_waits_for_it_once():
    made = builder()
    a = made.compute("a", (1, 1), ())
    made.begin_task()
    made.compute("b", (1, 1), a)
    assert waits(made.trace())[1] == ([0], [])


def test_collectives_and_sends_are_chained_in_the_order_of_the_program():
    made = builder()
    made.collective("one", SUM, "tensor", 8, ())
    made.send("two", "next", 8, 1, ())
    made.collective("three", SUM, "data", 8, ())
    assert waits(made.trace()) == [([], []), ([], [0]), ([], [1])]


def test_a_chain_that_data_makes_needs_no_control():
    """The second sum needs an operator that needs the first sum."""
    made = builder()
    first = made.collective("one", SUM, "tensor", 8, ())
    between = made.compute("mm", (1, 1), first)
    made.collective("two", SUM, "tensor", 8, between)
    made.collective("three", SUM, "tensor", 8, between)
    assert waits(made.trace())[2:] == [([1], []), ([1], [2])]


def test_a_receive_waits_for_nobody_and_nobody_for_its_place():
    made = builder()
    made.collective("one", SUM, "tensor", 8, ())
    got = made.receive("recv", "previous", 8, 1)
    made.collective("two", SUM, "tensor", 8, got)
    assert waits(made.trace()) == [([], []), ([], []), ([1], [0])]


@pytest.mark.parametrize(
    ("operations", "moved"), [(2**63, 1), (1, 2**63), (6 * 10**24, 6 * 10**24)]
)
def test_costs_that_64_bits_cannot_state_are_refused(operations, moved):
    made = builder()
    made.compute("fits", (2**63 - 1, 2**63 - 1), ())
    with pytest.raises(ConfigError, match=r"tiny, stage 0: 'mm' takes .* give a smaller batch"):
        made.compute("mm", (operations, moved), ())


def test_messages_that_64_bits_cannot_state_are_refused():
    for write in (
        lambda size: builder().collective("it", SUM, "data", size, ()),
        lambda size: builder().send("it", "next", size, 1, ()),
        lambda size: builder().receive("it", "next", size, 1),
    ):
        write(2**63 - 1)
        with pytest.raises(ConfigError, match=r"'it' takes 9\.22e"):
            write(2**63)
