"""Traces as JSON: the form of Chakra's feeder v1 (``WrapperNode``), and a lossless one.

Feeder: ``{"workload_graph": [{"Id", "Name", "NodeType", "data_deps", "runtime", ...}, ...]}``;
``runtime`` is in microseconds, every further key is an attribute.

Lossless: ``{"format": "layerdag-trace", "ranks": [0, 0, 1], "groups": {...}, "traces": [...]}``:
``ranks`` gives the trace of each rank. Numbers are exact; a float that JSON cannot write is
``{"bits": n}`` and bytes are ``{"base64": text}``. The nodes of a trace are written one per line.
"""

import base64
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from layerdag.errors import TraceError, UsageError
from layerdag.runtime.files import write_files
from layerdag.runtime.json_shape import found_value, parse_json, plain_reason, require_shape
from layerdag.runtime.notes import NoteCollector, NoteKind
from layerdag.traces.builder import (
    NodeSpec,
    attribute_at,
    build_trace,
    is_list,
    scalar_to_word,
    value_of,
    word_to_scalar,
)
from layerdag.traces.chakra.files import FEEDER_WIRES, KNOWN_VERSIONS, VERSIONS, note_collectives
from layerdag.traces.trace import Attribute, NodeType, Trace, Wire, Workload, wire_name

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
        loaded = parse_json(data)
        require_shape(loaded, {"workload_graph": list})
        rows = loaded["workload_graph"]
    except (ValueError, RecursionError) as error:
        raise TraceError(
            f"{source}: is no JSON with a 'workload_graph', the list of nodes "
            f"({plain_reason(error)}); write it again."
        ) from None
    trace = build_trace([_node(at, row, source) for at, row in enumerate(rows)], source=source)
    bare = [row["Id"] for row in rows if "NodeType" not in row]
    notes = NoteCollector(source)
    _note_strange(loaded, {"workload_graph": list}, notes)
    if bare:
        effect = "has no NodeType, so its type is INVALID, which is not written"
        notes.add(NoteKind.NODE, bare[0], effect, count=len(bare))
    return replace(trace, notes=notes.notes) if notes.notes else trace


def _node(at: int, row: object, source: str) -> NodeSpec:
    if not isinstance(row, dict) or type(row.get("Id")) is not int:
        raise TraceError(f"{source}: entry {at} of 'workload_graph' has no integer 'Id'.")
    where = f"{source}: node {row['Id']}"
    if not isinstance(row.get("Name", ""), str):
        raise TraceError(f"{where}: 'Name' is {found_value(row['Name'])}; write a text.")
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
        raise TraceError(f"{where}: '{key}' is {found_value(value)}, not an integer.")
    return value


def _ids(value: object, where: str) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(item) is int for item in value):
        raise TraceError(f"{where}: its dependencies are no list of node ids.")
    return tuple(value)


def _attribute(key: str, value: object, where: str) -> Attribute:
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
        if key in FEEDER_WIRES:
            raise TraceError(f"{where}: '{key}' is the text {value!r:.40}; write a number.")
        return Attribute(key, Wire.STRING, value)
    raise TraceError(
        f"{where}: '{key}' is {found_value(value)}, which no Chakra attribute can hold; leave it "
        "out, or write a number, a text or a list of one of them."
    )


def encode_feeder_json(trace: Trace) -> bytes:
    """Return a trace in the JSON form; ``start_us``, ``io`` and doc strings have no place in it.

    Raises:
        TraceError: If a node carries bytes, which JSON cannot hold.
    """
    rows = [_row(trace, row) for row in range(trace.num_nodes)]
    return json.dumps({"workload_graph": rows}, indent=1).encode()


def _row(trace: Trace, row: int) -> dict[str, object]:
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
    return [int(value) for value in ids]


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
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, float) and not math.isfinite(value):
        return {"bits": scalar_to_word(wire, value)}
    return value


_ATTRIBUTE = {"name": str, "type": str, "doc?": str}
_NODE: dict[str, Any] = {
    "id": int,
    "name": str,
    "type": str,
    "data_deps": [int],
    "ctrl_deps": [int],
    "start_us": int,
    "duration_us": int,
    "attributes": [_ATTRIBUTE],
    **{f"{name}?": (str, None) for name in _IO},
}
_SHAPE: dict[str, Any] = {
    "ranks": [int],
    "groups": {str: [int]},
    "traces": [{"nodes": [_NODE], "metadata": [_ATTRIBUTE], "version": str}],
}


def decode_trace_json(data: bytes, source: str = "<memory>") -> Workload:
    """Read what ``encode_trace_json`` wrote.

    Raises:
        TraceError: If the file is no such JSON; names the node where there is one.
    """
    try:
        loaded = parse_json(data)
    except (ValueError, RecursionError) as error:
        raise TraceError(f"{source}: is no JSON ({plain_reason(error)}); write it again.") from None
    try:
        if loaded["format"] != FORMAT:
            raise ValueError(f"its format is '{loaded['format']!s:.40}', not '{FORMAT}'")
        ranks, groups = loaded["ranks"], loaded["groups"]
        traces = [_trace_in(entry, source) for entry in loaded["traces"]]
        if not ranks:
            raise ValueError("it has no rank")
        notes = NoteCollector(source)
        _note_strange(loaded, {"format": str, **_SHAPE}, notes)
        return Workload(
            traces=tuple(traces[_index(number, len(traces))] for number in ranks),
            groups={
                str(name): tuple(_index(rank, len(ranks)) for rank in members)
                for name, members in groups.items()
            },
            source=source,
            job_notes=notes.notes,
        )
    except (
        *(ValueError, KeyError, TypeError, AttributeError),
        *(OverflowError, RecursionError),
    ) as error:
        raise TraceError(
            f"{source}: is no sound JSON of layerdag ({_fault(loaded, error)}); write it again "
            "with 'layerdag convert'."
        ) from None


