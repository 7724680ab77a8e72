"""Layers: what is linked to what, experts, flat weights."""

from dataclasses import replace

import numpy as np
import pytest
from stage_words import flags_of

from layerdag.traces.trace import NodeType, Trace, trace_layers
from layerdag.workloads.stage.flags import StageFlags
from layerdag.workloads.stage.job import StageJob
from layerdag.workloads.stage.operators import FLAT, FLAT_GRADIENT
from layerdag.workloads.stage.sizes import parse_dim
from layerdag.workloads.stage.traces import ModelBlocks, StepTensor, tensors_of_step

GPT = StageFlags(model_type="gpt")
GATED = StageFlags(model_type="llama", mixed_precision=True)
MIXTURE = StageFlags(model_type="moe", experts=8, ep=4)


@pytest.mark.parametrize(
    ("flags", "elements"),
    [
        (GPT, "4*D*D/tp + 2*D*F/tp"),
        (GATED, "(D*D/H)*(H+2*K)/tp + D*D/tp + 3*D*F/tp"),
        (MIXTURE, "(D*D/H)*(H+2*K)/tp + D*D/tp + D*R/ep + 4*D*F/tp"),
    ],
)
def test_all_weights_of_a_layer_are_one_flat_tensor(flags, elements):
    """Two local experts of two matrices each in the mixture."""
    for sharded, degree in ((False, "1"), (True, "dp")):
        layer = ModelBlocks.from_flags(replace(flags, weight_sharded=sharded)).layer
        assert [row.name for row in layer.values() if row.weight] == [FLAT]
        whole = parse_dim(f"({elements})/{degree}", {})
        assert layer[FLAT].form.result.dims == (whole,)
        assert layer[FLAT_GRADIENT].gradient_of == FLAT
        assert layer[FLAT_GRADIENT].form.result.dims == (whole,)


def test_forward_and_backward_gather_weights_of_their_own():
    layer = ModelBlocks.from_flags(GPT).layer
    assert layer["mha.qkv"].sources == ("mha.x", "mha.wqkv")
    assert layer["mha.dx1"].sources == ("mha.dqkv", "_mha.wqkv_backward")
    assert layer["mha.wqkv"].sources == ("_assembled_weight",)
    assert layer["_mha.wqkv_backward"].sources == ("_assembled_weight_backward",)


def test_the_gradient_waits_for_that_of_every_weight():
    joined = ModelBlocks.from_flags(GATED).layer["_assembled_grad"]
    assert joined.sources == ("mha.dwqkv",)
    assert joined.after == ("mha.dwo", "ffn.dwup", "ffn.dwgate", "ffn.dwdown")


def test_experts_share_the_tokens_and_their_results_are_added():
    layer = ModelBlocks.from_flags(MIXTURE).layer
    for expert in range(2):
        assert layer[f"moe.{expert}.ldis.x"].sources == ("moe.xrouted",)
    assert layer["moe.yrouted_r1"].sources == ("moe.0.ldis.y", "moe.1.ldis.y")
    assert layer["moe.yrouted"].sources == ("moe.yrouted_r1",)
    tokens = layer["moe.0.ffn.x0"].form.result.dims[1]
    assert tokens == parse_dim("S*R/(X*ep*cp*tp)", {})


@pytest.mark.parametrize(("experts", "after"), [(4, 2), (3, 1), (2, 0)])
def test_a_sum_of_many_experts_is_one_operator(experts, after):
    layer = ModelBlocks.from_flags(StageFlags(model_type="moe", experts=experts)).layer
    total = layer[f"moe.dxrouted_r{experts - 1}"]
    assert total.sources == ("moe.0.ldis.dx", f"moe.{experts - 1}.ldis.dx")
    assert len(total.after) == after


def test_one_expert_needs_no_sum():
    layer = ModelBlocks.from_flags(replace(MIXTURE, ep=8)).layer
    assert layer["moe.yrouted"].sources == ("moe.0.ldis.y",)
    assert not [name for name in layer if name.startswith("moe.yrouted_r")]


def test_without_sequence_parallelism_embeddings_are_split_by_rows():
    split = ModelBlocks.from_flags(replace(GPT, tpsp=False))
    assert split.embedding["w"].form.result.dims[0] == parse_dim("V/tp", {})
    assert split.output["w"].form.result.dims[0] == parse_dim("D/tp", {})
    assert ModelBlocks.from_flags(GPT).embedding["w"].form.result.dims[0] == parse_dim("V", {})
    assert ModelBlocks.from_flags(replace(GATED, tpsp=False)).layer["ffn_res.y"].form.result.dims[
        1
    ] == (
        parse_dim("S/cp/tp", {})  # the gated model does not look at --tpsp
    )


