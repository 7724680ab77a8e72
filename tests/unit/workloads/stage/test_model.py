"""All tensors of a step: micro-batches, links between layers, sums of gradients, updates."""

from dataclasses import replace

import pytest

from layerdag.workloads.stage import StageFlags
from layerdag.workloads.stage._blocks import Blocks
from layerdag.workloads.stage._model import Tensor, tensors_of_step

TINY = StageFlags(
    model_type="gpt", num_stacks=3, batch=4, seq=8, dmodel=16, dff=32, head=2, kvhead=2, dvocal=24
)
GATED = replace(TINY, model_type="llama", mixed_precision=True)
MIXTURE = replace(TINY, model_type="moe", experts=2)
LAYER_WEIGHT = "transformer.{}._sharded_weight"


def step(flags: StageFlags) -> dict[str, Tensor]:
    """Return the tensors of a step by name."""
    found = tensors_of_step(flags)
    named = {tensor.name: tensor for tensor in found}
    assert len(named) == len(found)  # names are unique
    return named


@pytest.mark.parametrize("model", [TINY, GATED, MIXTURE])
@pytest.mark.parametrize("sequences", [4, 2, 1])
def test_tensors_of_a_step_are_those_of_its_blocks(model: StageFlags, sequences: int) -> None:
    """Rows that are no weights for each micro-batch; weights, their gradients, their updates."""
    flags = replace(model, micro_batch=sequences)
    blocks = Blocks.of(flags)
    rows = [
        *(row for _ in range(3) for row in blocks.layer.values()),
        *(row for part in (blocks.embedding, blocks.output, blocks.loss) for row in part.values()),
    ]
    weights = sum(row.weight for row in rows)
    assert weights == 3 + 2  # a flat tensor for each layer, two embeddings
    expected = (4 // sequences) * (len(rows) - weights) + 3 * weights
    assert len(step(flags)) == expected


@pytest.mark.parametrize("model", [TINY, GATED, MIXTURE])
def test_all_that_is_read_is_a_tensor_of_the_step(model: StageFlags) -> None:
    found = step(replace(model, micro_batch=2, num_stacks=2))
    known = set(found.values())
    for tensor in known:
        assert {*tensor.sources, *tensor.after} <= known
        assert len(tensor.form.operands) == len(tensor.sources)


def test_only_weights_have_no_source() -> None:
    found = step(TINY)
    ends = {name for name, tensor in found.items() if not tensor.sources}
    layers = {f"{LAYER_WEIGHT.format(layer)}@0" for layer in range(3)}
    assert layers | {"in_emb.w@0", "out_emb.w@0"} <= ends
    assert ends - layers - {"in_emb.w@0", "out_emb.w@0"} == {"mb0.in_emb.x@0"}  # the tokens


def test_layers_are_a_chain_forward_and_backward() -> None:
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


def test_micro_batches_share_weights_and_nothing_else() -> None:
    found = step(replace(TINY, micro_batch=1))
    first, last = (found[f"mb{number}.out_emb.y@0"] for number in (0, 3))
    assert first.form is last.form
    assert first.sources[1] is last.sources[1] is found["out_emb.w@0"]
    assert first.sources[0] is not last.sources[0]
    for name, tensor in found.items():
        if name.startswith("mb3."):
            assert not any(source.name.startswith("mb0.") for source in tensor.sources)


def test_a_gradient_is_summed_once_all_micro_batches_have_theirs() -> None:
    found = step(replace(TINY, micro_batch=1))
    total = found["in_emb.dw@0"]
    assert [tensor.name for tensor in total.sources] == ["mb0.in_emb.dw@0"]
    assert [tensor.name for tensor in total.after] == [
        "mb1.in_emb.dw@0", "mb2.in_emb.dw@0", "mb3.in_emb.dw@0",
    ]  # fmt: skip


def test_the_update_takes_the_weight_and_its_summed_gradient() -> None:
    found = step(TINY)
    new = found["out_emb.w@1"]
    assert new.sources == (found["out_emb.w@0"], found["out_emb.dw@0"])
    assert new.form.kind == "A"
    # one addition for each element: width 16, vocabulary 24
    assert new.form.operations.value(TINY.numbers) == 16 * 24
    assert sum(name.endswith("@1") for name in found) == 5


def test_the_update_takes_whole_gradients_where_sums_are_partial() -> None:
    """An operand that is expected in full from a partial sum is an all-reduce."""
    found = step(replace(TINY, dp=2))
    gradient, new = found["in_emb.dw@0"], found["in_emb.w@1"]
    assert gradient.form.result.reduced
    assert new.form.operands[1].reduced == ()


def test_order_is_micro_batches_then_gradients_then_weights_then_updates() -> None:
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
        (replace(GATED, pp=2), [0, 0, 1], 1),
        (replace(TINY, pp=3), [0, 1, 2], 2),
    ],
)
def test_each_tensor_is_on_the_stage_of_its_layer(
    flags: StageFlags, layers: list[int], output: int
) -> None:
    for name, tensor in step(flags).items():
        part = name.removeprefix("mb0.")
        if part.startswith("transformer."):
            assert tensor.stage == layers[int(part.split(".")[1])]
        else:
            assert tensor.stage == (0 if part.startswith("in_emb.") else output)


def test_one_layer_takes_from_both_embeddings() -> None:
    found = step(replace(TINY, num_stacks=1))
    (forward,) = found["mb0.transformer.0.input_norm.x@0"].sources
    (backward,) = found["mb0.transformer.0.ffn_res.dy@0"].sources
    assert (forward.name, backward.name) == ("mb0.in_emb.y@0", "mb0.out_emb.dx@0")
