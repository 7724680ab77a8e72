"""Operators without a kernel of their own, against the dispatcher that is installed."""

import pytest
import torch
import torch.distributed
from host_json import ALL_REDUCE, COPY_, EMPTY, LINEAR, MM, RELU_, VIEW, host_blocks, node, tensor
from hypothesis import given, strategies as st
from laws import tried

from layerdag.errors import TraceError
from layerdag.hardware.collectives import COMMUNICATION_OPERATORS, PEER
from layerdag.hardware.dtypes import SPELLINGS
from layerdag.hardware.operators import is_composite, operation_count
from layerdag.traces.pytorch.operators import (
    UNKNOWN_DTYPE,
    BlockTensors,
    OpRole,
    TensorView,
    signature,
)

SCHEMAS = {s.name: s for s in torch._C._jit_get_all_schemas() if s.name in COMMUNICATION_OPERATORS}
GIVEN = {
    "tensor",
    "tensors",
    "input",
    "inputs",
    "input_tensor",
    "input_tensors",
    "input_list",
    "self",
    "shard",
    "local_input",
}
WRITTEN = {"tensors", "input", "inputs", "out", "output", "outputs", "output_tensor",
           "output_tensors", "output_lists"}  # fmt: skip


@pytest.mark.parametrize("name", sorted(SCHEMAS))
def test_positions_of_arguments_are_those_of_torch(name):
    known, arguments = COMMUNICATION_OPERATORS[name], SCHEMAS[name].arguments
    names = [argument.name for argument in arguments]
    for position, expected in ((known.sent, GIVEN), (known.received, WRITTEN)):
        if position >= 0:
            assert names[position] in expected
            assert "Tensor" in str(arguments[position].type)
    group = names[known.group] if known.group >= 0 else "group_name" in names
    assert group in ("group_name", "ranks", 0)
    if known.is_message and name != "c10d::recv_any_source_":  # knows no peer
        assert names[PEER : PEER + 2] in (["dst", "tag"], ["src", "tag"])


def test_every_operator_of_a_process_group_is_known_to_torch():
    missing = {
        name
        for name in COMMUNICATION_OPERATORS.keys() - SCHEMAS.keys()
        if name.startswith("c10d::")
    }
    assert not missing


def test_receives_write_and_sends_give():
    for known in COMMUNICATION_OPERATORS.values():
        if known.is_message:
            sends = known.kind == "send"
            assert (known.sent, known.received) == ((0, -1) if sends else (-1, 0))
            assert known.name == ("c10d::send" if sends else "c10d::recv")


HAS = torch._C._dispatch_has_kernel_for_dispatch_key


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        ("aten::linear", True),
        ("aten::matmul", True),
        ("aten::to.dtype", True),  # every overload
        ("aten::max.other", True),
        ("aten::max", False),  # this overload only has a kernel
        ("aten::max.dim", False),
        ("aten::softmax.int", True),
        ("aten::_softmax", False),
        ("mylib::linear", False),
        ("linear", False),
    ],
)
def test_overloads_are_told_apart(operator, expected):
    assert is_composite(operator) is expected


def test_no_operator_with_a_kernel_of_its_own_is_taken_for_a_composite():
    """Kernels that a processor registers for itself would be lost with their time."""
    wrong = [
        name
        for name in torch._C._dispatch_get_all_op_names()
        if is_composite(name) and HAS(name, "CPU") and not HAS(name, "CompositeImplicitAutograd")
    ]
    assert wrong == []


def access(*shape: int) -> TensorView:
    return view(shape)


QKV = [(2, 4, 16, 8), (2, 4, 32, 8), (2, 4, 32, 8)]  # batch, heads, positions, width