TINY = StageFlags(
    model_type="gpt", num_stacks=3, batch=4, seq=8, dmodel=16, dff=32, head=2, kvhead=2, dvocal=24
)
SMALL_GATED = replace(TINY, model_type="llama", mixed_precision=True)
SMALL_MIXTURE = replace(TINY, model_type="moe", experts=2)
LAYER_WEIGHT = "transformer.{}._sharded_weight"


def step(flags: StageFlags) -> dict[str, StepTensor]:
    found = tensors_of_step(flags)
    named = {tensor.name: tensor for tensor in found}
    assert len(named) == len(found)  # names are unique
    return named


@pytest.mark.parametrize("model", [TINY, SMALL_GATED, SMALL_MIXTURE])
@pytest.mark.parametrize("sequences", [4, 2, 1])
def test_tensors_of_a_step_are_those_of_its_blocks(model, sequences):
    """Rows that are no weights for each micro-batch; weights, their gradients, their updates."""
    flags = replace(model, micro_batch=sequences)
    blocks = ModelBlocks.from_flags(flags)
    rows = [
        *(row for _ in range(3) for row in blocks.layer.values()),
        *(row for part in (blocks.embedding, blocks.output, blocks.loss) for row in part.values()),
    ]
    weights = sum(row.weight for row in rows)
    assert weights == 3 + 2  # a flat tensor for each layer, two embeddings
    expected = (4 // sequences) * (len(rows) - weights) + 3 * weights
    assert len(step(flags)) == expected


def test_only_weights_have_no_source():
    found = step(TINY)
    ends = {name for name, tensor in found.items() if not tensor.sources}
    layers = {f"{LAYER_WEIGHT.format(layer)}@0" for layer in range(3)}
    assert layers | {"in_emb.w@0", "out_emb.w@0"} <= ends
    assert ends - layers - {"in_emb.w@0", "out_emb.w@0"} == {"mb0.in_emb.x@0"}  # the tokens


def test_layers_are_a_chain_forward_and_backward():
    found = step(TINY)

    def source(name: str) -> str:
        (only,) = found[f"mb0.{name}@0"].sources
        return only.name

    assert source("transformer.0.input_norm.x") == "mb0.in_emb.y@0"
    assert source("transformer.2.input_norm.x") == "mb0.transformer.1.ffn_res.y@0"
    assert source("out_emb.x") == "mb0.transformer.2.ffn_res.y@0"
    assert source("loss.y") == "mb0.out_emb.y@0"
    assert source("out_emb.dy") == "mb0.loss.dy@0"
    assert source("transformer.2.ffn_res.dy") == "mb0.out_emb.dx@0"
    assert source("transformer.0.ffn_res.dy") == "mb0.transformer.1.input_norm.dx@0"
    assert source("in_emb.dy") == "mb0.transformer.0.input_norm.dx@0"


def test_micro_batches_share_weights_and_nothing_else():
    found = step(replace(TINY, micro_batch=1))
    first, last = (found[f"mb{number}.out_emb.y@0"] for number in (0, 3))
    assert first.form is last.form
    assert first.sources[1] is last.sources[1] is found["out_emb.w@0"]
    assert first.sources[0] is not last.sources[0]
    for name, tensor in found.items():
        if name.startswith("mb3."):
            assert not any(source.name.startswith("mb0.") for source in tensor.sources)


def test_a_gradient_is_summed_once_all_micro_batches_have_theirs():
    found = step(replace(TINY, micro_batch=1))
    total = found["in_emb.dw@0"]
    assert [tensor.name for tensor in total.sources] == ["mb0.in_emb.dw@0"]
    assert [tensor.name for tensor in total.after] == [
        "mb1.in_emb.dw@0", "mb2.in_emb.dw@0", "mb3.in_emb.dw@0",
    ]  # fmt: skip


def test_the_update_takes_the_weight_and_its_summed_gradient():
    found = step(TINY)
    new = found["out_emb.w@1"]
    assert new.sources == (found["out_emb.w@0"], found["out_emb.dw@0"])
    assert new.form.kind == "A"
    # one addition for each element: width 16, vocabulary 24
    assert new.form.operations.value(TINY.numbers) == 16 * 24
    assert sum(name.endswith("@1") for name in found) == 5


def test_order_is_micro_batches_then_gradients_then_weights_then_updates():
    names = [tensor.name for tensor in tensors_of_step(replace(TINY, micro_batch=2))]
    batches = [name.split(".")[0] for name in names if name.startswith("mb")]
    assert batches == sorted(batches)
    rest = names[len(batches) :]
    assert not any(name.startswith("mb") for name in rest)
    assert [name.endswith("@1") for name in rest] == [False] * 10 + [True] * 5
    weights, updates = rest[5:10], rest[10:]
    assert [name.removesuffix("@0") for name in weights] == [n.removesuffix("@1") for n in updates]


@pytest.mark.parametrize(
    ("flags", "layers", "output"),
    [
        (replace(TINY, pp=2), [0, 0, 1], 0),  # STAGE: layer 2 modulo 2 stages
        (replace(SMALL_GATED, pp=2), [0, 0, 1], 1),
        (replace(TINY, pp=3), [0, 1, 2], 2),
    ],
)
def test_each_tensor_is_on_the_stage_of_its_layer(flags, layers, output):
    for name, tensor in step(flags).items():
        part = name.removeprefix("mb0.")
        if part.startswith("transformer."):
            assert tensor.stage == layers[int(part.split(".")[1])]
        else:
            assert tensor.stage == (0 if part.startswith("in_emb.") else output)


SMALL = "--dmodel 64 --dff 128 --head 4 --kvhead 2 --seq 32 --batch 8 --dvocal 100 --num_stacks 2"


def _stages(words: str) -> tuple[Trace, ...]:
    return StageJob(flags_of(f"{SMALL} {words}")).stages


ALL_REDUCE, ALL_GATHER, ALL_TO_ALL, REDUCE_SCATTER = 0, 2, 6, 7


@pytest.mark.parametrize(
    "words",
    [
        "--model_type gpt --pp 2 --tp 2 --dp 2 --micro_batch 4",
        "--model_type moe --pp 2 --ep 2 --tp 2 --sp 2 --weight_sharded t",
        "--model_type dense --mixed_precision 1 --num_stacks 3 --pp 3",
    ],
)
def test_programs_have_no_circles_and_no_loose_ends(words):
    for trace in _stages(words):
        trace_layers(trace)  # raises for either


def test_every_message_is_sent_and_received_once():
    """Six layers on four stages: the output lies on the second, and the last layer on the last."""
    flags = flags_of(f"{SMALL} --model_type gpt --num_stacks 6 --pp 4 --dp 2 --micro_batch 4")
    ends: dict[NodeType, list[tuple[int, ...]]] = {NodeType.COMM_SEND: [], NodeType.COMM_RECV: []}
    for rank, trace in enumerate(StageJob(flags).workload().traces):
        tag, size, source, target = (
            trace.integers(name)[0] for name in ("comm_tag", "comm_size", "comm_src", "comm_dst")
        )
        for row in np.flatnonzero(trace.type_N == NodeType.COMM_SEND).tolist():
            ends[NodeType.COMM_SEND].append((rank, target[row], tag[row], size[row]))
        for row in np.flatnonzero(trace.type_N == NodeType.COMM_RECV).tolist():
            ends[NodeType.COMM_RECV].append((source[row], rank, tag[row], size[row]))
    sent, received = (sorted(found) for found in ends.values())
    assert sent == received
    assert len(sent) == len(set(sent)) == 2 * 2 * (3 + 1) * 2  # both ways, two micro-batches, ranks


def test_nodes_have_the_names_of_stage():
    (trace,) = _stages("--model_type gpt --tp 2")
    names = [trace.strings[index] for index in trace.name_N.tolist()]
    assert {"mb0.transformer.0.mha.qkv@0_COMP", "mb0.transformer.0.mha.qkv@0_X1COMM"} <= set(names)
    assert {"in_emb.w@1_COMP", "in_emb.w@1_X2_COMM"} <= set(names)
    assert trace.id_N.tolist() == list(range(trace.num_nodes))


def test_a_size_that_does_not_divide_is_cut():
    (trace,) = _stages("--model_type gpt --tp 3 --seq 10")
    rows = [index for index, name in enumerate(trace.name_N.tolist())
            if trace.strings[name] == "mb0.transformer.0.input_norm.y@0_COMP"]  # fmt: skip
    size, _ = trace.integers("tensor_size")
    assert size[rows].tolist() == [8 * 10 * 64 // 3]
