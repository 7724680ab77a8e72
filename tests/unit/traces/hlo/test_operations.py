"""Calls of libraries cost what they compute, annotations nothing, and others are told."""

import json

import pytest

from layerdag.runtime.notes import NoteKind
from layerdag.traces.hlo.operations import CustomCall, without_scratch
from layerdag.traces.hlo.parser import read_program
from layerdag.traces.hlo.program import Computation, ValueType

DOT = {"lhs_contracting_dimensions": ["1"], "rhs_contracting_dimensions": ["0"]}
SCORES = {"intermediate_tensor_shape": {"dimensions": ["2", "3", "5", "7"]}}
QUERY, KEYS = ValueType((2, 3, 5, 4), "f16"), ValueType((2, 3, 7, 4), "f16")
IMAGE, KERNEL, RESULT = (
    ValueType(shape, "f32") for shape in ((2, 8, 8, 3), (5, 3, 3, 3), (2, 6, 6, 5))
)
CONVOLVED = 2 * (2 * 6 * 6 * 5) * (3 * 3 * 3)


@pytest.mark.parametrize(
    ("target", "config", "inputs", "output", "flops"),
    [
        (
            "__cublas$gemm",
            {"gemm_backend_config": {"dot_dimension_numbers": DOT}},
            (ValueType((4, 6), "f32"), ValueType((6, 8), "f32")),
            ValueType((4, 8), "f32"),
            2 * 4 * 8 * 6,
        ),
        (
            "__cublas$lt$matmul$f8",  # as XLA wrote it in former versions
            {"dot_dimension_numbers": DOT},
            (ValueType((4, 6), "f8E4M3FN"), ValueType((6, 8), "f8E4M3FN")),
            ValueType((4, 8), "bf16"),
            2 * 4 * 8 * 6,
        ),
        ("__cudnn$convForward", {}, (IMAGE, KERNEL), RESULT, CONVOLVED),
        ("__cudnn$convBackwardInput", {}, (RESULT, KERNEL), IMAGE, CONVOLVED),
        ("__cudnn$convBackwardFilter", {}, (IMAGE, RESULT), KERNEL, CONVOLVED),
        ("__cudnn$fmhaSoftmax", SCORES, (QUERY, KEYS, KEYS), QUERY, 4 * 2 * 3 * 5 * 7 * 4),
        ("__cudnn$fmhaSoftmaxBackward", SCORES, (QUERY, KEYS), QUERY, 10 * 2 * 3 * 5 * 7 * 4),
        ("__cublas$gemm", {}, (QUERY, KEYS), QUERY, None),  # says nothing
        ("__cudnn$norm", {}, (QUERY,), QUERY, None),
        ("__cudnn$convReorderFilter", {}, (IMAGE, KERNEL), RESULT, None),
        ("my_kernel", {}, (QUERY,), QUERY, None),
    ],
)
def test_a_call_of_a_library_computes_what_its_configuration_says(
    target, config, inputs, output, flops
):
    call = CustomCall(target, json.dumps(config), "b01f_o01i->b01f", inputs, (output,))
    assert call.matrix_flops() == flops


def test_scratch_memory_of_a_library_is_no_result():
    scratch = ValueType((1 << 20,), "i8")
    assert without_scratch("__cublas$gemm", (IMAGE, scratch)) == (IMAGE,)
    assert without_scratch("my_kernel", (IMAGE, scratch)) == (IMAGE, scratch)
    assert without_scratch("__cublas$gemm", (scratch,)) == (scratch,)


def test_annotations_take_no_time_and_unknown_calls_are_told(written):
    kind = "(tensor<4x4xf32>) -> tensor<4x4xf32>"
    calls = "\n".join(
        f"%{i} = stablehlo.custom_call @{name}(%a) : {kind}"
        for i, name in enumerate(("Sharding", "SPMDFullToShardShape", "my_kernel"))
    )
    body = f"func.func @main(%a: tensor<4x4xf32>) {{\n{calls}\nreturn\n}}"
    program = read_program(written(body))
    assert program.items == (Computation("my_kernel", 0, 128, "f32", ()),)
    (note,) = program.notes
    assert (note.kind, note.word, note.count) == (NoteKind.OPERATOR, "my_kernel", 1)
