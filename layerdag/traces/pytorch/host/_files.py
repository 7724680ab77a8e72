"""PyTorch host execution traces (ExecutionTraceObserver JSON) of every schema version.

Nodes stand in *exit order*: an operator is written when it returns, after everything it called.
Ids are taken from one counter at entry, so that they order nodes by start. ``parent`` (1.0.1) or
``ctrl_deps`` is the enclosing node as the observer saw it, which is unreliable in gloo runs.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from layerdag.errors import TraceError
from layerdag.traces.pytorch.host._scan import HostBlock, OpSchema, read_host_head, scan_host

FLAT = {
    "1.0.1": True,
    "1.0.2": False,
    "1.0.3": False,
    "1.0.4": False,
    "1.1.0": False,
    "1.1.1": False,
}
"""Whether the fields of a node lie side by side, for each schema version; the others nest arguments
and list further attributes. A suffix such as "-chakra.0.0.4" does not change the layout."""


def read_host_blocks(
    path: str | Path, has_tensors: Callable[[OpSchema], bool] = lambda kind: True
) -> Iterator[HostBlock]:
    """Yield the nodes of a host execution trace in file order, which is exit order.

    Args:
        path: JSON file, plain or compressed with gzip or xz (recognized by content).
        has_tensors: Whether the tensors of a kind of nodes are asked for; fewer are faster.

    Raises:
        TraceError: If the file is missing, damaged, truncated, no host trace, or of a schema
            version that is not known; the message names the file and the place.
    """
    return scan_host(path, _is_flat(read_host_head(path), str(path)), has_tensors)


def argument_values(node: dict[str, Any]) -> list[Any]:
    """Return the argument values of a node as it is in the file.

    A tensor is ``[tensor id, storage id, offset, elements, bytes per element, device]``; lists
    nest; other objects are numbers, bools, strings, or "<Object>".
    """
    inputs = node["inputs"]
    return inputs["values"] if isinstance(inputs, dict) else inputs


def attribute(node: dict[str, Any], name: str) -> Any:
    """Return a further attribute of a node as it is in the file, None if it is absent or empty."""
    found = (each["value"] for each in node.get("attrs", ()) if each["name"] == name)
    return next(found, None) or None


def _is_flat(head: str, source: str) -> bool:
    """Return the layout of the schema version that a file's head declares."""
    version = re.search(r'"schema"\s*:\s*"([^"]*)"', head)
    if version is None:
        raise TraceError(
            f"{source}: no 'schema' before the nodes; this is no PyTorch execution trace. Give "
            "the file written by ExecutionTraceObserver."
        )
    flat = FLAT.get(version[1].partition("-")[0])
    if flat is None:
        raise TraceError(
            f"{source}: schema version '{version[1]}' is not known; known are "
            f"{', '.join(FLAT)}, with or without a '-chakra' suffix."
        )
    return flat
