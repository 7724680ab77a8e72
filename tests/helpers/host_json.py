"""Host execution traces of a few nodes, as ExecutionTraceObserver would write them."""

import json
import tempfile
from pathlib import Path

from layerdag.traces.pytorch.host_trace import HostBlock, read_host_blocks

MM = "aten::mm(Tensor self, Tensor mat2) -> Tensor"
RELU_ = "aten::relu_(Tensor(a!) self) -> Tensor(a!)"
VIEW = "aten::view(Tensor(a) self, SymInt[] size) -> Tensor(a)"
EMPTY = "aten::empty.memory_format(SymInt[] size) -> Tensor"
COPY_ = "aten::copy_(Tensor(a!) self, Tensor src, bool non_blocking=False) -> Tensor(a!)"
LINEAR = "aten::linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor"
ALL_REDUCE = (
    "c10d::allreduce_(Tensor[] tensors, __torch__.torch.classes.c10d.ProcessGroup process_group)"
    " -> (Tensor[], __torch__.torch.classes.c10d.Work)"
)


def tensor(storage: int, shape: tuple[int, ...] = (4, 4), offset: int = 0) -> dict:
    """Return a contiguous float tensor as (value, shape, type, strides)."""
    count, strides = 1, []
    for size in reversed(shape):
        strides.insert(0, count)
        count *= size
    value = [1000 + storage, storage, offset, count, 4, "cpu"]
    return {"value": value, "shape": list(shape), "type": "Tensor(float)", "strides": strides}


def listed(*tensors: dict) -> dict:
    """Return a list of tensors as one argument."""
    kinds = ",".join(each["type"] for each in tensors)
    return {
        "value": [each["value"] for each in tensors],
        "shape": [each["shape"] for each in tensors],
        "type": f"GenericList[{kinds}]",
        "strides": [each["strides"] for each in tensors],
    }


def plain(value: object, kind: str = "Int") -> dict:
    """Return an argument that is no tensor."""
    return {"value": value, "shape": [], "type": kind, "strides": []}


def node(
    number: int, name: str, schema: str = "", inputs: tuple = (), outputs: tuple = (), tid: int = 1
) -> dict:
    """Return one node of schema 1.1.1; its RecordFunction handle is its id plus 500."""
    return {
        "id": number,
        "name": name,
        "ctrl_deps": 2,
        "inputs": _values(inputs),
        "outputs": _values(outputs),
        "attrs": [
            {"name": "rf_id", "type": "uint64", "value": number + 500},
            {"name": "tid", "type": "uint64", "value": tid},
            {"name": "op_schema", "type": "string", "value": schema},
        ],
    }


def _values(arguments: tuple) -> dict:
    return {
        "values": [each["value"] for each in arguments],
        "shapes": [each["shape"] for each in arguments],
        "types": [each["type"] for each in arguments],
        "strides": [each["strides"] for each in arguments],
    }


def write_host(path: Path, nodes: list[dict], schema: str = "1.1.1-chakra.0.0.4") -> Path:
    """Write a host trace and return its path; nodes without a parent are inside the last one."""
    if nodes and all(each.get("ctrl_deps") == 2 != each["id"] for each in nodes):
        nodes = [{**each, "ctrl_deps": nodes[-1]["id"]} for each in nodes]
    head = {"schema": schema, "pid": 1, "time": "2026-01-01 00:00:00", "start_ts": 1}
    path.write_text(json.dumps({**head, "nodes": nodes, "finish_ts": 2}))
    return path


def host_blocks(*nodes: dict) -> list[HostBlock]:
    """Return nodes of schema 1.1.1 as the reader of files gives them."""
    with tempfile.TemporaryDirectory() as folder:
        return list(read_host_blocks(write_host(Path(folder) / "host.json", list(nodes))))