def _fault(loaded: Any, error: Exception) -> str:
    """Return what is wrong with a document; its shape is looked at after a fault alone."""
    try:
        require_shape(loaded, _SHAPE)
    except ValueError as found:
        return str(found)
    return plain_reason(error)


def _index(number: object, size: int) -> int:
    if type(number) is not int or not 0 <= number < size:
        raise ValueError(f"{found_value(number)} is not one of 0 to {size - 1}")
    return number


def _note_strange(found: dict[str, Any], shape: dict[str, Any], notes: NoteCollector) -> None:
    """Note keys of an object that its shape does not have."""
    for key in found.keys() - {known.removesuffix("?") for known in shape}:
        where = f"node {found['id']}" if "id" in found else ""
        notes.add(NoteKind.KEY, key, "not of this form; left out", where=where)


def _trace_in(entry: dict[str, Any], source: str) -> Trace:
    version = _stated(entry["version"])
    if version not in VERSIONS:
        raise ValueError(f"it has Chakra version '{version:.40}'; {KNOWN_VERSIONS} are known")
    trace = build_trace(
        [_node_in(row) for row in entry["nodes"]],
        metadata=tuple(map(_attribute_in, entry["metadata"])),
        version=version,
        source=source,
    )
    notes = NoteCollector(source)
    _note_strange(entry, _SHAPE["traces"][0], notes)
    for row in entry["nodes"]:
        _note_strange(row, _NODE, notes)
    note_collectives(trace, notes)
    return replace(trace, notes=notes.notes) if notes.notes else trace


def _node_in(row: dict[str, Any]) -> NodeSpec:
    return NodeSpec(
        id=_lossless_integer(row["id"]),
        name=_stated(row["name"]),
        type=NodeType[row["type"]],
        data_deps=tuple(map(_lossless_integer, row["data_deps"])),
        ctrl_deps=tuple(map(_lossless_integer, row["ctrl_deps"])),
        start_us=_lossless_integer(row["start_us"]),
        duration_us=_lossless_integer(row["duration_us"]),
        attributes=tuple(map(_attribute_in, row["attributes"])),
        io=tuple(_text_in(row.get(name)) for name in _IO),
    )


def _stated(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{found_value(value)} is no text")
    return value


def _text_in(value: object) -> str | None:
    return None if value is None else _stated(value)


def _lossless_integer(value: object) -> int:
    """Return an integer; a float would lose digits in silence."""
    if type(value) is not int:
        raise ValueError(f"{found_value(value)} is no whole number")
    return value


def _attribute_in(row: dict[str, Any]) -> Attribute:
    wire = _WIRE_OF[row["type"]]
    value: Any = row.get("value")
    if is_list(wire):
        if not isinstance(value, list):
            raise ValueError(f"the value of '{row['name']}' must be a list")
        value = tuple(_value_in(wire - 1, element) for element in value)
    elif wire != Wire.UNSET:
        value = _value_in(wire, value)
    return Attribute(_stated(row["name"]), wire, value, _stated(row.get("doc", "")))


def _value_in(wire: int, value: Any) -> Any:
    if isinstance(value, dict) and "base64" in value:
        return base64.b64decode(value["base64"], validate=True)
    if isinstance(value, dict):
        return word_to_scalar(wire, _lossless_integer(value["bits"]))
    return np.float64(value).item() if wire in (Wire.DOUBLE, Wire.FLOAT) else value


def write_feeder_files(prefix: str | Path, workload: Workload) -> None:
    """Write ``PREFIX.<rank>.json`` of each rank, rank 0 last.

    Raises:
        UsageError: If a file of a rank that the workload lacks is there.
    """
    prefix = Path(prefix)
    files = {
        prefix.with_name(f"{prefix.name}.{rank}.json"): encode_feeder_json(trace)
        for rank, trace in enumerate(workload.traces)
    }
    foreign = [path for path in feeder_files(prefix) if path not in files]
    if foreign:
        raise UsageError(
            f"{foreign[0]}: is there already, but no rank of the new workload, so readers would "
            "mix the two; remove it or name another prefix."
        )
    write_files(prefix, reversed(files.items()))


def feeder_files(prefix: Path) -> list[Path]:
    """Return the feeder files of any rank at a prefix."""
    found = prefix.parent.glob("*.json") if prefix.parent.is_dir() else ()
    pattern = re.compile(re.escape(prefix.name) + r"\.\d{1,9}\.json")
    return sorted(path for path in found if pattern.fullmatch(path.name))