@pytest.mark.parametrize(
    ("name", "reads", "writes", "expected"),
    [
        ("aten::mm", [(3, 5), (5, 7)], [(3, 7)], 2 * 3 * 5 * 7),
        ("aten::addmm", [(7,), (3, 5), (5, 7)], [(3, 7)], 2 * 3 * 5 * 7),
        ("aten::bmm", [(2, 3, 5), (2, 5, 7)], [(2, 3, 7)], 2 * 2 * 3 * 5 * 7),
        ("aten::convolution", [(1, 3, 8, 8), (4, 3, 3, 3)], [(1, 4, 6, 6)], 2 * 4 * 36 * 27),
        ("aten::add", [(3, 5), (5,)], [(3, 5)], 15),
        ("aten::sum", [(3, 5)], [()], 15),
        ("aten::_foreach_add_", [(3,), (4,)], [(3,), (4,)], 7),
        ("aten::mm", [(3, 5)], [(3, 7)], 21),
        ("aten::mv", [(3, 5), (5,)], [(3,)], 2 * 15),
        ("aten::dot", [(5,), (5,)], [()], 2 * 5),
        ("aten::addmv", [(3,), (3, 5), (5,)], [(3,)], 2 * 15),
        ("aten::baddbmm", [(2, 3, 7), (2, 3, 5), (2, 5, 7)], [(2, 3, 7)], 2 * 2 * 3 * 5 * 7),
        # Gradients of input and weight cost a forward each: 2 * 144 outputs * 27 weights.
        ("aten::convolution_backward", [(1, 4, 6, 6), (1, 3, 8, 8), (4, 3, 3, 3)],
         [(1, 3, 8, 8), (4, 3, 3, 3), (4,)], 2 * 2 * 144 * 27),
        ("aten::convolution_backward", [(1, 4, 6, 6), (1, 3, 8, 8), (4, 3, 3, 3)],
         [(4, 3, 3, 3), (4,)], 2 * 144 * 27),
        ("aten::convolution_backward", [(1, 4, 6, 6), (1, 3, 8, 8), (4, 3, 3, 3)],
         [(4,)], 2 * 144 * 27),
        # Two products of 16 queries by 32 keys over 8 heads of width 8.
        ("aten::_flash_attention_forward", QKV, [QKV[0]], 2 * 2 * (2 * 4) * 16 * 32 * 8),
        ("aten::_flash_attention_backward", [QKV[0], *QKV], [QKV[0]],
         5 * 2 * (2 * 4) * 16 * 32 * 8),
        ("aten::_fused_adamw_", [(3,), (4,), (3,), (4,)], [(3,), (4,)], 7),
        ("aten::_foreach_norm", [(3,), (4,)], [], 7),
        ("aten::arange", [], [(6,)], 6),
        ("aten::nothing", [], [], 0),
    ],
)  # fmt: skip
def test_formulas_of_the_textbook(name, reads, writes, expected):
    got = operation_count(name, [access(*s) for s in reads], [access(*s) for s in writes])
    assert got == expected


@pytest.mark.parametrize(
    ("name", "reads", "writes"),
    [
        ("aten::mm", [(), (2, 7)], [(4, 4)]),
        ("aten::mm", [(4, 4)], []),
        ("aten::addmm", [(4, 4), (2, 2)], []),
        ("aten::convolution", [(4, 4), ()], [(2,)]),
        ("aten::convolution", [(4, 4), (2, 2)], []),
        ("aten::convolution", [(4, 4)], [(2,)]),
        ("aten::convolution_backward", [(4, 4), (2,), ()], [(2,)]),
        ("aten::convolution_backward", [(4, 4), (2,)], [(2,)]),
        ("aten::_flash_attention_forward", [(4, 4), (2,)], [(2,)]),
        ("aten::_flash_attention_forward", [(4, 4)], []),
        ("aten::_flash_attention_backward", [(2,), (4, 4)], []),
    ],
)
def test_arguments_that_no_formula_fits_count_the_elements_of_the_largest(name, reads, writes):
    got = operation_count(name, [access(*s) for s in reads], [access(*s) for s in writes])
    assert got == 16


def test_attention_agrees_with_torchs_own_counts():
    from torch.utils.flop_counter import sdpa_backward_flop_count, sdpa_flop_count

    tensors = [access(*s) for s in QKV]
    forward = operation_count("aten::_scaled_dot_product_flash_attention_for_cpu", tensors, [])
    assert forward == sdpa_flop_count(*QKV)
    name = "aten::_scaled_dot_product_flash_attention_backward"
    backward = operation_count(name, [tensors[0], *tensors], [])
    assert backward == sdpa_backward_flop_count(QKV[0], *QKV)


def test_a_convolution_and_its_gradients_agree_with_torchs_flop_counter():
    from torch.utils.flop_counter import FlopCounterMode

    x, w = (torch.zeros(s, requires_grad=True) for s in ((2, 3, 8, 8), (4, 3, 3, 3)))
    with FlopCounterMode(display=False) as counter:
        y = torch.nn.functional.conv2d(x, w)
    forward = operation_count(
        "aten::convolution", [access(*t.shape) for t in (x, w)], [access(*y.shape)]
    )
    assert forward == counter.get_total_flops()
    with FlopCounterMode(display=False) as counter:
        y.sum().backward()
    reads = [access(*t.shape) for t in (y, x, w)]
    writes = [access(*x.shape), access(*w.shape)]
    got = operation_count("aten::convolution_backward", reads, writes)
    assert got == counter.get_total_flops()


