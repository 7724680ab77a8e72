"""The figures of a rank: what its trace holds, counted."""

from collections import Counter
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from layerdag.traces import CollectiveType, NodeType, Trace


@final
@dataclass(frozen=True)
class Communication:
    """Communication of one kind with one group or peer.

    Attributes:
        kind: "ALL_REDUCE@pg", "SEND->", "RECV<-" and so on.
        whom: A degree or, in messages, a stage.
        count: Nodes.
        elements: Sum of ``comm_size``.
    """

    kind: str
    whom: str | int
    count: int
    elements: int


@final
@dataclass(frozen=True)
class StageFigures:
    """What one rank of a stage does.

    Attributes:
        operators: The figures that all ranks of the stage have in common.
        communication: Those that depend on the rank's groups and peers.
    """

    operators: dict[str, Any]
    communication: list[Communication]

    @classmethod
    def of(cls, program: Trace) -> "StageFigures":
        """Count the nodes of a stage's program."""
        kinds = Counter(_kind(kind) for kind in program.type_N.tolist())
        count, operations = _operators(program)
        operators = {
            "nodes": program.num_nodes,
            "types": dict(kinds),
            "data_deps": int(program.data_deps.ptr_N1[-1]),
            "comp_by_op_type": count,
            "num_ops_by_op_type": operations,
            "num_ops": sum(operations.values()),
            "tensor_size_elems": int(program.integers("tensor_size")[0].sum()),
        }
        return cls(operators, _communication(program))

    def of_rank(self, group: dict[str, str], peer: list[int]) -> dict[str, Any]:
        """Return all figures of one rank.

        Args:
            group: Number of its group for each degree.
            peer: Its partner in each stage.
        """
        named = [
            (
                f"{part.kind}{peer[part.whom] if isinstance(part.whom, int) else group[part.whom]}",
                part,
            )
            for part in self.communication
        ]
        return self.operators | {
            "comm_count": {name: part.count for name, part in named},
            "comm_elems": {name: part.elements for name, part in named},
        }


def _kind(kind: int) -> str:
    return NodeType(kind).name.removeprefix("COMM_")


def _operators(trace: Trace) -> tuple[dict[str, int], dict[str, int]]:
    """Return count and operations by ``op_type``."""
    count: Counter[str] = Counter()
    operations: Counter[str] = Counter()
    cost_N = trace.integers("num_ops")[0].tolist()
    name_N, named_N = trace.texts("op_type")
    for row in np.flatnonzero(named_N).tolist():
        count[name_N[row]] += 1
        operations[name_N[row]] += cost_N[row]
    return dict(count), dict(operations)


def _communication(trace: Trace) -> list[Communication]:
    """Return communication by kind and degree or stage."""
    count: Counter[tuple[str, str | int]] = Counter()
    elements: Counter[tuple[str, str | int]] = Counter()
    size, kind, source, target = (
        trace.integers(name)[0].tolist()
        for name in ("comm_size", "comm_type", "comm_src", "comm_dst")
    )
    degree_N, _ = trace.texts("pg_name")
    for row in np.flatnonzero(trace.type_N >= NodeType.COMM_SEND).tolist():
        whom: tuple[str, str | int]
        if trace.type_N[row] == NodeType.COMM_SEND:
            whom = ("SEND->", target[row])
        elif trace.type_N[row] == NodeType.COMM_RECV:
            whom = ("RECV<-", source[row])
        else:
            whom = (f"{CollectiveType(kind[row]).name}@pg", degree_N[row])
        count[whom] += 1
        elements[whom] += size[row]
    return [Communication(*whom, number, elements[whom]) for whom, number in count.items()]
