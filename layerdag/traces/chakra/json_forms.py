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
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from layerdag.errors import TraceError, UsageError
from layerdag.runtime.files import write_files
from layerdag.runtime.json_shape import (
    found_value,
    from_json,
    parse_json,
    plain_reason,
    require_shape,
)
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


def decode_feeder_json(data: bytes, source: str = "<memory>") -> Trace:
    """Read a trace in the JSON form.

    Raises:
        TraceError: If the file is not such JSON, or a node lacks its id, has a wrong type, or holds
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
    for key in loaded.keys() - {"workload_graph"}:
        notes.add(NoteKind.KEY, key, "not of this form; left out")
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
        return Attribute(key, FEEDER_WIRES.get(key, Wire.INT64), value)
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
        "data_deps": trace.data_deps.of(row).tolist(),
        "ctrlDeps": trace.ctrl_deps.of(row).tolist(),
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


FORMAT = "layerdag-trace"
_WIRE_OF = {wire_name(w): w for w in range(Wire.BYTES + 2) if w == 0 or w >= Wire.DOUBLE}
_IO = (
    *("input_values", "input_shapes", "input_types"),
    *("output_values", "output_shapes", "output_types"),
)


def encode_trace_json(workload: Workload) -> bytes:
    """Return all traces of a workload as JSON; ranks that share a trace share it here, too."""
    distinct = workload.ranks_by_trace()
    number = {rank: at for at, (_, ranks) in enumerate(distinct) for rank in ranks}
    head = {
        "format": FORMAT,
        "ranks": [number[rank] for rank in range(workload.num_ranks)],
        "groups": {name: list(members) for name, members in workload.groups.items()},
    }
    texts = []
    for trace, _ in distinct:
        own = {"version": trace.version, "metadata": [_attribute_out(a) for a in trace.metadata]}
        nodes = ",".join(f"\n{json.dumps(_node_out(trace, row))}" for row in range(trace.num_nodes))
        texts.append(f'{json.dumps(own)[:-1]}, "nodes": [{nodes}\n]}}')
    body = ",\n".join(texts)
    return f'{json.dumps(head)[:-1]},\n"traces": [\n{body}\n]}}\n'.encode()


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


@dataclass
class _AttributeRow:
    name: str
    type: str
    value: Any = None
    doc: str = ""

    def attribute(self) -> Attribute:
        """Return the attribute. Raises ValueError if the value is not of its type."""
        wire = _WIRE_OF[self.type]
        value = self.value
        if is_list(wire):
            if not isinstance(value, list):
                raise ValueError(f"the value of '{self.name}' must be a list")
            value = tuple(_value_in(wire - 1, element) for element in value)
        elif wire != Wire.UNSET:
            value = _value_in(wire, value)
        return Attribute(self.name, wire, value, self.doc)


@dataclass
class _NodeRow:
    id: int
    name: str
    type: str
    start_us: int
    duration_us: int
    data_deps: tuple[int, ...]
    ctrl_deps: tuple[int, ...]
    attributes: list[_AttributeRow]
    input_values: str | None = None
    input_shapes: str | None = None
    input_types: str | None = None
    output_values: str | None = None
    output_shapes: str | None = None
    output_types: str | None = None


@dataclass
class _TraceRow:
    version: str
    metadata: list[_AttributeRow]
    nodes: list[_NodeRow]


@dataclass
class _Document:
    format: str
    ranks: list[int]
    groups: dict[str, list[int]]
    traces: list[_TraceRow]


def decode_trace_json(data: bytes, source: str = "<memory>") -> Workload:
    """Read what ``encode_trace_json`` wrote.

    Raises:
        TraceError: If the file is not such JSON; names the node where there is one.
    """
    try:
        loaded = parse_json(data)
    except (ValueError, RecursionError) as error:
        raise TraceError(f"{source}: is no JSON ({plain_reason(error)}); write it again.") from None
    try:
        if isinstance(loaded, dict) and loaded.get("format", FORMAT) != FORMAT:
            raise ValueError(f"its format is '{loaded['format']!s:.40}', not '{FORMAT}'")
        found = from_json(_Document, loaded)
        traces = [
            _trace_in(row, raw, source)
            for row, raw in zip(found.traces, loaded["traces"], strict=True)
        ]
        if not found.ranks:
            raise ValueError("it has no rank")
        notes = NoteCollector(source)
        _note_strange(loaded, _Document, notes)
        return Workload(
            traces=tuple(traces[_index(number, len(traces))] for number in found.ranks),
            groups={
                name: tuple(_index(rank, len(found.ranks)) for rank in members)
                for name, members in found.groups.items()
            },
            source=source,
            job_notes=notes.notes,
        )
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise TraceError(
            f"{source}: is no sound JSON of layerdag ({plain_reason(error)}); write it again "
            "with 'layerdag convert'."
        ) from None


def _index(number: int, size: int) -> int:
    if not 0 <= number < size:
        raise ValueError(f"{number} is not one of 0 to {size - 1}")
    return number


def _note_strange(found: dict[str, Any], form: type, notes: NoteCollector) -> None:
    """Note keys of an object that its form, a dataclass, does not have."""
    for key in found.keys() - {each.name for each in fields(form)}:
        where = f"node {found['id']}" if "id" in found else ""
        notes.add(NoteKind.KEY, key, "not of this form; left out", where=where)


def _trace_in(row: _TraceRow, raw: dict[str, Any], source: str) -> Trace:
    if row.version not in VERSIONS:
        raise ValueError(f"it has Chakra version '{row.version:.40}'; {KNOWN_VERSIONS} are known")
    nodes = [
        NodeSpec(
            id=node.id,
            name=node.name,
            type=NodeType[node.type],
            data_deps=node.data_deps,
            ctrl_deps=node.ctrl_deps,
            start_us=node.start_us,
            duration_us=node.duration_us,
            attributes=tuple(each.attribute() for each in node.attributes),
            io=tuple(getattr(node, name) for name in _IO),
        )
        for node in row.nodes
    ]
    metadata = tuple(each.attribute() for each in row.metadata)
    trace = build_trace(nodes, metadata=metadata, version=row.version, source=source)
    notes = NoteCollector(source)
    _note_strange(raw, _TraceRow, notes)
    for each in raw["nodes"]:
        _note_strange(each, _NodeRow, notes)
    note_collectives(trace, notes)
    return replace(trace, notes=notes.notes) if notes.notes else trace


def _value_in(wire: int, value: Any) -> Any:
    if isinstance(value, dict) and "base64" in value:
        return base64.b64decode(value["base64"], validate=True)
    if isinstance(value, dict):
        if type(value["bits"]) is not int:
            raise ValueError(f"{found_value(value['bits'])} is no whole number")
        return word_to_scalar(wire, value["bits"])
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
