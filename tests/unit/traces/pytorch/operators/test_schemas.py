import pytest

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