@pytest.mark.parametrize(
    ("name", "schema", "role"),
    [
        ("aten::mm", MM, OpRole.COMPUTE),
        ("aten::view", VIEW, OpRole.VIEW),
        ("aten::empty", EMPTY, OpRole.ALLOCATION),
        ("aten::linear", LINEAR, OpRole.SCOPE),
        ("Optimizer.step#SGD.step", "", OpRole.SCOPE),
        ("c10d::allreduce_", ALL_REDUCE, OpRole.COMMUNICATION),
        ("_c10d_functional::wait_tensor", "_c10d_functional::wait_tensor(Tensor t) -> Tensor",
         OpRole.VIEW),
        ("aten::max", "aten::max.other(Tensor self, Tensor other) -> Tensor", OpRole.SCOPE),
        ("aten::max", "aten::max(Tensor self) -> Tensor", OpRole.COMPUTE),
        ("aten::native_layer_norm",
         "aten::native_layer_norm(Tensor input, SymInt[] shape, Tensor? weight) -> "
         "(Tensor, Tensor, Tensor)", OpRole.COMPUTE),
        ("aten::split", "aten::split.Tensor(Tensor(a -> *) self, SymInt n) -> Tensor(a)[]",
         OpRole.VIEW),
        ("aten::_local_scalar_dense", "aten::_local_scalar_dense(Tensor self) -> Scalar",
         OpRole.SCOPE),
        # What a schema alone does not show.
        ("aten::_unsafe_view", "aten::_unsafe_view(Tensor self, SymInt[] size) -> Tensor",
         OpRole.VIEW),
        ("aten::set_", "aten::set_.source_Tensor(Tensor(a!) self, Tensor source) -> Tensor(a!)",
         OpRole.VIEW),
        ("aten::new_empty", "aten::new_empty(Tensor self, SymInt[] size) -> Tensor",
         OpRole.ALLOCATION),
        ("aten::resize_", "aten::resize_(Tensor(a!) self, SymInt[] size) -> Tensor(a!)",
         OpRole.ALLOCATION),
        ("profiler::_record_function_enter_new", "profiler::_record_function_enter_new(str name) "
         "-> Tensor", OpRole.SCOPE),
        ("c10d::unknown", "c10d::unknown(Tensor t) -> Tensor", OpRole.COMPUTE),
        ("## process_group:init ##", "", OpRole.GROUP),
        ("aten::is_nonzero", "aten::is_nonzero(Tensor self) -> bool", OpRole.SCOPE),
        ("mylib::fused", "mylib::fused(Tensor x) -> Tensor", OpRole.COMPUTE),
        ("mylib::inplace", "mylib::inplace(Tensor(a!) x) -> ()", OpRole.COMPUTE),
    ],
)  # fmt: skip
def test_the_role_of_an_operator_follows_its_schema(name, schema, role):
    assert signature(name, schema).role is role


def test_a_triton_kernel_computes_although_it_has_no_schema():
    assert signature("triton_poi_fused_0", "", triton=True).role is OpRole.COMPUTE


def test_in_place_operators_read_what_they_write():
    known = signature("aten::relu_", RELU_)
    assert known.written == {0}
    assert known.overwritten == set()


def test_copies_and_out_arguments_are_overwritten():
    assert signature("aten::copy_", COPY_).overwritten == {0}
    out = "aten::mul.out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)"
    assert signature("aten::mul", out).overwritten == {2}


@pytest.mark.parametrize(
    "schema", ["aten::odd", "aten::odd)", "aten::odd(=a!) -> Tensor", "no parenthesis -> Tensor"]
)
def test_a_schema_that_is_none_is_refused_by_name(schema):
    with pytest.raises(TraceError, match=r"operator 'my::op' has the schema '.*collect the trace"):
        signature("my::op", schema)


@pytest.mark.parametrize(
    ("name", "schema", "written", "overwritten"),
    [
        # Two arguments are written; only the results of an out variant lose their content unread.
        ("aten::batch_norm_update",
         "aten::batch_norm_update(Tensor x, Tensor(a!) mean, Tensor(b!) var) -> Tensor",
         {1, 2}, set()),
        ("aten::sort", "aten::sort.values(Tensor x, int d=-1, bool b=False, *, Tensor(a!) values, "
         "Tensor(b!) indices) -> (Tensor(a!) values, Tensor(b!) indices)", {3, 4}, set()),
        ("aten::add", "aten::add.out(Tensor x, Tensor y, *, Scalar alpha=1, Tensor(a!) out) -> "
         "Tensor(a!)", {3}, {3}),
        ("aten::std_mean", "aten::std_mean.correction_out(Tensor x, int[1]? dim=None, *, "
         "Tensor(a!) out0, Tensor(b!) out1) -> (Tensor(a!), Tensor(b!))", {2, 3}, {2, 3}),
        ("aten::zero_", "aten::zero_(Tensor(a!) self) -> Tensor(a!)", {0}, {0}),
        ("aten::_foreach_zero_", "aten::_foreach_zero_(Tensor(a!)[] self) -> ()", {0}, {0}),
        ("aten::_foreach_add_",
         "aten::_foreach_add_.List(Tensor(a!)[] self, Tensor[] other, *, Scalar alpha=1) -> ()",
         {0}, set()),
        ("aten::index_put_", "aten::index_put_(Tensor(a!) self, Tensor?[] indices, Tensor values, "
         "bool accumulate=False) -> Tensor(a!)", {0}, set()),
    ],
)  # fmt: skip
def test_positions_of_written_arguments_are_counted_past_defaults_and_lists(
    name, schema, written, overwritten
):
    known = signature(name, schema)
    assert known.role is OpRole.COMPUTE
    assert (known.written, known.overwritten) == (written, overwritten)


