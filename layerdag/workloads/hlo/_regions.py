"""Cutting a program into the nodes of a trace."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from layerdag.workloads.hlo._hardware import Hardware
from layerdag.workloads.hlo._program import Collective, Computation, Program


class Split(Enum):
    """How operations become nodes.

    LINEAR joins all computation between two collectives into one node, and chains the nodes.
    INDIVIDUAL makes every operation that takes time a node, with its dependencies.
    """

    LINEAR = "linear"
    INDIVIDUAL = "individual"


@dataclass(frozen=True)
class Region:
    """A node: some computation, or one collective.

    Attributes:
        name: Of the operation, or "region 3".
        operations: Number of operations inside.
        flops: Of all of them.
        mem_bytes: Read and written by them.
        seconds: Sum of their times; 0 for a collective.
        element: Element type of the operation with the most time; "" for a collective.
        collective: The communication, None for computation.
        parents: Indices of the regions before it.
    """

    name: str
    operations: int
    flops: int
    mem_bytes: int
    seconds: float
    element: str
    collective: Collective | None
    parents: tuple[int, ...]


def regions(program: Program, hardware: Hardware, split: Split = Split.LINEAR) -> list[Region]:
    """Return the nodes of a program, in program order."""
    if split is Split.INDIVIDUAL:
        return list(_individual(program, hardware))
    found: list[Region] = []
    joined: list[Computation] = []
    for item in (*program.items, None):
        if isinstance(item, Computation):
            joined.append(item)
            continue
        if any(operation.mem_bytes or operation.flops for operation in joined):
            found.append(_joined(joined, hardware, len(found)))
        joined = []
        if item is not None:
            before = (len(found) - 1,) if found else ()
            found.append(Region(item.name, 1, 0, 0, 0.0, "", item, before))
    return found


def _joined(operations: list[Computation], hardware: Hardware, index: int) -> Region:
    """Return the region of consecutive operations."""
    times = [hardware.seconds(operation) for operation in operations]
    longest = operations[max(range(len(times)), key=times.__getitem__)]
    return Region(
        f"region {index}",
        len(operations),
        sum(operation.flops for operation in operations),
        sum(operation.mem_bytes for operation in operations),
        sum(times),
        longest.element,
        None,
        (index - 1,) if index else (),
    )


def _individual(program: Program, hardware: Hardware) -> Iterator[Region]:
    """Yield a region for each item that takes time; others hand their parents on."""
    index_of: list[tuple[int, ...]] = []
    made = 0
    for item in program.items:
        parents = tuple(sorted({p for parent in item.parents for p in index_of[parent]}))
        if isinstance(item, Collective):
            yield Region(item.name, 1, 0, 0, 0.0, "", item, parents)
        elif item.mem_bytes or item.flops:
            seconds = hardware.seconds(item)
            cost = (item.flops, item.mem_bytes, seconds)
            yield Region(item.name, 1, *cost, item.element, None, parents)
        else:
            index_of.append(parents)
            continue
        index_of.append((made,))
        made += 1
