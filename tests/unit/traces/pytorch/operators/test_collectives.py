import pytest
import torch
import torch.distributed

from layerdag.traces import NodeType
from layerdag.traces.pytorch.operators import COMMUNICATION

SCHEMAS = {s.name: s for s in torch._C._jit_get_all_schemas() if s.name in COMMUNICATION}
GIVEN = {"tensor", "tensors", "input", "inputs", "input_tensor", "input_tensors", "input_list"}
WRITTEN = {"tensors", "input", "out", "output", "outputs", "output_tensor", "output_tensors",
           "output_lists"}  # fmt: skip


@pytest.mark.parametrize("name", sorted(SCHEMAS))
def test_positions_of_arguments_are_those_of_torch(name: str) -> None:
    known, arguments = COMMUNICATION[name], SCHEMAS[name].arguments
    names = [argument.name for argument in arguments]
    for position, expected in ((known.sent, GIVEN), (known.received, WRITTEN)):
        if position >= 0:
            assert names[position] in expected
            assert "Tensor" in str(arguments[position].type)
    assert (names[known.group] if known.group >= 0 else "group_name" in names) in ("group_name", 0)
    if known.type is NodeType.COMM_COLL:
        assert known.peer == -1
    elif name != "c10d::recv_any_source_":  # knows no peer
        assert names[known.peer : known.peer + 2] in (["dst", "tag"], ["src", "tag"])


def test_every_operator_of_a_process_group_is_known_to_torch() -> None:
    missing = {name for name in COMMUNICATION.keys() - SCHEMAS.keys() if name.startswith("c10d::")}
    assert not missing


def test_receives_write_and_sends_give() -> None:
    for known in COMMUNICATION.values():
        if known.type is not NodeType.COMM_COLL:
            sends = known.type is NodeType.COMM_SEND
            assert (known.sent, known.received) == ((0, -1) if sends else (-1, 0))
            assert known.name == ("c10d::send" if sends else "c10d::recv")
