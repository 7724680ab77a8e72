"""The JSON form of a Chakra trace that feeder v1 reads (``WrapperNode``, mlcommons/chakra).

``{"workload_graph": [{"Id", "Name", "NodeType", "data_deps", "runtime", ...}, ...]}``; ``runtime``
is in microseconds, every further key is an attribute.
"""

import json
from collections.abc import Mapping

import numpy as np

from layerdag.errors import TraceError
from layerdag.traces import Attribute, Trace, Wire
from layerdag.traces.chakra._attributes import value_of
from layerdag.traces.chakra._builder import NodeSpec, build_trace

_OWN_KEYS = ("Id", "Name", "NodeType", "data_deps", "ctrlDeps", "ctrl_deps", "runtime")
_WIRES = {
    "is_cpu_op": Wire.BOOL,
    "tensor_size": Wire.UINT64,
    "comm_priority": Wire.INT32,
    "comm_src": Wire.INT32,
    "comm_dst": Wire.INT32,
    "comm_tag": Wire.INT32,
}


def decode_feeder_json(data: bytes, source: str = "<memory>") -> Trace:
    """Read a trace in the JSON form.

    Raises:
        TraceError: If the file is no such JSON, or a node lacks its id, has a wrong type, or holds
            a value that no attribute can hold; names the node.
    """
    try:
        rows = json.loads(data)["workload_graph"]
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        raise TraceError(f"{source}: is no JSON with a 'workload_graph' ({error}).") from None
    if not isinstance(rows, list):
        raise TraceError(f"{source}: 'workload_graph' is no list of nodes.")
    return build_trace([_node(at, row, source) for at, row in enumerate(rows)], source=source)


def _node(at: int, row: object, source: str) -> NodeSpec:
    """Return one node."""
    if not isinstance(row, dict) or type(row.get("Id")) is not int:
        raise TraceError(f"{source}: entry {at} of 'workload_graph' has no integer 'Id'.")
    where = f"{source}: node {row['Id']}"
    extra = [(key, value) for key, value in row.items() if key not in _OWN_KEYS]
    return NodeSpec(
        id=row["Id"],
        name=str(row.get("Name", "")),
        type=_integer(row, "NodeType", where),
        data_deps=_ids(row.get("data_deps", []), where),
        ctrl_deps=_ids(row.get("ctrlDeps", row.get("ctrl_deps", [])), where),
        duration_us=_integer(row, "runtime", where),
        attributes=tuple(_attribute(key, value, where) for key, value in extra),
    )


def _integer(row: Mapping[str, object], key: str, where: str) -> int:
    """Return an integer entry, 0 where it is absent; a fraction of a microsecond is rounded."""
    value = row.get(key, 0)
    if isinstance(value, float) and value == value and abs(value) < 2**63:
        value = round(value)
    if not isinstance(value, int):
        raise TraceError(f"{where}: '{key}' is {value!r}, not an integer.")
    return value


def _ids(value: object, where: str) -> tuple[int, ...]:
    """Return a list of node ids."""
    if not isinstance(value, list) or not all(type(item) is int for item in value):
        raise TraceError(f"{where}: its dependencies are no list of node ids.")
    return tuple(value)


def _attribute(key: str, value: object, where: str) -> Attribute:
    """Return one further key as an attribute."""
    if isinstance(value, list) and not any(isinstance(element, list) for element in value):
        first = _attribute(key, value[0] if value else 0, where)
        return Attribute(key, first.wire + 1, tuple(value))
    if isinstance(value, bool):
        return Attribute(key, Wire.BOOL, value)
    if isinstance(value, int):
        return Attribute(key, _WIRES.get(key, Wire.INT64), value)
    if isinstance(value, float):
        return Attribute(key, Wire.DOUBLE, value)
    if isinstance(value, str):
        return Attribute(key, Wire.STRING, value)
    raise TraceError(f"{where}: '{key}' is {value!r:.40}, which no Chakra attribute can hold.")


def encode_feeder_json(trace: Trace) -> bytes:
    """Return a trace in the JSON form; ``start_us``, ``io`` and doc strings have no place in it.

    Raises:
        TraceError: If a node carries bytes, which JSON cannot hold.
    """
    rows = [_row(trace, row) for row in range(trace.num_nodes)]
    return json.dumps({"workload_graph": rows}, indent=1).encode()


def _row(trace: Trace, row: int) -> dict[str, object]:
    """Return one node as a JSON object."""
    found: dict[str, object] = {
        "Id": int(trace.id_N[row]),
        "Name": "" if trace.name_N[row] < 0 else trace.strings[trace.name_N[row]],
        "NodeType": int(trace.type_N[row]),
        "data_deps": _plain(trace.data_deps.of(row)),
        "ctrlDeps": _plain(trace.ctrl_deps.of(row)),
        "runtime": int(trace.duration_us_N[row]),
    }
    table = trace.attributes
    for at in range(int(table.ptr_N1[row]), int(table.ptr_N1[row + 1])):
        value = value_of(table, at, trace.strings)
        if isinstance(value, bytes):
            raise TraceError(
                f"{trace.source}: node {trace.id_N[row]} carries bytes, which JSON cannot hold; "
                "write .et instead."
            )
        name = int(table.name_A[at])
        if value is not None:
            found[trace.strings[name] if name >= 0 else ""] = value
    return found


def _plain(ids: np.ndarray) -> list[int]:
    """Return ids as Python integers."""
    return [int(value) for value in ids]