def test_fsdp_allocates_what_it_copies_into_without_an_operator():
    schema = (
        "fsdp::split_with_sizes_copy(Tensor all_gather_output, SymInt[] all_gather_input_split_"
        "sizes, int dim=0, *, Tensor(a!)[] out) -> ()"
    )
    assert signature("fsdp::split_with_sizes_copy", schema).reallocated == {3}
    assert signature("aten::split_with_sizes_copy", schema).reallocated == set()


def test_written_arguments_agree_with_torchs_own_schemas():
    """Every operator of aten that this version of PyTorch knows, by its parsed schema."""
    checked, dispatched = 0, set(torch._C._dispatch_get_all_op_names())
    for schema in torch._C._jit_get_all_schemas():
        name = f"{schema.name}.{schema.overload_name}".removesuffix(".")
        if not name.startswith("aten::") or name not in dispatched:
            continue  # TorchScript has operators of its own, on dictionaries and lists
        known = signature(schema.name, str(schema))
        if known.role is not OpRole.COMPUTE:
            continue
        expected = {
            at
            for at, argument in enumerate(schema.arguments)
            if argument.alias_info is not None and argument.alias_info.is_write
        }
        assert known.written == expected, str(schema)
        checked += 1
    assert checked > 1000


def view(shape: tuple[int, ...], dtype: str = "float32") -> TensorView:
    return TensorView(1, 0, 4, 4, shape, dtype, "cpu")


def held(argument: dict) -> TensorView:
    (block,) = host_blocks(node(3, "aten::mm", MM, (argument,)))
    return BlockTensors(block).view(0)


@pytest.mark.parametrize(("shape", "count"), [((), 1), ((3,), 3), ((2, 3, 4), 24), ((2, 0), 0)])
def test_elements_are_the_product_of_the_sizes(shape, count):
    assert view(shape).num_elements == count


@pytest.mark.parametrize(
    ("shape", "dtype", "expected"),
    [
        ((), "float64", True),
        ((), "int64", True),
        ((), "bool", True),
        ((), "complex128", True),
        ((), "float32", False),  # a Python number becomes a double
        ((1,), "float64", False),
    ],
)
def test_only_a_tensor_without_shape_of_a_type_of_numbers_may_be_a_number(shape, dtype, expected):
    assert view(shape, dtype).is_number is expected


@pytest.mark.parametrize(
    "word", sorted(word for word, dtype in SPELLINGS.items() if dtype.code is not None)
)
def test_c_types_have_the_public_name_that_torch_gives_them(word):
    assert held(tensor(1) | {"type": f"Tensor({word})"}).dtype == SPELLINGS[word].name
    assert isinstance(getattr(torch, SPELLINGS[word].name), torch.dtype)


@pytest.mark.parametrize(
    "kind", ["Tensor(c10::QInt8)", "Tensor()", "Tensor(nullptr (uninitialized))"]
)
def test_other_types_are_unknown(kind):
    assert held(tensor(1) | {"type": kind}).dtype == UNKNOWN_DTYPE


@tried(25)
@given(st.lists(st.integers(1, 5), max_size=4), st.integers(0, 7))
def test_a_contiguous_tensor_reaches_over_all_its_elements(shape, offset):
    found = held(tensor(9, tuple(shape), offset=offset))
    count = 1
    for size in shape:
        count *= size
    assert found.shape == tuple(shape)
    assert (found.begin, found.end) == (4 * offset, 4 * (offset + count))
    assert (found.num_bytes, found.num_elements) == (4 * count, count)


def test_tensors_of_one_block_keep_their_order_and_their_shapes_apart():
    arguments = (tensor(1, (2,)), tensor(2, (3, 4)), tensor(3, ()))
    (block,) = host_blocks(node(3, "aten::mm", MM, arguments, (tensor(4, (5,)),)))
    tensors = BlockTensors(block)
    assert [tensors.view(at).shape for at in range(4)] == [(2,), (3, 4), (), (5,)]
    assert tensors.storage == [1, 2, 3, 4]
    assert tensors.position == [0, 1, 2, 0]
