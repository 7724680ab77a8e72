"""Reader of PyTorch host execution traces (ExecutionTraceObserver JSON), one node at a time.

A file holds ``{"schema", "pid", "time", "start_ts", "nodes": [...], "finish_ts"}``. Nodes are
decoded while the file streams by, so that memory does not grow with the file. They stand in
*exit order*: an operator is written when it returns, after everything it called.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from layerdag.errors import TraceError
from layerdag.traces.json_stream import Raw, read_head, stream_objects


@dataclass(frozen=True, slots=True)
class Values:
    """Arguments or results of one operator, by position.

    Attributes:
        values: A tensor is ``[tensor id, storage id, offset, elements, bytes an element, device]``;
            lists nest; other objects are numbers, bools, strings, or "<Object>".
        shapes: Shape of each tensor, nested like ``values``.
        types: Type names such as "Tensor(float)" or "GenericList[Tensor(float)]".
        strides: Strides of each tensor, nested like ``values``; empty before schema 1.1.1.
    """

    values: list[Any]
    shapes: list[Any]
    types: list[str]
    strides: list[Any]


@dataclass(frozen=True, slots=True)
class HostNode:
    """One node of a host trace, of whatever schema version.

    Attributes:
        id: Taken from one counter at entry, so that ids order nodes by start.
        parent: Id of the enclosing node as the observer saw it; unreliable in gloo runs.
        name: Operator ("aten::mm") or scope name.
        schema: Operator schema, "" for scopes.
        rf_id: RecordFunction handle, the profiler's "Record function id".
        tid: Small thread number.
        inputs: Arguments.
        outputs: Results.
        extra: Other attributes (communication, Triton kernels), by name.
    """

    id: int
    parent: int
    name: str
    schema: str
    rf_id: int
    tid: int
    inputs: Values
    outputs: Values
    extra: Raw = field(default_factory=dict)


def _flat(raw: Raw) -> HostNode:
    """Decode a node of schema 1.0.1, whose fields lie side by side."""
    return HostNode(
        raw["id"],
        raw["parent"],
        raw["name"],
        raw.get("op_schema", ""),
        raw.get("rf_id", 0),
        raw.get("tid", 0),
        Values(raw["inputs"], raw["input_shapes"], raw["input_types"], []),
        Values(raw["outputs"], raw["output_shapes"], raw["output_types"], []),
        {key: raw[key] for key in ("cat", "ts", "dur", "stream") if key in raw},
    )


_PLAIN = frozenset({"rf_id", "tid", "op_schema", "fw_parent", "seq_id", "scope", "fw_tid"})


def _nested(raw: Raw) -> HostNode:
    """Decode a node of schema 1.0.2 and later, whose details are a list of attributes."""
    attrs = {attr["name"]: attr["value"] for attr in raw["attrs"]}
    extra = {name: value for name, value in attrs.items() if value and name not in _PLAIN}
    inputs, outputs = raw["inputs"], raw["outputs"]
    return HostNode(
        raw["id"],
        raw["ctrl_deps"],
        raw["name"],
        attrs.get("op_schema", ""),
        attrs.get("rf_id", 0),
        attrs.get("tid", 0),
        Values(inputs["values"], inputs["shapes"], inputs["types"], inputs.get("strides", [])),
        Values(outputs["values"], outputs["shapes"], outputs["types"], outputs.get("strides", [])),
        extra,
    )


DECODERS: dict[str, Callable[[Raw], HostNode]] = {
    "1.0.1": _flat,
    "1.0.2": _nested,
    "1.0.3": _nested,
    "1.0.4": _nested,
    "1.1.0": _nested,
    "1.1.1": _nested,
}
"""Decoder of each schema version; a suffix such as "-chakra.0.0.4" does not change the layout."""


def read_host_nodes(path: str | Path) -> Iterator[HostNode]:
    """Yield the nodes of a host execution trace in file order, which is exit order.

    Args:
        path: JSON file, plain or compressed with gzip or xz (recognised by content).

    Raises:
        TraceError: If the file is missing, damaged, truncated, no host trace, or of a schema
            version that is not known; the message names the file and the place.
    """
    decode = _decoder(read_head(path, "nodes"), str(path))
    for raw in stream_objects(path, "nodes"):
        try:
            yield decode(raw)
        except (KeyError, TypeError, AttributeError) as error:
            raise TraceError(
                f"{path}: node {raw.get('id', '?')} lacks or misuses field {error}; "
                "it does not follow the schema version that the file declares."
            ) from error


def _decoder(head: str, source: str) -> Callable[[Raw], HostNode]:
    """Return the decoder of the schema version that a file's head declares."""
    version = re.search(r'"schema"\s*:\s*"([^"]*)"', head)
    if version is None:
        raise TraceError(
            f"{source}: no 'schema' before the nodes; this is no PyTorch execution trace. Give "
            "the file written by ExecutionTraceObserver."
        )
    decoder = DECODERS.get(version[1].partition("-")[0])
    if decoder is None:
        raise TraceError(
            f"{source}: schema version '{version[1]}' is not known; known are "
            f"{', '.join(DECODERS)}, with or without a '-chakra' suffix."
        )
    return decoder
