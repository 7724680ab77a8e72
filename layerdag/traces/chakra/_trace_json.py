"""Traces as JSON without loss, readable by people and by ``json.loads``.

``{"format": "layerdag-trace", "ranks": [0, 0, 1], "groups": {...}, "traces": [...]}``: ``ranks``
gives the trace of each rank. Numbers are exact; a float that JSON cannot write is ``{"bits": n}``
and bytes are ``{"base64": text}``. The nodes of a trace are written one per line.
"""

import base64
import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from layerdag.errors import TraceError
from layerdag.traces import Attribute, NodeType, Trace, Wire, Workload, wire_name
from layerdag.traces.chakra._attributes import (
    attribute_at,
    is_list,
    scalar_to_word,
    word_to_scalar,
)
from layerdag.traces.chakra._builder import NodeSpec, build_trace

FORMAT = "layerdag-trace"
_WIRE_OF = {wire_name(w): w for w in range(Wire.BYTES + 2) if w == 0 or w >= Wire.DOUBLE}
_IO = (
    *("input_values", "input_shapes", "input_types"),
    *("output_values", "output_shapes", "output_types"),
)


def encode_trace_json(workload: Workload) -> bytes:
    """Return all traces of a workload as JSON; ranks that share a trace share it here, too."""
    distinct: dict[int, int] = {}
    for trace in workload.traces:
        distinct.setdefault(id(trace), len(distinct))
    ranks = [distinct[id(trace)] for trace in workload.traces]
    traces = [workload.traces[ranks.index(number)] for number in range(len(distinct))]
    head = {
        "format": FORMAT,
        "ranks": ranks,
        "groups": {name: list(members) for name, members in workload.groups.items()},
    }
    body = ",\n".join("".join(_trace_lines(trace)) for trace in traces)
    return f'{json.dumps(head)[:-1]},\n"traces": [\n{body}\n]}}\n'.encode()


def _trace_lines(trace: Trace) -> Iterator[str]:
    """Yield one trace as JSON text."""
    head = {"version": trace.version, "metadata": [_attribute_out(a) for a in trace.metadata]}
    yield f'{json.dumps(head)[:-1]}, "nodes": ['
    for row in range(trace.num_nodes):
        yield ("" if row == 0 else ",") + "\n" + json.dumps(_node_out(trace, row))
    yield "\n]}"


def _node_out(trace: Trace, row: int) -> dict[str, Any]:
    """Return one node as JSON types; what is absent is left out."""
    table = trace.attributes
    at = range(int(table.ptr_N1[row]), int(table.ptr_N1[row + 1]))
    found: dict[str, Any] = {
        "id": int(trace.id_N[row]),
        "name": "" if trace.name_N[row] < 0 else trace.strings[trace.name_N[row]],
        "type": NodeType(int(trace.type_N[row])).name,
        "start_us": int(trace.start_us_N[row]),
        "duration_us": int(trace.duration_us_N[row]),
        "data_deps": trace.data_deps.of(row).tolist(),
        "ctrl_deps": trace.ctrl_deps.of(row).tolist(),
    }
    for name, index in zip(_IO, trace.io_N6[row].tolist(), strict=True):
        if index >= 0:
            found[name] = trace.strings[index]
    found["attributes"] = [_attribute_out(attribute_at(table, a, trace.strings)) for a in at]
    return found


def _attribute_out(attribute: Attribute) -> dict[str, Any]:
    """Return one attribute as JSON types."""
    wire, value = attribute.wire, attribute.value
    found: dict[str, Any] = {"name": attribute.name, "type": wire_name(wire)}
    if isinstance(value, tuple):
        found["value"] = [_value_out(wire - 1, element) for element in value]
    elif wire != Wire.UNSET:
        found["value"] = _value_out(wire, value)
    if attribute.doc:
        found["doc"] = attribute.doc
    return found


def _value_out(wire: int, value: Any) -> Any:
    """Return a scalar as JSON type."""
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, float) and not math.isfinite(value):
        return {"bits": scalar_to_word(wire, value)}
    return value


def decode_trace_json(data: bytes, source: str = "<memory>") -> Workload:
    """Read what ``encode_trace_json`` wrote.

    Raises:
        TraceError: If the file is no such JSON; names the node where there is one.
    """
    try:
        loaded = json.loads(data)
        ranks, groups = loaded["ranks"], loaded["groups"]
        traces = [_trace_in(entry, source) for entry in loaded["traces"]]
        if not ranks:
            raise ValueError("it has no rank")
        return Workload(
            traces=tuple(traces[_index(number, len(traces))] for number in ranks),
            groups={
                str(name): tuple(_index(rank, len(ranks)) for rank in members)
                for name, members in groups.items()
            },
            source=source,
        )
    except (
        *(ValueError, KeyError, TypeError, IndexError, AttributeError),
        *(OverflowError, RecursionError),
    ) as error:
        raise TraceError(
            f"{source}: is no sound JSON of layerdag ({type(error).__name__}: {error}); write it "
            "again with 'layerdag convert'."
        ) from None


def _index(number: object, size: int) -> int:
    """Return a position that must lie below ``size``."""
    if type(number) is not int or not 0 <= number < size:
        raise IndexError(f"{number!r:.40} is not one of 0 to {size - 1}")
    return number


def _integer(value: object) -> int:
    """Return an integer; a float would lose digits in silence."""
    if type(value) is not int:
        raise TypeError(f"{value!r:.40} is no integer")
    return value


def _trace_in(entry: dict[str, Any], source: str) -> Trace:
    """Return one trace."""
    return build_trace(
        [_node_in(row) for row in entry["nodes"]],
        metadata=tuple(map(_attribute_in, entry["metadata"])),
        version=str(entry["version"]),
        source=source,
    )


def _node_in(row: dict[str, Any]) -> NodeSpec:
    """Return one node."""
    return NodeSpec(
        id=_integer(row["id"]),
        name=str(row["name"]),
        type=NodeType[row["type"]],
        data_deps=tuple(map(_integer, row["data_deps"])),
        ctrl_deps=tuple(map(_integer, row["ctrl_deps"])),
        start_us=_integer(row["start_us"]),
        duration_us=_integer(row["duration_us"]),
        attributes=tuple(map(_attribute_in, row["attributes"])),
        io=tuple(_text_in(row.get(name)) for name in _IO),
    )


def _text_in(value: object) -> str | None:
    """Return an input or output field."""
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is no string")
    return value


def _attribute_in(row: dict[str, Any]) -> Attribute:
    """Return one attribute."""
    wire = _WIRE_OF[row["type"]]
    value: Any = row.get("value")
    if is_list(wire):
        value = tuple(_value_in(wire - 1, element) for element in value)
    elif wire != Wire.UNSET:
        value = _value_in(wire, value)
    return Attribute(str(row["name"]), wire, value, str(row.get("doc", "")))


def _value_in(wire: int, value: Any) -> Any:
    """Return a scalar."""
    if isinstance(value, dict) and "base64" in value:
        return base64.b64decode(value["base64"], validate=True)
    if isinstance(value, dict):
        return word_to_scalar(wire, _integer(value["bits"]))
    return np.float64(value).item() if wire in (Wire.DOUBLE, Wire.FLOAT) else value
