import pytest

from layerdag.errors import TraceError
from layerdag.traces.pytorch.operators import OpRole, signature
from tests.unit.traces.host_json import ALL_REDUCE, COPY_, EMPTY, LINEAR, MM, RELU_, VIEW


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
    ],
)  # fmt: skip
def test_roles(name, schema, role):
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


def test_composite_names_agree_with_the_installed_dispatcher():
    import torch

    from layerdag.traces.pytorch.operators import is_composite

    has = torch._C._dispatch_has_kernel_for_dispatch_key
    for name in ("aten::linear", "aten::matmul", "aten::reshape", "aten::einsum", "aten::to"):
        overloads = [o for o in torch._C._dispatch_get_all_op_names() if o.split(".")[0] == name]
        assert any(has(o, "CompositeImplicitAutograd") and is_composite(o) for o in overloads), name
    for name in ("aten::mm", "aten::addmm", "aten::convolution", "aten::zeros"):
        assert not is_composite(name)


@pytest.mark.parametrize(
    "schema",
    ["aten::odd", "aten::odd)", "aten::odd(=a!) -> Tensor", "no parenthesis -> Tensor"],
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


@pytest.mark.parametrize(
    ("name", "schema", "role"),
    [
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
        ("c10d::unknown", "c10d::unknown(Tensor t) -> Tensor", OpRole.SCOPE),
        ("## process_group:init ##", "", OpRole.GROUP),
        ("aten::is_nonzero", "aten::is_nonzero(Tensor self) -> bool", OpRole.SCOPE),
        ("mylib::fused", "mylib::fused(Tensor x) -> Tensor", OpRole.COMPUTE),
        ("mylib::inplace", "mylib::inplace(Tensor(a!) x) -> ()", OpRole.COMPUTE),
    ],
)  # fmt: skip
def test_roles_that_a_schema_alone_does_not_show(name, schema, role):
    assert signature(name, schema).role is role


def test_written_arguments_agree_with_torchs_own_schemas():
    """Every operator of aten that this version of PyTorch knows, by its parsed schema."""
    import torch

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
