"""Kinds of operators: what a node states, else the exact name."""

import pytest
import torch

import layerdag as ld
from layerdag.codec.vocabulary import public_operators
from layerdag.hardware.operators import MATRIX, OPERATORS, OPTIMIZERS, OperatorKind, operator_kind
from layerdag.traces.operator_kinds import of_kinds, operator_kinds
from layerdag.traces.trace import OPERATOR, NodeType
from layerdag.workloads.transformer.mesh import ROLES

OF_NAME = {f"aten::{name}": row.kind for name, row in OPERATORS.items() if row.kind is not None}
JOBS = {
    "gpt2": {"batch": 2, "sequence": 16},
    "mixtral-8x7b": {"tensor": 2, "data": 2, "expert": 2, "batch": 4, "sequence": 16},
    "deepseek-v3": {"phase": "decode", "batch": 2, "sequence": 16},
    "dit-xl-2": {"batch": 2},
    "dlrm-v2": {"batch": 64, "data": 2},
}


def test_the_table_holds_names_that_pytorch_registers():
    registered = {schema.name for schema in torch._C._jit_get_all_schemas()}
    unknown = set(OF_NAME) - registered - public_operators()
    # Not each operator on lists has a form that writes in place.
    assert {name for name in unknown if not name.startswith("aten::_foreach_")} <= {
        "aten::_scaled_dot_product_attention",  # of older versions
        "aten::_chunk_grad_outputs_efficient_attention",
    }


def test_products_are_those_of_which_pytorch_counts_operations():
    from torch.utils.flop_counter import flop_registry

    counted = {str(op).replace(".", "::") for op in flop_registry} & set(OF_NAME)
    assert len(counted) > 10
    assert {OF_NAME[name] for name in counted} <= set(MATRIX)


@pytest.mark.parametrize(
    "name", ["mine::mm", "comm", "aten::mm.out", "triton_poi_fused_add", "cudnn_convReorderFilter"]
)
def test_a_part_of_a_name_does_not_count(name):
    assert operator_kind(name) is None
    assert name not in OPTIMIZERS


def test_what_a_node_states_comes_before_its_name():
    assert operator_kind("mine", "attention") is OperatorKind.ATTENTION
    assert operator_kind("aten::mm", "unheard") is OperatorKind.PRODUCT


@pytest.mark.parametrize("model", JOBS)
def test_every_operator_of_a_workload_states_a_known_kind(model):
    trace = ld.workload(model, **JOBS[model]).traces[0]
    stated = [
        word
        for word, kind in zip(trace.texts(OPERATOR)[0], trace.type_N.tolist(), strict=True)
        if kind == NodeType.COMP
    ]
    assert all(stated)
    kinds = [
        kind
        for kind, word in zip(operator_kinds(trace), trace.texts(OPERATOR)[0], strict=True)
        if word
    ]
    assert None not in kinds
    assert of_kinds(trace, MATRIX).sum() > len(stated) / 10
    # Groups are named by their role until ranks are known, in one pool of words.
    assert not set(stated) & set(ROLES)
