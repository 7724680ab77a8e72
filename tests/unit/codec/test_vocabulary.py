import pytest

from layerdag.codec import OTHER, is_communication
from layerdag.codec._vocabulary import public_device, public_dtype, public_name


@pytest.mark.parametrize(
    ("name", "public"),
    [
        ("aten::mm", "aten::mm"),
        ("aten::add.Tensor", "aten::add"),
        ("c10d::all_reduce", "c10d::all_reduce"),
        ("c10d::recv", "c10d::recv"),
        ("aten::acme_secret_kernel", OTHER),
        ("acme::mm", OTHER),
        ("## forward ##", OTHER),
    ],
)
def test_only_operators_of_pytorch_are_public(name, public):
    assert public_name(name) == public


@pytest.mark.parametrize(
    ("name", "public"),
    [
        ("mm.qkv.31.F0", "mm.qkv.F"),
        ("mm.qkv.3.B12.dx", "mm.qkv.B.dx"),
        ("attention.0.B1.again", "attention.B.again"),
        ("norm.F0", "norm.F"),
        ("adam", "adam"),
        ("mm.secret.3.F0", OTHER),
        ("acme.3.F0", OTHER),
        ("norm.F0.secret", OTHER),
        ("adam_of_acme", OTHER),
    ],
)
def test_operators_of_workloads_lose_layer_and_micro_batch(name, public):
    assert public_name(name) == public
    assert public_name(public) == public  # what a sample is called is read again as the same


def test_devices_lose_their_index_and_private_ones_their_name():
    assert [public_device(word) for word in ("cuda:3", "CPU", "acme-npu")] == ["cuda", "cpu", OTHER]


def test_only_data_types_are_public():
    words = ("float32", "bfloat16", "float8_e4m3fn", "AcmeType", "float32 secret")
    assert [public_dtype(word) for word in words] == [*words[:3], OTHER, OTHER]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("c10d::all_reduce", True),
        ("c10d::send", True),
        ("_c10d_functional::all_reduce", True),
        ("aten::all", False),
        (OTHER, False),
    ],
)
def test_communication_is_told_by_the_room_of_its_name(name, expected):
    assert is_communication(name) is expected
