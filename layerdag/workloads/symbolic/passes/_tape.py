"""The program of one class of ranks while it is written down, node after node."""

from collections.abc import Sequence
from dataclasses import replace
from typing import final

from layerdag.errors import ConfigError
from layerdag.traces import Attribute, CollectiveType, NodeType, Trace, Wire
from layerdag.traces.chakra import NodeColumns
from layerdag.workloads.symbolic.plans import PEERS

Nodes = tuple[int, ...]
"""Numbers of the nodes that something waits for."""


@final
class Tape:
    """Nodes in program order; a node's number is its priority.

    Communicator groups and peers are those of a class, not of a rank: ``pg_name`` holds the group's
    role ("tensor"), ``comm_src`` and ``comm_dst`` the place of the peer in ``PEERS`` or, behind
    these, the number of another rank that messages go to.

    What holds the communication slot of a rank (collectives and sends) is chained in program order,
    by control dependencies where data does not do it, and so is the first operator of a task to the
    last of the task before. All ranks write the same tasks in an order that agrees with one order
    of the whole job (``_schedule``), receives need no slot, sends wait for nobody: no cycle of
    waits can exist. The proof is that of ``layerdag.codec``.

    Args:
        dtype: Number format of all operators.
        source: For messages.

    Raises:
        ConfigError: By the methods below, if an operator takes more than 64 bits can state.
    """

    def __init__(self, dtype: str, source: str) -> None:
        self._columns = NodeColumns(source)
        self._source = source
        self._dtype = dtype
        self._done: list[int] = []  # last communication that is over when a node is ready
        self._last_communication: Nodes = ()
        self._last_compute: Nodes = ()
        self._before: Nodes = ()

    def begin_task(self) -> None:
        """Let what follows wait for the operators so far."""
        self._before = self._last_compute

    def compute(self, name: str, cost: tuple[int, int], after: Nodes) -> Nodes:
        """Add an operator of (operations, bytes read and written); return its number."""
        operations, moved = cost
        self._check(name, max(operations, moved))
        columns = self._columns
        columns.attribute("num_ops", Wire.INT64, max(operations, 1))
        columns.attribute("tensor_size", Wire.UINT64, max(moved, 1))
        ctrl = tuple(node for node in self._before if node not in after)
        self._before = ()
        self._last_compute = self._add(name, NodeType.COMP, after, ctrl)
        return self._last_compute

    def collective(
        self, name: str, kind: CollectiveType, role: str, size: int, after: Nodes
    ) -> Nodes:
        """Add a collective of ``size`` bytes in the group that the rank has in ``role``.

        ``size`` is the buffer of one rank before the collective: the shard in an all-gather, all
        of it otherwise, as ASTRA-sim reads ``comm_size``.
        """
        self._check(name, size)
        columns = self._columns
        columns.attribute("comm_type", Wire.INT64, kind)
        columns.attribute("comm_size", Wire.INT64, size)
        columns.attribute("pg_name", Wire.STRING, columns.text(role))
        return self._communicate(name, NodeType.COMM_COLL, after)

    def send(self, name: str, peer: str | int, size: int, tag: int, after: Nodes) -> Nodes:
        """Add the send of ``size`` bytes to a neighbor in the pipeline, or to a numbered rank."""
        self._check(name, size)
        self._message("comm_dst", peer, size, tag)
        return self._communicate(name, NodeType.COMM_SEND, after)

    def receive(self, name: str, peer: str | int, size: int, tag: int) -> Nodes:
        """Add the receive of ``size`` bytes from a neighbor in the pipeline."""
        self._check(name, size)
        self._message("comm_src", peer, size, tag)
        return self._add(name, NodeType.COMM_RECV, (), ())

    def trace(self) -> Trace:
        """Return all nodes as the trace of a class."""
        dtype = Attribute("dtype", Wire.STRING, self._dtype)
        return replace(self._columns.trace(), metadata=(dtype,))

    def _check(self, name: str, number: int) -> None:
        """Refuse operations or bytes that a trace cannot state."""
        if number >= 2**63:
            raise ConfigError(
                f"{self._source}: '{name}' takes {number:.3g} operations or bytes, more than the "
                "64 bits of a trace can state; give a smaller batch, or split it."
            )

    def _message(self, end: str, peer: str | int, size: int, tag: int) -> None:
        self._columns.attribute("comm_size", Wire.INT64, size)
        index = PEERS.index(peer) if isinstance(peer, str) else len(PEERS) + peer
        self._columns.attribute(end, Wire.INT32, index)
        self._columns.attribute("comm_tag", Wire.INT32, tag)

    def _communicate(self, name: str, kind: NodeType, after: Nodes) -> Nodes:
        done = max((self._done[node] for node in after), default=-1)
        ctrl = tuple(node for node in self._last_communication if node > done)
        self._last_communication = self._add(name, kind, after, ctrl)
        self._done[-1] = self._last_communication[0]
        return self._last_communication

    def _add(self, name: str, kind: NodeType, data: Sequence[int], ctrl: Nodes) -> Nodes:
        number = len(self._done)
        self._done.append(max((self._done[node] for node in (*data, *ctrl)), default=-1))
        self._columns.add(number, name, kind, (data, ctrl), (0, 0))
        return (number,)
